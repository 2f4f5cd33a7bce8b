"""`stacksl-lab compare`: cells, what is made of their numbers, advice, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stacksl.cli.entry import call
from stacksl.data import Dataset
from stacksl.errors import DataError, SettingsError
from stacksl.runs.settings.fields import Settings
from stacksl.types import Item
from stacksl_lab.pools import peers, strategies, study
from stacksl_lab.pools.peers import PEERS
from stacksl_lab.pools.split import Split, make_split
from stacksl_lab.pools.study import Comparison, recommended
from stacksl_lab.pools.tables import layout
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.store import Numbers, Store

from ..tables import write_table

LABORATORY = ("stacksl-lab", "stacksl_lab.verbs.app")

TOPICS = {
    "bread": "flour dough oven crust loaf yeast knead bake",
    "sea": "wave salt tide harbour ship anchor sail gull",
    "night": "star moon dark lamp sleep owl dream shadow",
}


def texts(count: int, *, pairs: bool = False) -> Dataset:
    """Sentences of three topics; with `pairs` the item has its topic's words as an option."""
    rng, names = np.random.default_rng(0), tuple(TOPICS)
    words = [topic.split() for topic in TOPICS.values()]
    items, answers = [], {}
    for n in range(count):
        gold = n % 3
        prompt = " ".join([*rng.choice(words[gold], 2), *rng.choice(words[n // 3 % 3], 1), str(n)])
        options = tuple(f"{rng.choice(each)} {n}" for each in words) if pairs else names
        items.append(Item(f"i{n}", prompt, options))
        answers[f"i{n}"] = gold
    return Dataset("topics", "memory", tuple(items), answers, None if pairs else names)


def split_of(count: int = 90, *, pairs: bool = False) -> Split:
    return make_split(texts(count, pairs=pairs), None, Settings(open_questions=6), None, 24)[0]


def comparison(split: Split, *names: str) -> Comparison:
    budgets = (12, 24)
    return Comparison("compare", "T", "c", "c", (), 2, split, ("random", *names), budgets)


def test_each_seed_draws_its_pool_and_none_is_tested_on() -> None:
    split = split_of()
    one, other = split.pool(0), split.pool(1)
    assert len(split.gold) + len(split.test_gold) == 90
    assert len(one.gold) == len(other.gold) == split.size == round(0.8 * len(split.gold))
    assert not np.array_equal(one.block.h, other.block.h)  # type: ignore[union-attr]
    assert np.array_equal(one.block.h, split.pool(0).block.h)  # type: ignore[union-attr]
    assert split.digest == split_of().digest != split_of(93).digest


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_buys_distinct_rows(name: str) -> None:
    if not PEERS[name].installed:
        pytest.skip(f"{PEERS[name].package} is not installed")
    pool = split_of(60).pool(0)
    bought = PEERS[name].bought_rows(pool, 15)
    assert len(set(bought)) == len(bought) == 15
    assert set(bought) <= set(range(len(pool.gold)))
    assert bought == PEERS[name].bought_rows(pool, 15), "a seed fixes the rows"
    if PEERS[name].model:
        assert bought[:6] == list(pool.order[:6]), "the first batch is that of random"


def test_items_with_options_of_their_own() -> None:
    split = split_of(60, pairs=True)
    rows = comparison(split, "margin").reproduce(Bench(Store()), range(2))
    assert {row.settings["model"] for row in rows} == {"product"}
    with pytest.raises(SettingsError, match="'coverage' chooses among items of fixed classes"):
        strategies.check_strategies(["coverage"], classes=False)
    assert "coverage" not in strategies.usable(classes=False)


def test_each_strategy_is_a_cell_that_is_kept(tmp_path, monkeypatch) -> None:
    one = comparison(split_of(60), "coverage")
    rows = one.reproduce(Bench(Store(tmp_path / "cells")), range(1))
    assert len(Store(tmp_path / "cells")) == 3
    monkeypatch.setattr(study, "measure", None)
    assert one.reproduce(Bench(Store(tmp_path / "cells")), range(1)) == rows


def test_a_peer_that_fails_is_named_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[int]:
        raise ValueError("secret text of an item")

    monkeypatch.setattr(peers.Peer, "installed", True)
    monkeypatch.setattr(peers.Peer, "version", "1")
    monkeypatch.setattr(peers.Peer, "bought_rows", broken)
    bench, one = Bench(Store()), comparison(split_of(60), "margin", "badge")
    rows = one.reproduce(bench, range(2))
    assert {row.row for row in rows if row.metric == "accuracy"} >= {"margin", "random"}
    assert "badge" not in {row.row for row in rows}
    [reason] = one.about(bench, range(2))["failed"].values()
    assert reason.startswith("badge of scikit-activeml failed: ValueError in test_comparing.py")


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ({"a": [0.02, 0.03, 0.02], "b": [0.01, 0.012, 0.011]}, "a"),
        ({"a": [0.2, -0.15, 0.2], "b": [0.01, 0.012, 0.011]}, "b"),  # a is best, but not for sure
        ({"a": [0.2, -0.15, 0.2]}, "random"),
        ({"a": [-0.02, -0.03, -0.02]}, "random"),
        ({"a": [0.3]}, "random"),  # one seed has no interval
        ({"a": [0.3, 0.3]}, "random"),  # nor have equal differences
        ({}, "random"),
    ],
)
def test_what_is_recommended(gains: dict[str, list[float]], chosen: str) -> None:
    assert recommended(gains) == chosen


def test_more_strategies_need_a_surer_gain() -> None:
    gain = [0.01, 0.03, 0.02, 0.05, 0.0]  # 0.022 ± 0.024 alone at 95 %
    near = [x + 0.004 for x in gain]
    assert recommended({"a": near}) == "a"
    assert recommended({"a": near, **{str(n): [-0.1, 0.1] for n in range(9)}}) == "random"


def cells_of(curve: Callable[[int], float], budgets: Sequence[int]) -> list[Numbers]:
    """Two seeds, the accuracies by labels ± 0.01."""
    return [
        {"seconds": 1.0} | {f"product@{b}": curve(b) + side for b in budgets}
        for side in (-0.01, 0.01)
    ]


def test_labels_to_reach_and_labels_saved() -> None:
    one = comparison(split_of(120, pairs=True), "margin")
    asked = one._asked()
    assert (asked["random"], asked["all labels"]) == ((12, 24, 48, 77), (77,))
    cells = {
        "random": cells_of(lambda b: 0.4 + b / 240, asked["random"]),
        "margin": cells_of(lambda b: 0.4 + b / 120, asked["margin"]),
        "all labels": cells_of(lambda b: 0.6, asked["all labels"]),
    }
    rows = {
        (r.row, r.metric, r.settings.get("labels", r.settings.get("share"))): r
        for r in one._rows(cells, "product")
        if r.metric != "recommended"
    }
    assert rows["margin", "gain", 12].value == pytest.approx(0.05)
    assert rows["margin", "saved", 12].value == pytest.approx(0.5)
    assert rows["margin", "saved", 24].value == pytest.approx(0.5)
    assert rows["margin", "labels_to", 0.9].value == pytest.approx(120 * (0.54 - 0.4))
    assert rows["random", "labels_to", 0.9].value == pytest.approx(240 * (0.54 - 0.4))
    worse = {**cells, "margin": cells_of(lambda b: 0.3, asked["margin"])}
    below = [r for r in one._rows(worse, "product") if r.row == "margin" and r.value is None]
    assert {(r.metric, r.settings.get("above"), r.settings.get("below")) for r in below} == {
        ("labels_to", 24.0, None),
        ("saved", None, 0.0),
        ("saved", None, -1.0),
    }
    assert "| margin | > 24 | > 24 | > 24 | < 0% | < -100% | 1.0 |" in layout(
        list(one._rows(worse, "product"))
    )


def write(path: Path, data: Dataset, *, without: int = 0, once: bool = False) -> str:
    topics = ["" if n < without else item.candidates[n % 3] for n, item in enumerate(data.items)]
    rows = [(item.prompt, topic) for item, topic in zip(data.items, topics, strict=True)]
    more = [("a single row", "alone")] if once else []
    return str(write_table(path, ("text", "topic"), [*rows, *more]))


def test_it_is_typed_and_printed(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "rows.csv", texts(90), once=True)
    words = ["compare", data, "--budgets", "24,12", "--seeds", "2", "--open-questions", "6"]
    assert call(words, *LABORATORY) == 0
    said = capsys.readouterr()
    assert "1 of 4 classes have a single row (alone)" in said.err
    assert "margin, seed 1), 0 s left" in said.err or "all labels, seed 1), 0 s left" in said.err
    assert "| strategy (gain over random) | 12 labels | 24 labels |" in said.out
    assert said.out.count("At 12 labels: ") == 2  # once for each final model
    assert "rows held out by seed 0" in said.out
    words += ["--seeds", "1", "--json", "--figures", str(tmp_path / "figures"), "--quiet"]
    assert call(words, *LABORATORY) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["failed"] == {}
    assert record["command"].startswith(
        "stacksl-lab compare rows.csv --strategies random,coverage,"
    )
    assert str(tmp_path) not in record["command"]
    assert {row["metric"] for row in record["rows"]} >= {"gain", "saved", "labels_to"}
    assert (tmp_path / "figures" / "compare.svg").exists()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--strategies", "margn"], "unknown strategy 'margn': did you mean 'margin'? known: "),
        (["--budgets", "10,500"], "--budgets should be at most 58, the rows of a pool, got 500"),
        (["--pool", "80"], "--pool should be at most 72, the rows that are not tested on, got 80"),
        (["--budgets", "ten"], "numbers of labels >= 1 with commas between, got 'ten'"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path, capsys, more: list[str], sentence: str) -> None:
    data = write(tmp_path / "rows.csv", texts(90))
    assert call(["compare", data, "--budgets", "12", "--quiet", *more], *LABORATORY) == 2
    assert sentence in capsys.readouterr().err


def test_rows_without_a_label_are_counted() -> None:
    data = texts(30)
    answers = {name: gold for name, gold in data.answers.items() if name != "i4"}
    with pytest.raises(DataError, match="1 of the 30 rows of 'topics' have none: label them"):
        make_split(replace(data, answers=answers), None, Settings(), None, 5)


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    for name, wanted in (
        ("typiclust", r"'typiclust' needs scikit-activeml: pip install 'stacksl\[bench\]'$"),
        ("breaking-ties", "'breaking-ties' needs small-text: pip install small-text in an env"),
    ):
        with pytest.raises(ImportError, match=wanted):
            strategies.check_strategies([name], classes=True)
    absent = r"installed: scikit-activeml \(pip .*; not installed: small-text \(pip install small-"
    with pytest.raises(SettingsError, match=absent):
        strategies.check_strategies(["no-such"], classes=True)
    assert "typiclust" not in strategies.usable(classes=True)
