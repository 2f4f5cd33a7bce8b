"""A bench: what it measures and keeps, by which program, and cells on a grid."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError, SettingsError
from stacksl.runs.settings.resolve import flattened, resolve
from stacksl_lab.language.cells import Result, Setting, names_in_run
from stacksl_lab.language.measuring import cell_of
from stacksl_lab.language.paper import NUMBERS
from stacksl_lab.language.studies import LanguageBench
from stacksl_lab.language.tasks import Setup
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.studies import LABORATORY, LANGUAGE, listing, study_named
from stacksl_lab.study.bench import ROOTS, Bench, OnProgress, Pace, program_files, program_hash
from stacksl_lab.study.records import record
from stacksl_lab.study.rows import KEYS, Row, half_width, pooled, row_from
from stacksl_lab.study.store import Numbers, Store
from stacksl_lab.study.study import Line

PLAYED: list[tuple[str, int]] = []


def trials(quick: bool) -> Sequence[Trial]:
    lines = (
        Line("a", {"slope": 1.0}, 0.5, paper={"height": 3.0}),
        Line("b", {"slope": 2.0}, marks=("odd",)),
    )
    sources = (Trial({"base": 10}, lines), Trial({"base": 20}, (Line("c", {"slope": 0.0}),)))
    return sources[:1] if quick else sources


def stream(base: float, seed: int) -> float:
    return base


def measure(base: float, line: Line, seed: int) -> Numbers:
    PLAYED.append((line.row, seed))
    return {
        "height": base + line.settings["slope"] * seed,
        "depth": None if seed == 1 else float("inf") if line.row == "b" else 0.25,
        "asked_fraction": 0.5,
    }


def derive(found: Any) -> list[Row]:
    return [Row("toy", "a − b", "height", found["a"]["height"][-1] - found["b"]["height"][-1])]


TOY = StreamStudy(
    "toy", "Toy", "it rises", "nothing", ("height", "depth"), 3, trials, measure, stream, derive,
    summary=lambda found: [{"gate": "a", "worst": max(found["a"]["height"])}],
)  # fmt: skip


def numbers_of(
    study: StreamStudy,
    seeds: Sequence[int],
    store: Store,
    quick: bool = False,
    on_progress: OnProgress | None = None,
) -> dict[str, list[Numbers]]:
    bench = Bench(store, quick=quick)
    return bench.measured(lambda: study.numbers(bench, seeds), on_progress)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    PLAYED.clear()


def test_rows_are_means_over_seeds_with_their_error() -> None:
    rows = {(r.row, r.metric): r for r in TOY.rows_from(numbers_of(TOY, range(3), Store()))}
    a = rows["a", "height"]
    assert (a.value, a.seeds, a.paper, a.asked_fraction) == (11.0, 3, 3.0, 0.5)
    assert a.se == pytest.approx(1 / 3**0.5)
    assert a.settings == {"base": 10, "slope": 1.0, "marks": []}
    assert rows["b", "height"].settings["marks"] == ["odd"]
    assert rows["c", "height"].value == 20.0
    assert (rows["a", "depth"].value, rows["a", "depth"].seeds) == (0.25, 2), "one had no number"
    assert rows["b", "depth"].value is None, "infinity is no number"
    assert rows["a − b", "height"].value == -2.0


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "toy.jsonl"
    first = numbers_of(TOY, range(2), Store(path))
    assert sorted(PLAYED) == [(r, s) for r in "abc" for s in (0, 1)]
    PLAYED.clear()
    again = numbers_of(TOY, range(3), Store(path))
    assert sorted(PLAYED) == [("a", 2), ("b", 2), ("c", 2)]
    assert {row: numbers[:2] for row, numbers in again.items()} == first


# Each is what a line of the file may have become; the first is as it was written.
BROKEN = (
    b"{}",
    b'[17, {"height": 1.0}]',
    b'["key", {"height": NaN}]',
    b'["key", {"height": 1.0',
    b'["key", {"he\xffght": 1.0}]',
    b"[" * 100_000,
)


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_a_line_that_holds_no_numbers_is_measured_again(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "toy.jsonl"
    whole = numbers_of(TOY, range(2), Store(path))
    first, *others = path.read_bytes().splitlines()
    key = json.loads(first)[0].encode()
    path.write_bytes(b"\n".join([broken.replace(b"key", key), *others]) + b"\n")
    PLAYED.clear()
    assert numbers_of(TOY, range(2), Store(path)) == whole
    assert PLAYED == [("a", 0)]
    PLAYED.clear()
    assert numbers_of(TOY, range(2), Store(path)) == whole
    assert PLAYED == [], "what was measured again is kept"


@pytest.mark.parametrize("cut", [1, 20])
def test_what_follows_a_line_that_was_cut_off_is_kept(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "toy.jsonl"
    numbers_of(TOY, range(1), Store(path))
    path.write_bytes(path.read_bytes()[:-cut])
    whole = numbers_of(TOY, range(2), Store(path))
    PLAYED.clear()
    assert numbers_of(TOY, range(2), Store(path)) == whole
    assert PLAYED == []


def test_a_stopped_study_keeps_what_it_has(tmp_path: Path) -> None:
    def stop(pace: Pace) -> None:
        assert (pace.done, pace.total) == (1, 4)
        raise KeyboardInterrupt

    store = Store(tmp_path / "toy.jsonl")
    with pytest.raises(KeyboardInterrupt):
        numbers_of(TOY, range(2), store, on_progress=stop)
    assert len(Store(tmp_path / "toy.jsonl")) == 2, "both lines of the first stream"


def test_other_code_measures_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    numbers_of(TOY, range(1), Store(path))
    PLAYED.clear()
    monkeypatch.setattr("stacksl_lab.streams.trial.program_hash", lambda: "other")
    numbers_of(TOY, range(1), Store(path))
    assert PLAYED == [("a", 0), ("b", 0), ("c", 0)]


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="give another folder"):
        numbers_of(TOY, range(1), Store(tmp_path / "file" / "toy.jsonl"))
    assert PLAYED == []


def test_a_record_says_how_it_was_made() -> None:
    bench = Bench(Store())
    kept = record(TOY, bench, 3, TOY.reproduce(bench, range(3)))
    assert kept["command"] == "stacksl-lab reproduce toy --seeds 3 --json"
    assert kept["seeds"] == [0, 1, 2]
    assert kept["summary"] == [{"gate": "a", "worst": 12.0}]
    assert all(tuple(row) == KEYS for row in kept["rows"])
    json.dumps(kept)


TWINS = {"sgd, rate tuned · 0.02", "sgd, rate 0.1 · 0.02"}
"""Two rows that are one measurement: the rate that the pilot seeds chose is the fixed one."""


@pytest.mark.parametrize("name", list(LABORATORY))
@pytest.mark.parametrize("quick", [True, False])
def test_every_line_has_its_own_name_and_plain_settings(name: str, quick: bool) -> None:
    study = LABORATORY[name]
    found = study.trials(quick)
    rows = [line.row for trial in found for line in trial.lines]
    assert len(rows) == len(set(rows))
    json.dumps([[t.source, [[n.settings, n.budget_fraction] for n in t.lines]] for t in found])
    keyed = {line.row: trial.key(line, 0, "") for trial in found for line in trial.lines}
    same: dict[str, set[str]] = {}
    for row, key in keyed.items():
        same.setdefault(key, set()).add(row)
    twins = [rows for rows in same.values() if len(rows) > 1]
    assert all(rows == TWINS for rows in twins), "the same measurement twice"


@pytest.mark.parametrize("name", list(LABORATORY))
def test_other_processes_find_what_plays(name: str) -> None:
    import pickle

    study = LABORATORY[name]
    assert pickle.loads(pickle.dumps(study.measure)) is study.measure
    pickle.dumps(study.stream)


def test_the_page_of_studies_names_their_seeds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "studies" / "README.md").read_text("utf-8")
    said = dict(re.findall(r"^\| \[([\w-]+)\]\(.*\| (\d+) \|$", page, flags=re.MULTILINE))
    assert said == {name: str(study.seeds) for name, study in LABORATORY.items()}


# What of the program the laboratory's numbers depend on: all that makes them, and no more -------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The text of both packages, to be edited."""
    for root, part in ((ROOTS[0], "stacksl/core"), (ROOTS[1], "stacksl_lab")):
        shutil.copytree(
            root / part,
            tmp_path / part,
            ignore=lambda _, names: [n for n in names if "." in n and not n.endswith(".py")],
        )
    return tmp_path


