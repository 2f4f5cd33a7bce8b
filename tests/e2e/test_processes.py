"""`stacksl` played by two processes under torchrun: one ledger, shared work, the same labels.

A `sitecustomize` beside the run writes down what every process puts through the model, and kills or
interrupts the first one in the midst of a refit; the package itself knows nothing of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run
from stacksl.ledger.ledger import Ledger
from stacksl.runs.storage.folder import RunFolder

from ..runs.lm_cases import questions, tiny_model
from .conftest import Worker, chain, expect_sound

for _name in ("accelerate", "peft", "tokenizers"):
    pytest.importorskip(_name, reason=f"{_name} is not installed (the extra lm)")

HEAVY = ("torch", "transformers", "peft", "accelerate", "transformers.models.qwen3.modeling_qwen3")
LIMIT = 600  # seconds; processes that hang are a failure
ITEMS, TESTED, BUDGET = 40, 36, 10  # more than a block of 32, or one process scores them all
SECOND_REFIT = 6  # the step to end at: 4 are the first refit's (5 labels, 2 epochs, 3 a step)
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
OPTIONS = {
    "budget": BUDGET,
    "mode": "stream",
    "device": "cpu",
    "refit-at": "0.5,1",
    "epochs": 2,
}
SETTINGS = {
    "lora_rank": 2,
    "state_dim": 8,
    "batch_size": 3,
    "batch_tokens": 16,  # several micro-batches a step, so that both processes have some
    "learning_rate": 0.01,
}
WITNESS = '''
"""Write down what a process of the command puts through the model; end it where it is told to."""
import os, sys

def watch():
    import json, signal, time
    from stacksl.lm.scoring import likelihood
    from stacksl.lm.training import refit

    rank = os.environ.get("RANK", "0")
    log = open(os.path.join(os.environ["WITNESS"], f"rank-{rank}.jsonl"), "a")
    end, at = os.environ.get("WITNESS_END", ":0").split(":")
    steps = 0

    def told(name):
        inner = getattr(likelihood.Likelihood, name)
        def outer(self, items):
            import torch
            trains = name == "sums" and torch.is_grad_enabled()
            row = {"items": [item.id for item in items], "trains": trains}
            log.write(json.dumps(row) + "\\n")
            log.flush()
            return inner(self, items)
        setattr(likelihood.Likelihood, name, outer)

    def step(self, number, inner=refit.Optimizer.step):
        nonlocal steps
        inner(self, number)
        steps += 1
        if rank == "0" and steps == int(at):
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGINT)  # the launcher hands it to all, as Ctrl-C's
            time.sleep(60)

    told("sums")
    told("sums_and_states")
    refit.Optimizer.step = step

words = sys.orig_argv
if "WITNESS" in os.environ and "-m" in words and words[words.index("-m") + 1] == "stacksl":
    watch()
'''


@dataclass
class Played:
    """A command that has ended: its exit code, what it said, and what each process did."""

    code: int
    stdout: str
    stderr: str
    log: Path

    @property
    def sentences(self) -> list[str]:
        """What the package itself said; the launcher tells of a failed process at length."""
        lines = self.stderr.splitlines()
        return [line.partition("stacksl: ")[2] for line in lines if "stacksl: " in line]

    def seen(self, rank: int, *, trains: bool) -> Counter[str]:
        """How often each item went through the model of a process."""
        path = self.log / f"rank-{rank}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return Counter(item for row in rows if row["trains"] == trains for item in row["items"])


class Jobs:
    """A folder with a model, items and runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tiny_model(folder / "model")
        _write(folder / "train.jsonl", ITEMS, seed=0)
        _write(folder / "test.jsonl", TESTED, seed=1)
        (folder / "witness").mkdir()
        (folder / "witness" / "sitecustomize.py").write_text(WITNESS)
        self._played = 0

    def run(self, name: str, processes: int, end: str = "", **changes: Any) -> Played:
        """`stacksl run` by so many processes, with other settings where they are given."""
        return self.play(processes, *self.words(name, **changes), end=end)

    @staticmethod
    def words(name: str, **changes: Any) -> list[str]:
        options = [str(word) for key, v in OPTIONS.items() for word in (f"--{key}", v)]
        settings = [f"--set={key}={v}" for key, v in (SETTINGS | changes).items()]
        files = ["train.jsonl", "--test", "test.jsonl", "--model", "model", "--out", name]
        return ["run", *files, *options, *settings, "--quiet"]

    def play(self, processes: int, *words: str, end: str = "") -> Played:
        """`stacksl WORDS` by so many processes, all of which must have ended."""
        self._played += 1
        log = self.folder / f"log-{self._played}"
        log.mkdir()
        left = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
        env = {name: value for name, value in os.environ.items() if name not in left} | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(self.folder / "witness"),
            "WITNESS": str(log),
        }
        if end:
            env["WITNESS_END"] = end
        launcher = ["-m", *TORCHRUN] if processes > 1 else ["-m"]
        done = subprocess.run(
            [sys.executable, *launcher, "stacksl", *words],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert not _alive(str(log)), "a process stayed behind"
        return Played(done.returncode, done.stdout, done.stderr, log)

    def path(self, name: str) -> Path:
        return self.folder / name


def _write(path: Path, count: int, seed: int) -> None:
    items, answers = questions(count, seed)
    with path.open("w", encoding="utf-8") as file:
        for item in items:
            row = {"id": item.id, "prompt": item.prompt, "candidates": list(item.candidates)}
            file.write(json.dumps(row | {"answer": answers[item.id]}) + "\n")


def _alive(mark: str) -> list[int]:
    """Processes that have `mark` in their environment; none where the system does not tell."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"WITNESS={mark}".encode() in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def story(path: Path) -> list[dict[str, Any]]:
    """The ledger's rows without numbers that the last bits of a score reach."""
    rows = []
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        for row, known in zip(ledger.rows(), chain(path), strict=True):
            known["payload"] = None
            if row.event == "round":
                decision = row.decision()
                known["payload"] = (decision.status, decision.reason, decision.choice)
            rows.append(known)
    return rows


def adapter(path: Path, number: int) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(path / "adapters" / f"{number:02d}" / "adapter_model.safetensors"))


