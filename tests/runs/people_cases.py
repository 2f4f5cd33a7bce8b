"""A run whose labels come from people by file, and colleagues who fill in its sheets."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.ledger.ledger import Ledger
from stacksl.report import Facts
from stacksl.runs.changes.people import Received

from ..ledgers import bought, rows_of, verify
from ..tables import write_table
from .conftest import CLASSES, sentence

Row = dict[str, str]


def write_pool(folder: Path, count: int, *, seed: int = 0, first: int = 0) -> Path:
    """A file of sentences without labels; `gold` knows what each of them is about."""
    rng = random.Random(seed)
    rows = []
    for n in range(first, first + count):
        topic = rng.choice(CLASSES)
        rows.append((f"i{n}", f"{topic[:2]} {sentence(rng, topic)} {n}"))
    return write_table(folder / f"pool-{seed}-{first}.csv", ("id", "text"), rows)


def texts_of(pool: Path) -> dict[str, str]:
    """The sentences by id."""
    return {row["id"]: row["text"] for row in read_rows(pool)}


def gold(prompt: str) -> str:
    """The class of a sentence."""
    return next(name for name in CLASSES if name.startswith(prompt[:2]))


def write_classes(folder: Path) -> Path:
    path = folder / "classes.txt"
    path.write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    return path


def begin(folder: Path, *, count: int = 60, **settings: Any) -> Run:
    """A run of people over `count` sentences that waits for its first answers."""
    wanted: dict[str, Any] = {
        "budget": 24,
        "open_questions": 6,
        "mode": "pool",
        "class_names": False,
    }
    wanted |= {"out": folder / "run", "classes": str(write_classes(folder)), "labeler": "file"}
    wanted["sheets.format"] = "csv"
    return run(write_pool(folder, count), **{**wanted, **settings})


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a sheet as a spreadsheet shows them."""
    text = Path(path).read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def write_rows(path: str | Path, rows: Sequence[Row]) -> Path:
    """Save rows as a spreadsheet would."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return Path(path)


Say = Callable[[Row], str]


def truth(row: Row) -> str:
    """What a good colleague writes into the cell: the option's text."""
    return gold(row["prompt"])


def wrong(row: Row) -> str:
    """Another class than the right one."""
    return CLASSES[(CLASSES.index(gold(row["prompt"])) + 1) % len(CLASSES)]


def erring(share: float) -> Callable[[Row], str]:
    """Colleagues who are wrong in a share of answers, whatever the order of their rows."""
    return lambda row: wrong(row) if random.Random(row["key"]).random() < share else truth(row)


def fill(path: str | Path, say: Say = truth, *, keys: Iterable[str] | None = None) -> Path:
    """Fill in a sheet, or the rows of it that have these keys."""
    wanted = None if keys is None else set(keys)
    rows = read_rows(path)
    for row in rows:
        if wanted is None or row["key"] in wanted:
            row["answer"] = say(row)
    return write_rows(path, rows)


def sheets(waiting: Run, status: Mapping[str, Any] | None = None) -> list[Path]:
    """The sheets that wait for answers; those of a copied run are its own."""
    found = [Path(sheet["file"]) for sheet in (status or waiting.status())["sheets"] or []]
    return [waiting.path / "ask" / p.name if p.parent.name == "ask" else p for p in found]


def open_rows(waiting: Run) -> dict[str, int]:
    """How many rows of each sheet wait, by the name of the file."""
    told = waiting.status()["sheets"] or []
    return {Path(sheet["file"]).name: sheet["open"] for sheet in told}


def answer_all(waiting: Run, say: Say = truth) -> Received:
    """Let everybody fill in what waits, and hand it in."""
    return waiting.answer(*[fill(path, say) for path in sheets(waiting)])


def play(waiting: Run, say: Say = truth, *, calls: int = 40) -> Run:
    """Answer until the run has finished."""
    status = waiting.status()
    for _ in range(calls):
        if status["state"] != "waiting":
            return waiting
        status = waiting.answer(*[fill(path, say) for path in sheets(waiting, status)]).status
    raise AssertionError(f"the run still waits after {calls} calls")


def answer_until(happened: Callable[[], object], waiting: Run, say: Say = truth) -> Run:
    """Answer all that waits, again and again, until something has happened."""
    for _ in range(40):
        if happened():
            return waiting
        answer_all(waiting, say)
    raise AssertionError("it never happened")


def expect_sound(done: Run) -> None:
    """The ledger verifies, and its replay gives the learner again."""
    verify(done)
    done.replay()


def copy_of(made: Run, folder: Path) -> Run:
    """A copy in `folder`, which a test may change."""
    return Run(shutil.copytree(made.path, folder / "run"))


def facts_of(done: Run) -> Facts:
    """The facts of a finished run."""
    return Facts.from_json((done.path / "facts.json").read_text())


class Killed(BaseException):
    """The end of a process, for `killed`."""


def killed(*_: object, **__: object) -> None:
    """In place of a step: the process ends there."""
    raise Killed


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, name: str, when: str) -> Iterator[None]:
    """The process ends `before` or `after` each step of the ledger of that name."""
    step = getattr(Ledger, name)

    def dies(*words: Any, **named: Any) -> None:
        if when == "after":
            step(*words, **named)
        raise Killed

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(Ledger, name, dies)
        yield


def played_in_pieces(
    cut: Run, monkeypatch: pytest.MonkeyPatch, name: str, when: str, say: Say
) -> Run:
    """The run played to its end by processes that end at this step, again and again."""
    for _ in range(8):
        with killed_at(monkeypatch, name, when):
            play(cut, say)
        verify(cut)  # it is played again at the end, with all rows
        if cut.resume().status()["state"] == "finished":
            break
    return play(cut, say)


def cuts(names: Iterable[str], often: Iterable[tuple[str, str]]) -> list[Any]:
    """Before and after each of these steps of the ledger; all but some in `make test-slow`."""
    return [
        pytest.param(name, when, marks=() if (name, when) in often else pytest.mark.slow)
        for name in names
        for when in ("before", "after")
    ]


def ending_of(done: Run) -> list[object]:
    """What two runs that ended alike have in common; when labels were learned is left out."""
    facts = json.loads((done.path / "facts.json").read_text())
    rows = [{**row, "learned_at": None} for row in bought(done)]
    looked = [dict(row.payload) for row in rows_of(done, "looked")]
    told = [facts[name] for name in ("audit", "budget", "stopped")]
    return [*told, rows, looked, (done.path / "model" / "model.json").read_bytes()]


def just_before(made: Run, say: Say, happened: Callable[[], object]) -> Run:
    """A copy of the run whose next answers make it happen; the run itself goes on until then."""
    for number in range(20):
        copied = shutil.copytree(made.path, made.path.parent / f"before-{number}")
        answer_all(made, say)
        if happened():
            return Run(copied)
    raise AssertionError("it never happened")
