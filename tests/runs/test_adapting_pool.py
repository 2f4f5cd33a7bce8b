"""A pool that a language model ranks by its own scores, without items that ask nearly the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, prepare, run
from stacksl.core.losses import softmax
from stacksl.report.wording import interval
from stacksl.runs.loop.batch_selection import NearDuplicates
from stacksl.types import Item

from ..ledgers import rows_of
from .lm_cases import QUICK, adapt, blocks, questions, sentences, write_corpus
from .people_cases import facts_of

FIVE = "0.05,0.1,0.25,0.5,1"


@pytest.mark.parametrize(
    ("given", "mode", "refit_at"),
    [
        ({}, ("pool", "file"), ("1", "file")),
        ({"gate": "random"}, ("pool", "file"), ("1", "file")),
        ({"lm.refit_at": "0.5,1"}, ("pool", "file"), ("0.5,1", "flag")),
        ({"mode": "stream"}, ("stream", "flag"), (FIVE, "default")),
        ({"gate": "information"}, ("stream", "default"), (FIVE, "default")),
        (
            {"lm.objective": "stacksl", "update.kl_on_skips": True},
            ("stream", "default"),
            (FIVE, "default"),
        ),
        ({"gate": "always", "budget": "all"}, ("stream", "default"), (FIVE, "default")),
    ],
)
def test_a_run_on_a_file_is_a_pool_refitted_once(
    model: Path,
    tmp_path: Path,
    given: dict[str, Any],
    mode: tuple[str, str],
    refit_at: tuple[str, str],
) -> None:
    corpus = sentences(12) if given.get("gate") == "random" else questions(12)  # fixed classes too
    data = write_corpus(tmp_path / "data.jsonl", corpus)
    resolved = prepare(data, settings={"lm.model": str(model), **given}).spec.resolved
    found = {name: (resolved.settings.flat()[name], resolved.origin[name])
             for name in ("mode", "lm.refit_at")}  # fmt: skip
    assert found == {"mode": mode, "lm.refit_at": refit_at}
    chosen = ("auto", "file") if mode[0] == "pool" else ("token_mean", "default")
    assert (resolved.settings.lm.normalization, resolved.origin["lm.normalization"]) == chosen


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({"lm.answer_format": "letter"}, "token_mean"),
        ({"lm.normalization": "pmi"}, "pmi"),
        ({"lm.pmi_context": "empty"}, "token_mean"),
    ],
)
def test_letters_and_a_choice_of_the_user_are_not_chosen(
    model: Path, tmp_path: Path, given: dict[str, Any], way: str
) -> None:
    data = write_corpus(tmp_path / "data.jsonl", questions(12))
    settings = prepare(data, settings={"lm.model": str(model), **given}).spec.settings
    assert (settings.mode, settings.lm.normalization) == ("pool", way)


def bought_of(made: Run) -> list[Any]:
    decisions = [row.decision() for row in rows_of(made, "round")]
    return [each for each in decisions if each.asked]


def margin(scores: Any) -> float:
    """The difference of the two largest probabilities."""
    second, first = np.sort(softmax(np.asarray(scores)))[-2:]
    return float(first - second)


def test_each_batch_is_in_doubt_by_the_scores_of_the_last_refit(model: Path, tmp_path) -> None:
    """The second batch is by the base's scores as the first, the third by those of a refit."""
    corpus = questions(24)
    made = adapt(
        model,
        corpus,
        tmp_path / "run",
        mode="pool",
        open_questions=3,
        budget=9,
        lm={"refit_at": "0.6,1"},
    )
    assert [row.payload["labels"] for row in rows_of(made, "refit")] == [6, 9]
    place = {item.id: n for n, item in enumerate(corpus[0])}
    scores = [[margin(inputs.offset) if inputs.offset.any() else 1.0 for inputs in block]
              for block in blocks(made, corpus)]  # fmt: skip
    assert len(scores) == 2
    assert not np.allclose(scores[0], scores[1])
    bought = bought_of(made)
    for batch, gaps in enumerate((scores[0], scores[0], scores[1])):
        picked = bought[3 * batch : 3 * batch + 3]
        assert all(each.reason == "rank" for each in picked)
        found = [place[each.item] for each in picked]
        assert [-each.statistic for each in picked] == pytest.approx([gaps[n] for n in found])
        seen = {each.item for each in bought[: 3 * batch]}
        left = [gap for item, gap in zip(corpus[0], gaps, strict=True) if item.id not in seen]
        assert [gaps[n] for n in found] == pytest.approx(sorted(left)[:3]), "the smallest margins"


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_audited_items_that_it_would_buy_stand_for_none_of_those_left(
    mode: str, model: Path, tmp_path: Path
) -> None:
    corpus = questions(60)
    settings = {"mode": mode, "open_questions": 5, "audit": 20, "budget": 40, "lm.refit_at": "1"}
    made = adapt(model, corpus, tmp_path / "run", **settings)
    with made.ledger as ledger:
        saved, audited = ledger.arrays(), ledger.bought("audit")
    assert saved is not None
    noted = {corpus[0][row].id for row in saved.arrays["audit.rows"]}
    assert noted < {*audited}
    if mode == "pool":  # by the base's scores, half of the items are bought
        [block] = blocks(made, corpus)
        doubt = {item.id: -margin(each.offset) for item, each in zip(corpus[0], block, strict=True)}
        assert noted == {*sorted(audited, key=doubt.__getitem__)[-10:]}
    left = [item for item in corpus[0] if item.id in {*audited} - noted]
    said = [row["index"] for row in made.predict(left)]
    right = sum(corpus[1][item.id] == answer for item, answer in zip(left, said, strict=True))
    table = facts_of(made).table
    assert table is not None
    assert table.left == right / len(left)
    ends = f"(95% interval {interval(table.low, table.high)})"
    assert ends in made.status()["table"]["sentence"]