def fresh(*roots: Path) -> str:
    program_hash.cache_clear()
    return program_hash(roots=roots)


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("stacksl_lab/engines/loop.py", True),
        ("stacksl/core/scorers/ridge.py", True),
        ("stacksl_lab/streams/trial.py", True),
        ("stacksl_lab/streams/coverage.py", True),
        ("stacksl_lab/figures/rates.py", False),
        ("stacksl_lab/language/objectives.py", False),
    ],
)
def test_an_edit_measures_anew_what_it_may_change(copy: Path, file: str, counts: bool) -> None:
    before = fresh(copy)
    assert before == fresh(*ROOTS), "a copy of the same text"
    with (copy / file).open("a", encoding="utf-8") as text:
        text.write("\n# edited\n")
    assert (fresh(copy) != before) == counts


def test_what_plays_is_hashed() -> None:
    for study in LABORATORY.values():
        module = sys.modules[study.measure.__module__]
        assert Path(str(module.__file__)) in program_files().values()


# From a grid to rows: each cell once, k cut, rows that coincide marked, the schema held ---------


def by_row(rows: list[Row], metric: str = "accuracy") -> dict[str, Row]:
    return {row.row: row for row in rows if row.metric == metric}


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_rows_keep_the_one_schema(study: str, bench: LanguageBench) -> None:
    found = LANGUAGE[study].reproduce(bench, [0, 1])
    for row in found:
        line = json.loads(json.dumps(row.to_json()))
        assert tuple(line) == KEYS
        assert row_from(line) == row
        assert row.study == study
        assert row.seeds in (1, 2)
    assert {row.row for row in found} == {s.row for s in LANGUAGE[study].grid(bench.setup)}


