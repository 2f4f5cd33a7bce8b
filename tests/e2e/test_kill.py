"""The resume promise: after kill -9 at any moment, `resume` ends as the undisturbed run does."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacksl.api import Run
from stacksl.cli import entry

from ..ledgers import bought
from ..runs.people_cases import begin, fill, open_rows, play, sheets
from .conftest import (
    Kind,
    Worker,
    budget_of,
    chain,
    expect_same,
    expect_sound,
    files,
    write_classes,
)

RUNS, LABELS = "stacksl.runs", "stacksl.ledger"
FOLDER, COMMIT = f"{RUNS}.storage.folder", f"{LABELS}.store.database:Store.commit"
PURCHASE = {
    "before its reservation is on disk": (COMMIT, 9, "before"),
    "when its reservation is on disk": (f"{LABELS}.ledger:Ledger.post", 11, "after"),
    "before it is asked": ("stacksl.labelers.registry:OracleLabeler.ask", 11, "before"),
    "when it was asked": ("stacksl.labelers.registry:OracleLabeler.ask", 11, "after"),
    "before its answer is taken": (f"{LABELS}.ledger:Ledger.take", 12, "before"),
    "when its answer was taken": (f"{LABELS}.ledger:Ledger.take", 12, "after"),
    "when its answer was learned": ("stacksl.core.learner:Learner.learn", 7, "after"),
}
DISK = {
    "before rows and arrays are saved": (f"{LABELS}.ledger:Ledger.save_arrays", 2, "before"),
    "before arrays are committed": (f"{LABELS}.journal:write_arrays", 2, "after"),
    "when arrays were saved": (f"{LABELS}.ledger:Ledger.save_arrays", 2, "after"),
    "before the waiting rows are flushed": (f"{LABELS}.ledger:Ledger.flush", 1, "before"),
    "when the waiting rows were flushed": (f"{LABELS}.ledger:Ledger.flush", 1, "after"),
    "between an atomic write and its rename": ("os:replace", 8, "before"),
}
START = {
    "before the database is committed": (COMMIT, 1, "before"),
    "before the database has its name": (f"{LABELS}.journal:place_file", 1, "before"),
    "when the database is there": (f"{LABELS}.journal:place_file", 1, "after"),
    "when the run counts as running": (f"{FOLDER}:RunFolder.write_state", 1, "after"),
    "between the files of the features": ("stacksl.features.store:write_atomic", 1, "after"),
    "before the features count as frozen": ("stacksl.features.store:write_atomic", 2, "after"),
    "between the feature map and its row": (f"{RUNS}.session.session:note_derived", 1, "before"),
}
END = {
    "before the refit is noted": (f"{LABELS}.ledger:Ledger.note_refit", 1, "before"),
    "when the refit was noted": (f"{LABELS}.ledger:Ledger.note_refit", 1, "after"),
    "in the middle of the model": ("stacksl.files.arrays:save", 3, "before"),
    "before the model counts": ("stacksl.models.linear:write_atomic", 1, "before"),
    "when the model was written": ("stacksl.models.linear:Model.save", 1, "after"),
    "between the model and its row": (f"{RUNS}.finish.finish:note_derived", 1, "before"),
    "between model and facts": (f"{RUNS}.finish.finish:write_atomic", 1, "before"),
    "between the facts and their row": (f"{RUNS}.finish.finish:note_derived", 2, "before"),
    "before the report": (f"{RUNS}.finish.finish:write_pages", 1, "before"),
    "between report and card": (f"{RUNS}.finish.finish:write_atomic", 2, "after"),
    "between the pages and their rows": (f"{RUNS}.finish.finish:note_derived", 3, "before"),
    "before the state is 'finished'": (f"{FOLDER}:RunFolder.write_state", 2, "before"),
    "when the state is 'finished'": (f"{FOLDER}:RunFolder.write_state", 2, "after"),
}
ALIKE = (  # to the one before it: between the same two files, or of the same row
    "before it is asked",
    "before its answer is taken",
    "when its answer was learned",
    "when arrays were saved",
    "when the waiting rows were flushed",
    "before the database has its name",
    "before the features count as frozen",
    "before the refit is noted",
    "before the model counts",
    "between model and facts",
    "before the report",
    "when the state is 'finished'",
    "when a refit on the way was noted",
    "when a label after it was learned",
    "among the rounds after it",
    "when a batch was reserved",
    "when a batch's refit was noted",
    "when the answer was heard",
    "when the answer was learned",
    "between the files of the features",
    "between an atomic write and its rename",
    "before the waiting rows are flushed",
    "between report and card",
    "before the state is 'finished'",
    "before a look's refit is noted",
    "when the last look was noted",
    "before the model of the look counts",
    "when the report of the agreement was written",
    "when further answers were leased",
    "before their last sheet is written",
    "before the next labels are reserved",
    "when the state is 'waiting'",
)
POOL = {
    "before a batch is reserved": (f"{LABELS}.ledger:Ledger.post", 3, "before"),
    "when a batch was reserved": (f"{LABELS}.ledger:Ledger.post", 3, "after"),
    "when a batch was answered": (f"{LABELS}.ledger:Ledger.take", 3, "after"),
    "before a batch's refit is noted": (f"{LABELS}.ledger:Ledger.note_refit", 2, "before"),
    "when a batch's refit was noted": (f"{LABELS}.ledger:Ledger.note_refit", 2, "after"),
}


def moments(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each moment; those like the one before them are for `make test-slow`."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "moment", [pytest.param(each, marks=slow if each in ALIKE else ()) for each in names]
    )


@moments([*PURCHASE, *DISK])
def test_a_stream_killed_at_a_step_of_a_purchase(resumed, kinds, moment) -> None:
    kind = kinds["classes-stream"]
    expect_same(resumed(kind, kill=(PURCHASE | DISK)[moment]), kind)


@moments([*START, *END])
def test_a_run_killed_at_its_start_or_end(resumed, kinds, moment) -> None:
    kind = kinds["pairs-stream"]
    expect_same(resumed(kind, kill=(START | END)[moment]), kind)


COVERING = {
    "before a refit on the way is noted": (f"{LABELS}.ledger:Ledger.note_refit", 2, "before"),
    "when a refit on the way was noted": (f"{LABELS}.ledger:Ledger.note_refit", 2, "after"),
    "in the middle of that refit": (f"{RUNS}.loop.linear_trainer:LinearTrainer._fit", 2, "before"),
    "when a label after it was learned": ("stacksl.core.learner:Learner.learn", 30, "after"),
    "among the rounds after it": (f"{LABELS}.ledger:Ledger.post", 100, "after"),
    "when later arrays were saved": (f"{LABELS}.ledger:Ledger.save_arrays", 3, "after"),
}


@moments(COVERING)
def test_a_stream_that_asks_by_coverage_killed(resumed, kinds, moment) -> None:
    kind = kinds["classes-covering"]
    labels = [row["payload"]["labels"] for row in chain(kind.reference) if row["event"] == "refit"]
    assert labels == [0, 25, 50, 56]
    expect_same(resumed(kind, kill=COVERING[moment]), kind)


@pytest.mark.parametrize("moment", ["when a batch was answered"])
def test_a_pool_with_labels_of_a_model_killed(resumed, kinds, moment) -> None:
    kind = kinds["classes-model"]
    expect_same(resumed(kind, kill=POOL[moment]), kind)


@moments(POOL)
def test_a_pool_killed_at_a_step_of_a_batch(resumed, kinds, moment) -> None:
    kind = kinds["classes-pool"]
    expect_same(resumed(kind, kill=POOL[moment]), kind)


LOOKED = {
    "before a look's refit is noted": (f"{LABELS}.ledger:Ledger.note_refit", 4, "before"),
    "before a look is noted": (f"{LABELS}.ledger:Ledger.note_look", 1, "before"),
    "when a look was noted": (f"{LABELS}.ledger:Ledger.note_look", 1, "after"),
    "when the last look was noted": (f"{LABELS}.ledger:Ledger.note_look", 2, "after"),
    "before the model of the look counts": ("stacksl.models.linear:write_atomic", 1, "before"),
}


@moments(LOOKED)
def test_a_pool_that_stops_at_an_accuracy_killed(resumed, kinds, moment) -> None:
    kind = kinds["classes-looks"]
    looks = [row["payload"] for row in chain(kind.reference) if row["event"] == "looked"]
    assert [each["reached"] for each in looks] == [False, True]
    expect_same(resumed(kind, kill=LOOKED[moment]), kind)


@pytest.mark.parametrize("moment", ["before arrays are committed"])
def test_the_papers_algorithm_killed_in_the_middle(resumed, kinds, moment) -> None:
    kind = kinds["pairs-paper"]
    expect_same(resumed(kind, kill=(PURCHASE | DISK)[moment]), kind)


def played_by_chance(
    worker: Worker, kind: Kind, out: Path, rng: random.Random, kills: int, seconds: float
) -> int:
    """Kill a run again and again at random moments, then let it finish; how often it died.

    `seconds` is how long the run is thought to take.
    """
    died = 0
    while died < kills:
        moment = rng.uniform(0.02, 0.9) * seconds * 0.8 ** (died % 4)
        reply = worker.play(**kind.order(out), after=moment)
        expect_sound(out, budget_of(kind))
        if not reply["killed"]:
            break
        died += 1
    assert not worker.play(**kind.order(out))["killed"]
    return died


EVERY_KIND = ("classes-stream", "classes-covering", "pairs-stream", "classes-pool", "pairs-paper")


@pytest.mark.parametrize(
    ("name", "kills", "once"),
    [
        ("classes-pool", 5, 3),
        *(pytest.param(name, 100, 8, marks=pytest.mark.slow) for name in EVERY_KIND),
    ],
)
def test_kills_at_random_moments(worker, kinds, tmp_path, name, kills, once) -> None:
    """So many in all, and up to `once` of a run."""
    kind, rng, died = kinds[name], random.Random(name), 0
    seconds = kind.seconds
    for attempt in range(60):
        out = tmp_path / str(attempt) / "run"
        more = played_by_chance(worker, kind, out, rng, min(once, kills - died), seconds)
        died += more
        seconds *= 1.0 if more else 0.5  # the machine is quicker than when it was timed
        expect_same(out, kind)
        if died >= kills:
            return
    pytest.fail(f"only {died} kills in 60 runs: the moments came too late")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes-stream", "classes-pool"])
@pytest.mark.parametrize("step", ["os:replace", COMMIT, "os:fsync"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_every_write(worker, kinds, tmp_path, name, step, when) -> None:
    kind = kinds[name]
    for call in range(1, 400):
        out = tmp_path / str(call) / "run"
        reply = worker.play(**kind.order(out), kill=(step, call, when))
        expect_sound(out, budget_of(kind))
        if not reply["killed"]:
            assert call > 10, "no write was seen"
            return
        assert not worker.play(**kind.order(out))["killed"]
        expect_same(out, kind)
    pytest.fail("a small run writes fewer than 400 times")


PAID = {
    "when its reservation is on disk": (f"{LABELS}.ledger:Ledger.post", 9, "after"),
    "when it was asked and paid": ("__main__:PaidLabeler.ask", 9, "after"),
    "when the answer was heard": ("__main__:PaidLabeler.answers", 9, "after"),
    "before the answer is on disk": (COMMIT, 12, "before"),
    "when the answer is on disk": (f"{LABELS}.ledger:Ledger.take", 9, "after"),
    "when the answer was learned": ("stacksl.core.learner:Learner.learn", 5, "after"),
}


@moments(PAID)
def test_nothing_is_paid_twice(worker, resumed, kinds, tmp_path, moment) -> None:
    kind = kinds["classes-stream"]
    paid = {"paid": str(tmp_path / "log"), "answers": kind.answers()}
    out = resumed(kind, kill=PAID[moment], **paid)
    bought = [tuple(json.loads(line)) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(bought) == len(set(bought)) == budget_of(kind)
    assert len({item for item, _, _ in bought}) == budget_of(kind)
    mine, reference = chain(out), chain(kind.reference)
    for row in reference:
        row["labeler"] = None if row["labeler"] is None else "paid"
    assert mine == reference, "who answers changes nothing but the name"


SHEETS = {
    "before the answers are on disk": (f"{LABELS}.ledger:Ledger.take", 1, "before"),
    "when the answers are on disk": (f"{LABELS}.ledger:Ledger.take", 1, "after"),
    "when some were learned": ("stacksl.core.learner:Learner.learn", 2, "after"),
    "before the next labels are reserved": (f"{LABELS}.ledger:Ledger.post", 1, "before"),
    "when rows were handed out": (f"{LABELS}.ledger:Ledger.hand_out", 1, "after"),
    "before the last sheet is written": (f"{RUNS}.session.assignment:write_sheet", 0, "before"),
    "when the state is 'waiting'": (f"{FOLDER}:RunFolder.write_state", 2, "after"),
}


ONE_OF_TWO = ("when the answers are on disk", "before the last sheet is written")
HANDED_IN = [
    *(pytest.param(moment, True, id=f"{moment}, both sheets",
                   marks=pytest.mark.slow if moment in ALIKE else ()) for moment in SHEETS),
    *(pytest.param(moment, False, id=f"{moment}, one of two sheets",
                   marks=() if moment in ONE_OF_TWO else pytest.mark.slow) for moment in SHEETS),
]  # fmt: skip


@dataclass
class Sheets:
    """A run of two people with filled-in sheets, and how it ends where nobody is killed."""

    path: Path
    given: list[Path]
    waits: tuple[dict[str, int], list[str]]
    bought: list[dict[str, object]]
    model: dict[str, bytes]


def handed_in(made: Run, given: list[Path]) -> Sheets:
    """What comes of a run whose filled-in sheets `given` are handed in, to a copy of it."""
    paths = [path.relative_to(made.path) for path in given]
    twin = Run(shutil.copytree(made.path, made.path.with_name("twin")))
    twin.answer(*[twin.path / path for path in paths])
    expect_sound_of_people(twin)
    waits = what_waits(twin)
    return Sheets(made.path, paths, waits, what_was_bought(play(twin)), files(twin.path / "model"))


def expect_taken_up(worker: Worker, twin: Sheets, folder: Path, kill: tuple[str, int, str]) -> None:
    """A run that is killed as it reads the sheets ends as its twin, with the same keys."""
    made = Run(shutil.copytree(twin.path, folder / "run"))
    order = {"out": str(made.path), "sheets": [str(made.path / path) for path in twin.given]}
    assert worker.play(**order, kill=kill)["killed"]
    expect_sound_of_people(made)
    assert not worker.play(**order)["killed"]
    expect_sound_of_people(made)
    assert what_waits(made) == twin.waits, "the same rows wait, with the same keys"
    assert what_was_bought(play(made)) == twin.bought
    assert files(made.path / "model") == twin.model


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Sheets]:
    """By whether the sheets of both are handed in."""
    found = {}
    wanted = {"budget": 16, "open_questions": 8, "audit": 4, "sheets": {"overlap": 3}}
    for both in (True, False):
        made = begin(tmp_path_factory.mktemp("asked"), annotators="anna,ben", **wanted)
        out = [fill(path) for path in sheets(made)]
        assert [path.name for path in out] == ["0001-anna.csv", "0001-ben.csv"]
        found[both] = handed_in(made, out if both else out[:1])
    return found


@pytest.mark.parametrize(("moment", "both"), HANDED_IN)
def test_answers_of_two_people_killed_on_their_way(worker, asked, tmp_path, moment, both) -> None:
    where, number, when = SHEETS[moment]
    kill = (where, number or len(asked[both].given), when)
    expect_taken_up(worker, asked[both], tmp_path, kill)


LOOK = {
    "when the answers are on disk": (f"{LABELS}.ledger:Ledger.take", 1, "after"),
    "when the report of the agreement was written": (
        f"{RUNS}.finish.finish:write_pages",
        1,
        "after",
    ),
    "before further answers are leased": (f"{LABELS}.ledger:Ledger.reserve", 1, "before"),
    "when further answers were leased": (f"{LABELS}.ledger:Ledger.reserve", 1, "after"),
    "when their rows were handed out": (f"{LABELS}.ledger:Ledger.hand_out", 1, "after"),
    "before their last sheet is written": (f"{RUNS}.session.assignment:write_sheet", 3, "before"),
}


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Sheets:
    """A run of three people whose last first answers are filled in; its second look comes next."""
    wanted = {"budget": 40, "open_questions": 40, "audit": 20, "second_look": True}
    made = begin(tmp_path_factory.mktemp("looking"), annotators="anna,ben,carl", **wanted)
    found = handed_in(made, [fill(path) for path in sheets(made)])
    assert len(found.waits[1]) == 3
    assert Run(made.path.with_name("twin")).status()["audit"]["second"] is not None
    return found


@moments(LOOK)
def test_a_second_look_killed_as_it_begins(worker, looking, tmp_path, moment) -> None:
    expect_taken_up(worker, looking, tmp_path, LOOK[moment])


def what_waits(made: Run) -> tuple[dict[str, int], list[str]]:
    return open_rows(made), [path.read_text() for path in sheets(made)]


def expect_sound_of_people(made: Run) -> None:
    """The chain verifies, the budget holds, and no purchase was answered twice."""
    with made.ledger as ledger:
        ledger.verify()
        assert ledger.accounts.spent <= ledger.accounts.budget
        answered = [(row.item, row.slot) for row in ledger.rows() if row.event == "answered"]
    assert len(answered) == len(set(answered))


def what_was_bought(made: Run) -> list[dict[str, object]]:
    return [{**row, "learned_at": row["learned_at"] is not None} for row in bought(made)]


# The command line stops itself before it buys a second batch of labels.
HALTING = """
import __main__, signal
__main__.arm("stacksl.ledger.ledger:Ledger.post", 2, "before", signal.SIGSTOP)
"""


@pytest.fixture
def long(tmp_path: Path) -> Kind:
    """A job that buys a dozen labels."""
    data, test = write_classes(tmp_path / "c.csv", 60), write_classes(tmp_path / "t.csv", 24, 1)
    return Kind("long", data, test, {"budget": 12}, tmp_path / "undisturbed" / "run")


def test_answers_of_two_processes_are_taken_once(worker, asked, tmp_path) -> None:
    made = Run(shutil.copytree(asked[True].path, tmp_path / "run"))
    sheet = made.path / asked[True].given[0]
    words = ["answer", str(made.path), str(sheet), "--json", "--quiet"]
    calls = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        calls.append(worker.apart(words, tmp_path / name))
    assert [call.wait(120) for call in calls] == [0, 0], [call.told() for call in calls]
    told = [json.loads(Path(call.stdout).read_text(encoding="utf-8")) for call in calls]
    assert sum(each["accepted"].get("label", 0) for each in told) == 4
    assert sum(each["repeated"] for each in told) == 4


def test_ctrl_c_stops_and_resume_finishes_and_two_never_share_a_run(
    worker, long, tmp_path, capfd, monkeypatch
) -> None:
    out = tmp_path / "run"
    words = ["run", str(long.data), "--test", str(long.test), "--budget", "12"]
    words += ["--open-questions", "6", "--quiet", "--out"]
    process = worker.apart([*words, str(out)], tmp_path, first=HALTING)
    while "(stopped)" not in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8"):
        assert process.poll() is None, process.told()
        time.sleep(0.01)  # it holds the run, and cannot finish meanwhile
    assert Run.open(out).status()["state"] == "running"
    monkeypatch.setattr(f"{FOLDER}.WAIT", 0.0)
    assert entry.call(["resume", str(out)]) == 2
    told = capfd.readouterr().err
    assert f"is held by process {process.pid} on " in told
    assert told.count("\n") == 1

    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(300) == 130, process.told()
    told = process.told()
    assert f"stacksl resume {out}" in told
    assert "Traceback" not in told
    status = Run.open(out).status()
    assert status["state"] == "stopped"
    assert status["resume"] == f"stacksl resume {out}"
    expect_sound(out, 12)

    capfd.readouterr()
    assert entry.call(["resume", str(out), "--quiet", "--json"]) == 0
    said = capfd.readouterr().out
    assert json.loads(said)["state"] == "finished"
    assert json.loads(said)["asked"] == 12
    assert entry.call([*words, str(long.reference)]) == 0
    expect_same(out, long)


def test_kill_9_is_shown_as_interrupted_with_the_command_that_resumes(
    worker, kinds, tmp_path
) -> None:
    kind, out = kinds["pairs-stream"], tmp_path / "run"
    worker.play(**kind.order(out), kill=PURCHASE["when its reservation is on disk"])
    status = Run.open(out).status()
    assert status["state"] == "interrupted"
    assert status["resume"] == f"stacksl resume {out}"
    assert status["asked"] == status["answered"] + 1, "one promise is open"
    assert status["left"] == status["budget"] - status["asked"]