def test_owned_labels_are_learned_in_the_one_refit(model: Path, tmp_path: Path) -> None:
    """They count beside the budget; else a part of them would be as many labels as its share."""
    data = write_corpus(tmp_path / "data.jsonl", questions(20))
    for count in (5, 12):
        owned = write_corpus(tmp_path / f"{count}.jsonl", questions(count, seed=3))
        given = {**QUICK, "owned": str(owned), "budget": 8}
        made = run(data, out=tmp_path / str(count), **{"lm.model": str(model)}, **given)
        (refit,) = rows_of(made, "refit")
        assert refit.payload["labels"] == 8 + count
        assert not rows_of(made, "refreshed")


# Near duplicates --------------------------------------------------------------------------------


WORDS = ["apple", "river", "stone", "cloud", "tiger", "lemon", "piano", "ocean", "candle", "lake"]
ITEMS = [
    Item(f"q{n}", f"Answer with one of the options. {a} and {b} met the {c}.", ("yes", "no"))
    for n, (a, b, c) in enumerate(zip(WORDS, WORDS[3:] + WORDS, WORDS[7:] + WORDS, strict=False))
]
AGAIN = [
    replace(item, id=f"{item.id}x", prompt=item.prompt.replace(" and ", "  AND ").rstrip("."))
    for item in ITEMS
]


def test_twins_come_last() -> None:
    count = len(ITEMS)
    near = NearDuplicates([*ITEMS, *AGAIN], classes=True)
    ranked = [row for n in range(count) for row in (n, n + count)]
    assert near.without(ranked, [], count) == list(range(count))
    assert near.without(ranked[2:], [0, count + 1], 3) == [2, 3, 4]
    assert near.without([0, count, 1], [], 3) == [0, 1, count]  # nothing else is left


def test_options_of_their_own_tell_items_apart() -> None:
    alike = [replace(ITEMS[0], id=str(n), candidates=(a, "none")) for n, a in enumerate(WORDS)]
    assert NearDuplicates(alike, classes=False).without(range(5), [], 5) == [0, 1, 2, 3, 4]
    assert NearDuplicates(alike[:1] * 3, classes=False).without([0, 1, 2], [], 1) == [0]


@pytest.mark.parametrize("gate", ["margin", pytest.param("random", marks=pytest.mark.slow)])
def test_a_pool_of_pairs_gives_as_many_prompts_as_labels(gate: str, model: Path, tmp_path) -> None:
    items, answers = questions(8)
    again = [replace(item, id=f"{item.id}x", prompt=f" {item.prompt.upper()}.") for item in items]
    answers |= {f"{name}x": answer for name, answer in answers.items()}
    settings = {"gate": gate, "budget": 8, "open_questions": 3, "mode": "pool"}
    made = adapt(model, ([*items, *again], answers), tmp_path / "run", **settings)
    bought = [row.item for row in rows_of(made, "learned")]
    assert len(bought) == 8
    assert {str(name).removesuffix("x") for name in bought} == {item.id for item in items}