def expect_alike(path: Path, other: Path) -> None:
    """Both bought the same labels, never more than the budget, and learnt the same from them.

    Sums over processes are grouped otherwise than sums over one, so weights differ in last bits,
    which some steps of AdamW at a rate of 0.01 make larger: 1e-3 where they are 0.1 to 1.
    """
    for each in (path, other):
        assert Run.open(each).status()["state"] == "finished"
        expect_sound(each, BUDGET)
    assert story(path) == story(other)
    assert Run.open(path).status()["asked"] == BUDGET
    for number in (1, 2):
        ours, theirs = adapter(path, number), adapter(other, number)
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            np.testing.assert_allclose(tensor, theirs[name], rtol=1e-3, atol=1e-3, err_msg=name)
    first, second = (json.loads((p / "facts.json").read_text())["test"] for p in (path, other))
    assert first["n"] == second["n"] == TESTED
    assert first["accuracy"] == pytest.approx(second["accuracy"], abs=1.5 / TESTED)  # a near tie


def processes_of(path: Path) -> int:
    return int(RunFolder(path).resolved()["lm_processes"])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def one(jobs: Jobs, worker: Worker) -> Played:
    """By one process, which has loaded the libraries already."""
    log = jobs.folder / "log-one"
    log.mkdir()
    watched = {"first": f"{WITNESS}\nwatch()", "WITNESS": str(log), "OMP_NUM_THREADS": "1"}
    done = worker.command(jobs.words("one"), jobs.folder, **watched)
    return Played(done.returncode, done.stdout, done.stderr, log)


@pytest.fixture(scope="module")
def two(jobs: Jobs) -> Played:
    return jobs.run("two", processes=2)


def test_two_processes_buy_and_learn_what_one_does(jobs: Jobs, one: Played, two: Played) -> None:
    assert (one.code, two.code) == (0, 0), one.stderr + two.stderr
    assert (processes_of(jobs.path("one")), processes_of(jobs.path("two"))) == (1, 2)
    assert two.stdout.count("finished") == 1
    expect_alike(jobs.path("two"), jobs.path("one"))
    for trains in (False, True):
        shares = [two.seen(rank, trains=trains) for rank in (0, 1)]
        assert all(shares), "a process did nothing"
        assert shares[0] + shares[1] == one.seen(0, trains=trains)
    assert not one.seen(1, trains=False)


@pytest.mark.slow
def test_a_verb_without_a_model_is_played_once(jobs: Jobs, two: Played) -> None:
    assert two.code == 0
    told = jobs.play(2, "status", "two", "--json")
    assert told.code == 0, told.stderr
    assert json.loads(told.stdout)["state"] == "finished"
    assert not told.sentences


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words", "left"),
    [
        ({"lora_targets": "nowhere"}, "nowhere", None),  # seen before anything is written
        ({"learning_rate": 1e30}, "not finite", "failed"),
    ],
)
def test_an_error_is_one_sentence_and_ends_both(
    jobs: Jobs, changes: dict[str, Any], words: str, left: str | None
) -> None:
    name = f"wrong-{next(iter(changes))}"
    done = jobs.run(name, 2, **changes)
    assert done.code != 0
    assert len(done.sentences) == 1, done.stderr
    assert words in done.sentences[0]
    path = jobs.path(name)
    assert (Run.open(path).status()["state"] if path.exists() else None) == left


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_a_run_cut_off_in_a_refit_is_resumed(
    jobs: Jobs, one: Played, end: str, processes: int
) -> None:
    name = f"{end}-{processes}"
    cut = jobs.run(name, 2, end=f"{end}:{SECOND_REFIT}")
    assert one.code == 0
    assert cut.code != 0
    status = Run.open(jobs.path(name)).status()
    assert status["state"] == ("interrupted" if end == "kill" else "stopped"), cut.stderr
    assert [bool(s) for s in cut.sentences] == ([] if end == "kill" else [True])
    expect_sound(jobs.path(name), BUDGET)
    made = {path.name for path in (jobs.path(name) / "adapters").glob("*.json")}
    assert made == {"01.json"}, "not in the second refit"
    again = jobs.play(processes, "resume", name, "--quiet")
    assert again.code == 0, again.stderr
    expect_alike(jobs.path(name), jobs.path("one"))
    shares = [again.seen(rank, trains=True) for rank in range(processes)]
    whole = one.seen(0, trains=True)
    assert all(shares)
    assert sum(sum(share.values()) for share in shares) < sum(whole.values()), "the first again"
