"""Small real jobs, the process that plays and kills them, and what two runs are compared by."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.ledger.ledger import Ledger
from stacksl.runs.storage.folder import RunFolder, expect_all_derived

from ..tables import write_table

WORKER = Path(__file__).with_name("worker.py")
TIMES = ("created", "finished", "sha256")  # and a digest of them


@dataclass
class Worker:
    """The other process: `play` gives its reply."""

    process: subprocess.Popen[str]

    def play(self, **order: Any) -> dict[str, Any]:
        kept = {name: os.environ[name] for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        reply = self._reply({**order, "env": kept})
        assert reply["killed"] or reply["code"] == 0, reply["fault"]
        return reply

    def command(
        self, words: list[str], cwd: Path, first: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`stacksl WORDS`, without colors, after a script."""
        order = _command(words, cwd, first, env)
        reply = self._reply(order)
        assert not reply["fault"], reply["fault"]
        said = [Path(path).read_text(encoding="utf-8") for path in order["outputs"]]
        return subprocess.CompletedProcess(words, reply["code"], *said)

    def apart(self, words: list[str], cwd: Path, first: str = "", **env: str) -> Apart:
        """The same, which goes on."""
        order = _command(words, cwd, first, env)
        for path in order["outputs"]:
            Path(path).write_bytes(b"")  # else what the one before has said may be read
        return Apart(self, self._reply({**order, "apart": True})["pid"], *order["outputs"])

    def ended(self, pid: int) -> int | None:
        """How a command that was to go on has ended; None while it goes on."""
        code = self._reply({"ended": pid})["code"]
        return None if code is None else int(code)

    def _reply(self, order: dict[str, Any]) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the worker itself died"
        return dict(json.loads(line))


def _command(words: list[str], cwd: Path, first: str, env: dict[str, str]) -> dict[str, Any]:
    outputs = [str(cwd / name) for name in (".stdout", ".stderr")]
    environment = {"NO_COLOR": "1", **env}
    return {
        "words": words, "cwd": str(cwd), "env": environment, "first": first, "outputs": outputs
    }  # fmt: skip


