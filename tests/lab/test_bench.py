"""How a study of the laboratory is measured: each number once, kept, the same in any order."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.studies import LABORATORY
from stacksl_lab.study.bench import Bench, OnProgress, Pace
from stacksl_lab.study.records import record
from stacksl_lab.study.rows import KEYS, Row
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


def measured(
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
    rows = {(r.row, r.metric): r for r in TOY.rows_from(measured(TOY, range(3), Store()))}
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
    first = measured(TOY, range(2), Store(path))
    assert sorted(PLAYED) == [(r, s) for r in "abc" for s in (0, 1)]
    PLAYED.clear()
    again = measured(TOY, range(3), Store(path))
    assert sorted(PLAYED) == [("a", 2), ("b", 2), ("c", 2)]
    assert {row: numbers[:2] for row, numbers in again.items()} == first


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    whole = measured(TOY, range(2), Store(path))
    path.write_text(path.read_text()[:-20])
    PLAYED.clear()
    assert measured(TOY, range(2), Store(path)) == whole
    assert PLAYED == [("c", 1)]


# Each is what a line of the file may have become; the first is as it was written.
BROKEN = (
    b"{}",
    b'["key"]',
    b'[17, {"height": 1.0}]',
    b'["key", {"height": "high"}]',
    b'["key", {"height": true}]',
    b'["key", {"height": NaN}]',
    b'["key", {"height": 1.0}, 2]',
    b'["key", {"height": 1.0',
    b'["key", {"he\xffght": 1.0}]',
    b"\x00\xff\xfe",
    b"[" * 100_000,
)


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_a_line_that_holds_no_numbers_is_measured_again(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "toy.jsonl"
    whole = measured(TOY, range(2), Store(path))
    first, *others = path.read_bytes().splitlines()
    key = json.loads(first)[0].encode()
    path.write_bytes(b"\n".join([broken.replace(b"key", key), *others]) + b"\n")
    PLAYED.clear()
    assert measured(TOY, range(2), Store(path)) == whole
    assert PLAYED == [("a", 0)]
    PLAYED.clear()
    assert measured(TOY, range(2), Store(path)) == whole
    assert PLAYED == [], "what was measured again is kept"


@pytest.mark.parametrize("cut", [1, 20])
def test_what_follows_a_line_that_was_cut_off_is_kept(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "toy.jsonl"
    measured(TOY, range(1), Store(path))
    path.write_bytes(path.read_bytes()[:-cut])
    whole = measured(TOY, range(2), Store(path))
    PLAYED.clear()
    assert measured(TOY, range(2), Store(path)) == whole
    assert PLAYED == []


def test_a_stopped_study_keeps_what_it_has(tmp_path: Path) -> None:
    def stop(pace: Pace) -> None:
        assert (pace.done, pace.total) == (1, 4)
        raise KeyboardInterrupt

    store = Store(tmp_path / "toy.jsonl")
    with pytest.raises(KeyboardInterrupt):
        measured(TOY, range(2), store, on_progress=stop)
    assert len(Store(tmp_path / "toy.jsonl")) == 2, "both lines of the first stream"


def test_other_code_measures_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    measured(TOY, range(1), Store(path))
    PLAYED.clear()
    monkeypatch.setattr("stacksl_lab.streams.trial.program_hash", lambda: "other")
    measured(TOY, range(1), Store(path))
    assert PLAYED == [("a", 0), ("b", 0), ("c", 0)]


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="give another folder"):
        measured(TOY, range(1), Store(tmp_path / "file" / "toy.jsonl"))
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