def test_a_row_with_another_key_is_refused() -> None:
    with pytest.raises(Exception, match="extra"):
        row_from({**Row("s", "r", "m", 1.0).to_json(), "extra": 1})


def test_k_is_cut_and_the_same_run_is_played_once(bench: LanguageBench, stage: Any) -> None:
    found = by_row(LANGUAGE["hard-negatives"].reproduce(bench, [0]))
    gates = [(s["gate"], s["k"]) for _, _, s, _ in stage.played]
    assert sorted(k for gate, k in gates if gate == "llf") == [1, 2, 3]
    four = found["k = 4"]
    assert four.settings["k"] == 3
    assert four.value == found["k = 3"].value
    assert "the same run as 'k = 3': computed once" in four.settings["marks"]
    assert any("k is cut to 3" in mark for mark in four.settings["marks"])
    assert not any("k is cut" in mark for mark in found["k = 3"].settings["marks"])


def test_llf_equal_to_first_is_played_once(bench: LanguageBench, stage: Any) -> None:
    found = by_row(LANGUAGE["medqa"].reproduce(bench, [0]))
    assert "first" not in [s["gate"] for *_, s, _ in stage.played]
    assert found["first"].value == found["LLF-StackSL"].value
    assert any("computed once" in mark for mark in found["first"].settings["marks"])


def test_a_result_is_kept_as_numbers(tmp_path: Path) -> None:
    result = Result(0.5, 0.4, 10, 5, 10, 1.0, True, mean_loss=1.5)
    Store(tmp_path / "cells.jsonl").put({"a": result.measurement(), "b": "a reason"})
    again = Store(tmp_path / "cells.jsonl")
    kept = again.get("a")
    assert kept is not None
    assert Result.of(kept) == result
    assert again.get("b") is None, "the reason may be gone next time"


def test_a_fault_is_not_measured_and_not_kept(bench: LanguageBench, stage: Any) -> None:
    stage.fail = SettingsError("no such thing")
    found = by_row(LANGUAGE["kl"].reproduce(bench, [0]))
    assert found["λ_KL = 0.7"].value is None
    assert "not measured: no such thing" in found["λ_KL = 0.7"].settings["marks"]
    assert found["λ_KL = 0.7"].paper == 0.3166
    assert found["Base, 0-shot"].value == 0.3
    stage.fail = None
    again = replace(bench, store=Store(bench.store.path))
    assert by_row(LANGUAGE["kl"].reproduce(again, [0]))["λ_KL = 0.7"].value is not None


def test_an_absent_model_is_not_looked_for(bench: LanguageBench, stage: Any) -> None:
    gone = replace(bench, setup=replace(bench.setup, absent="the weights are not here"))
    for study in LANGUAGE.values():
        rows = study.reproduce(gone, [0, 1])
        assert all(row.value is None for row in rows)
        assert any(row.paper is not None for row in rows)
    assert not stage.played
    assert not stage.examined


def test_numbers_of_the_paper_stand_beside_its_model_alone(bench: LanguageBench) -> None:
    other = replace(bench, setup=replace(bench.setup, comparable=False))
    assert all(row.paper is None for row in LANGUAGE["objectives"].reproduce(other, [0, 1]))
    mine = by_row(LANGUAGE["objectives"].reproduce(bench, [0, 1]), "accuracy_sd")
    assert mine["SFT"].paper == 0.0023
    assert mine["SFT"].value == pytest.approx(0.001 / 2**0.5), "seeds 0 and 1 differ by 0.001"