@dataclass
class Apart:
    """A command that goes on in a process of its own."""

    worker: Worker
    pid: int
    stdout: str
    stderr: str
    code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or the number of the signal that killed it below zero."""
        if self.code is None:
            self.code = self.worker.ended(self.pid)
        return self.code

    def wait(self, seconds: float) -> int:
        until = time.monotonic() + seconds
        while (code := self.poll()) is None:
            assert time.monotonic() < until, self.told()
            time.sleep(0.01)
        return code

    def told(self) -> str:
        """What it has said on stderr."""
        return Path(self.stderr).read_text(encoding="utf-8")

    def end(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(60)


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], Worker]]:
    """The processes that play and kill runs, by the libraries that they have loaded."""
    started: dict[tuple[str, ...], Worker] = {}
    yield started
    for each in started.values():
        process = each.process
        process.stdin.close()
        process.wait(300)
        process.stdout.close()


@pytest.fixture(scope="module")
def worker(request, tmp_path_factory, workers: dict[tuple[str, ...], Worker]) -> Worker:
    """The process that plays and kills runs; it has loaded the libraries in a module's `HEAVY`."""
    heavy = tuple(getattr(request.module, "HEAVY", ()))
    if heavy not in workers:
        fault = tmp_path_factory.mktemp("worker") / "fault"
        process = subprocess.Popen(
            [sys.executable, str(WORKER), str(fault), *heavy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "ready\n"
        workers[heavy] = Worker(process)
    return workers[heavy]


def _words(rng: random.Random, topic: str, purity: float) -> str:
    pick = [topic if rng.random() < purity else rng.choice("abcd") for _ in range(6)]
    return " ".join(f"{each}{rng.randrange(8)}" for each in pick)


def write_classes(path: Path, rows: int, seed: int = 0) -> Path:
    """Sentences of four topics, hard enough that a gate has something to choose."""
    rng = random.Random(seed)
    topics = ["abcd"[n % 4] for n in range(rows)]
    texts = [f"{_words(rng, topic, 0.6)} n{n}" for n, topic in enumerate(topics)]
    return write_table(path, ("text", "label"), zip(texts, topics, strict=True))


def write_said(path: Path, data: Path) -> Path:
    """What a model says of the sentences of `data`: every fourth is the next topic."""
    with data.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    for n, row in enumerate(rows[1:]):
        row[1] = "abcda"["abcd".index(row[1]) + (n // 4 % 4 == 0)]
    return write_table(path, rows[0], rows[1:])


def write_pairs(path: Path, rows: int, seed: int = 0) -> Path:
    """Questions with two to five options of their own; the right one shares the topic."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for n in range(rows):
            gold = rng.randrange(size := rng.randrange(2, 6))
            topic = rng.choice("abcd")
            options = [_words(rng, rng.choice("abcd"), 0.7) + f" o{k}" for k in range(size)]
            options[gold] = _words(rng, topic, 0.8)
            row = {"id": f"q{n}", "prompt": f"{_words(rng, topic, 0.7)} n{n}"}
            file.write(json.dumps({**row, "candidates": options, "answer": gold}) + "\n")
    return path


@dataclass
class Kind:
    """One sort of job, with the undisturbed run of it."""

    name: str
    data: Path
    test: Path
    settings: dict[str, Any]
    reference: Path = field(default_factory=Path)
    seconds: float = 0.0

    @cached_property
    def ended(self) -> dict[str, Any]:
        """What the undisturbed run ended as."""
        return ended(self.reference, self.test)

    def order(self, out: Path) -> dict[str, Any]:
        return {
            "data": str(self.data),
            "test": str(self.test),
            "out": str(out),
            "settings": self.settings,
        }

    def answers(self) -> dict[str, int]:
        from stacksl.data import read

        return dict(read(self.data).answers)


KINDS: dict[str, dict[str, Any]] = {
    "classes-stream": {"budget": 16, "mode": "stream", "checkpoint_every": 16},
    "pairs-stream": {"budget": 14, "checkpoint_every": 16, "gate": "information", "price": "0.25"},
    "classes-covering": {"budget": 56, "mode": "stream", "checkpoint_every": 32},
    "classes-pool": {"budget": 20, "mode": "pool", "open_questions": 4, "checkpoint_every": 8},
    "classes-looks": {
        "budget": 120,
        "audit": 60,
        "mode": "pool",
        "class_names": False,
        "open_questions": 4,
        "checkpoint_every": 8,
        "stop_when": "accuracy=0.7",
    },
    "classes-model": {"budget": 36, "mode": "pool", "open_questions": 6, "checkpoint_every": 8},
    "pairs-paper": {
        "budget": 20,
        "preset": "paper",
        "checkpoint_every": 16,
        "gate.gate_scale": 0.001,
    },
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> dict[str, Kind]:
    """Every sort of job, each played once without disturbance."""
    folder = tmp_path_factory.mktemp("jobs")
    classes = write_classes(folder / "c.csv", 72), write_classes(folder / "ct.csv", 40, seed=1)
    pairs = write_pairs(folder / "p.jsonl", 64), write_pairs(folder / "pt.jsonl", 32, seed=1)
    found = {}
    for name, settings in KINDS.items():
        data, test = classes if name.startswith("classes") else pairs
        if name in ("classes-covering", "classes-looks"):  # long enough for refits on the way
            data = write_classes(folder / f"{name}.csv", 150)
        if name == "classes-model":  # a model that is right on three of four
            said = write_said(folder / "said.csv", data)
            settings = {**settings, "model_labels": str(said)}
        out = folder / name / "run"
        kind = Kind(name, data, test, settings, out)
        kind.seconds = worker.play(**kind.order(out))["seconds"]
        found[name] = kind
    return found


def chain(path: Path) -> list[dict[str, Any]]:
    """The ledger's rows without clock times, salted hashes and random surrogates.

    Of files that were made only what they are is told: a report that was made twice has other
    times, and a further row. Where arrays were saved is left out: a run that was killed
    saves them at other moments, too.
    """
    salted = ("item", "digest", "stored")
    found = []
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        made = set[str]()
        for row in ledger.rows():
            if row.event == "derived":
                if row.payload["name"] in made:
                    continue
                made.add(row.payload["name"])
            stored = row.payload.get("stored", {})
            if "arrays" in stored:
                continue
            payload = {k: v for k, v in row.payload.items() if k not in salted}
            payload.get("trained", {}).pop("seconds", None)
            payload |= {table: [*digests] for table, digests in stored.items()}
            found.append(
                {
                    name: getattr(row, name)
                    for name in (
                        "event", "round", "item", "slot", "token", "number", "purpose",
                        "labeler", "price",
                    )
                }
                | {"seq": len(found) + 1, "payload": payload}
            )  # fmt: skip
    return found


def expect_sound(path: Path, budget: int) -> None:
    """What must hold at any moment: the budget, the chain, one answer a purchase."""
    if not (path / "run.db").exists():
        return
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        ledger.verify(arrays=True)
        assert ledger.accounts.spent <= budget
        rows = list(ledger.rows())
    for event in ("reserved", "answered", "learned"):
        items = [row.item for row in rows if row.event == event]
        assert len(items) == len(set(items)) <= budget, f"'{event}' twice, or above the budget"


def facts(path: Path) -> dict[str, Any]:
    """The facts of the report, without clock times."""
    found = dict(json.loads((path / "facts.json").read_text()))
    for name in TIMES:
        found.pop(name)
    for mark in found["fingerprints"]:
        if mark["name"].startswith("ledger"):  # its hash is of clock times and random salts too
            mark["value"] = mark["value"].partition(", last ")[0]
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def ended(path: Path, test: Path) -> dict[str, Any]:
    """What two runs that ended alike have in common."""
    folder = RunFolder.open(path)
    return {
        "settings": (folder.settings(), folder.classes()),
        "chain": chain(path),
        "model": files(path / "model"),
        "features": files(path / "features"),
        "facts": facts(path),
        "predictions": [*Run.open(path).predict(test)],
    }


def expect_same(path: Path, kind: Kind) -> None:
    """The run at `path` ended as the undisturbed one: purchases, θ, head, predictions, report."""
    assert Run.open(path).status()["state"] == "finished"
    found = ended(path, kind.test)
    for name, reference in kind.ended.items():
        assert found[name] == reference, name
    expect_all_derived(RunFolder.open(path))
    assert (path / "report.html").stat().st_size > 10_000
    assert (path / "README.md").exists()
    assert not list(path.rglob(".tmp-*")), "half-written files stayed behind"


def budget_of(kind: Kind) -> int:
    return int(kind.settings["budget"])


@pytest.fixture
def home(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the `base` of a module, which a test may spoil."""
    shutil.copytree(base, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def resumed(worker: Worker, tmp_path: Path) -> Iterator[Any]:
    """Play a kind of job with a kill, look at what is left, resume it, and compare the end."""
    number = 0

    def play(kind: Kind, **moment: Any) -> Path:
        nonlocal number
        number += 1
        out = tmp_path / str(number) / "run"
        reply = worker.play(**kind.order(out), **moment)
        assert reply["killed"], "the moment never came"
        expect_sound(out, budget_of(kind))
        again = dict(moment)
        again.pop("kill")
        reply = worker.play(**kind.order(out), **again)
        assert not reply["killed"]
        expect_sound(out, budget_of(kind))
        return out

    yield play
    shutil.rmtree(tmp_path, ignore_errors=True)