def test_errors_of_a_mean() -> None:
    """s of (0, 0.1, 0.2) is 0.1; the 97.5% quantile of t with 2 degrees is 4.303."""
    value, se = pooled([0.0, 0.1, 0.2])
    assert value == pytest.approx(0.1)
    assert se == pytest.approx(0.1 / 3**0.5)
    row = Row("s", "r", "accuracy", value, se, 3)
    assert half_width(row) == pytest.approx(4.302652729911275 * 0.1 / 3**0.5)
    assert pooled([0.5], 100) == (0.5, 0.05), "sqrt(0.25 / 100)"
    assert pooled([0.5]) == (0.5, None)


# Each study asks for the paper's whole grid, with the paper's constants -------------------------


def rows(study: str, setup: Setup) -> dict[str, Setting]:
    found = LANGUAGE[study].grid(setup)
    assert len({each.row for each in found}) == len(found), "a row's name is its own"
    return {each.row: each for each in found}


def test_there_are_the_seven_tables() -> None:
    assert list(LANGUAGE) == [
        "label-efficiency", "kl", "hard-negatives", "objectives", "medqa", "mmlu", "clipping-lm",
    ]  # fmt: skip
    assert set(NUMBERS) == set(LANGUAGE)
    assert all(study.claim in listing()[name] for name, study in LANGUAGE.items())
    with pytest.raises(Exception, match="did you mean 'medqa'"):
        study_named("medaq")


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_every_row_of_the_paper_is_in_the_grid(study: str, setup: Setup) -> None:
    found = rows(study, setup)
    assert set(NUMBERS[study]) <= set(found)
    for row, numbers in NUMBERS[study].items():
        assert found[row].paper == numbers
        assert set(numbers) <= set(LANGUAGE[study].metrics)


def test_the_constants_are_the_papers(setup: Setup) -> None:
    kl, k = rows("kl", setup), rows("hard-negatives", setup)
    mine = [each for each in kl.values() if each.settings.get("gate") == "llf"]
    assert [each.settings["kl_weight"] for each in mine] == [0.3, 0.5, 0.7, 0.9]
    assert {(each.settings["k"], each.items, each.budget_fraction) for each in mine} == {
        (4, 1000, 0.5)
    }
    mine = [each for each in k.values() if each.settings.get("gate") == "llf"]
    assert [each.settings["k"] for each in mine] == [1, 2, 3, 4]
    assert {(e.settings["kl_weight"], e.items, e.budget_fraction) for e in mine} == {
        (0.7, 1000, 0.5)
    }
    budgets = {
        e.budget_fraction for e in rows("label-efficiency", setup).values() if e.shots is None
    }
    assert budgets == {1.0, 0.5, 0.25, 0.1}
    for study in ("medqa", "mmlu"):
        gated = [e for e in rows(study, setup).values() if e.settings.get("gate") == "llf"]
        assert gated
        assert {each.budget_fraction for each in gated} == {0.5}
    for setting in rows("clipping-lm", setup).values():
        if setting.settings.get("clip", "none") != "none":
            assert setting.settings["clip_level"] == 5.0


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_a_run_takes_the_settings(study: str, bench: LanguageBench) -> None:
    """Every cell resolves: no unknown name, no conflict."""
    for setting in LANGUAGE[study].grid(bench.setup):
        if setting.shots is None:
            cell = cell_of(replace(setting, chosen=False), 0, bench)
            asked: dict[str, Any] = {**cell.settings, "model": "m", "seed": 0, "budget": "5"}
            made = resolve(names_in_run(asked))
            assert made.settings.adapts
            given = flattened(names_in_run(cell.settings))
            assert all(made.origin[name] == "flag" for name in given)


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_the_cost_is_what_is_played(study: str, bench: LanguageBench, stage: Any) -> None:
    """With four options, and an `llf` that buys what `first` buys."""
    LANGUAGE[study].reproduce(bench, [0])
    runs = re.match(r"(\d+) runs", LANGUAGE[study].cost)
    assert int(runs[1]) == len(stage.played)
    chosen = [each for each in stage.played if each[1].name == "MedQA-train"]
    said = re.search(r"(\d+) of which choose", LANGUAGE[study].cost)
    assert len(chosen) == (int(said[1]) if said else 0)
