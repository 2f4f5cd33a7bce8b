"""`stacksl` played by two processes under torchrun: one ledger, shared work, the same labels.

A `sitecustomize` beside the run kills or interrupts the first process in the midst of a refit; the
package itself knows nothing of it. That two processes score and train what one does, and that an
error of any of them ends all, is tested in `tests/lm` without a run around it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from stacksl.api import Run
from stacksl.ledger.events import NOTES
from stacksl.ledger.ledger import Ledger
from stacksl.runs.storage.folder import RunFolder

from ..runs.lm_cases import questions, tiny_model, write_corpus
from .conftest import chain, expect_sound

for _name in ("peft", "tokenizers"):
    pytest.importorskip(_name, reason=f"{_name} is not installed (the extra lm)")

pytestmark = pytest.mark.slow

ITEMS, TESTED, BUDGET = 40, 36, 10  # more than a block of 32, or one process scores them all
SECOND_REFIT = 6  # the step to end at: 4 are the first refit's (5 labels, 2 epochs, 3 a step)
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
OPTIONS = ("--mode", "stream", "--device", "cpu", "--refit-at", "0.5,1", "--epochs", "2", "--quiet")
SETTINGS = {
    "lm.lora_rank": 2,
    "lm.state_dim": 8,
    "lm.batch_size": 3,
    "lm.batch_tokens": 16,  # several micro-batches a step, so that both processes have some
    "update.learning_rate": 0.01,
}
ENDING = """
import os, signal, sys, time

words = sys.orig_argv
if os.environ.get("RANK") == "0" and "ENDING" in os.environ and "stacksl" in words:
    from stacksl.lm.training import refit

    inner, steps, (end, at) = refit.Optimizer.step, [], os.environ["ENDING"].split(":")

    def step(self, number):
        inner(self, number)
        steps.append(number)
        if len(steps) == int(at):
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGINT)  # the launcher hands it to all, as Ctrl-C's
            time.sleep(60)

    refit.Optimizer.step = step
"""


class Jobs:
    """A folder with a model, items and runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tiny_model(folder / "model")
        write_corpus(folder / "train.jsonl", questions(ITEMS, seed=0))
        write_corpus(folder / "test.jsonl", questions(TESTED, seed=1))
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(ENDING)

    def run(self, name: str, processes: int, end: str = "", **changes: Any) -> Any:
        """`stacksl run` by so many processes, with other settings where they are given."""
        words = ["train.jsonl", "--test", "test.jsonl", "--model", "model", "--out", name]
        settings = [f"--set={key}={value}" for key, value in (SETTINGS | changes).items()]
        return self.play(processes, "run", *words, "--budget", str(BUDGET), *OPTIONS, *settings,
                         end=end)  # fmt: skip

    def play(self, processes: int, *words: str, end: str = "") -> Any:
        """`stacksl WORDS` by so many processes, all of which must have ended."""
        left = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
        env = {name: value for name, value in os.environ.items() if name not in left}
        paths = [str(self.folder / "site"), env.get("PYTHONPATH", "")]
        env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        env |= {"ENDING": end} if end else {}
        launcher = ["-m", *TORCHRUN] if processes > 1 else ["-m"]
        return subprocess.run(
            [sys.executable, *launcher, "stacksl", *words], cwd=self.folder, env=env,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip


def sentences(done: Any) -> list[str]:
    """What the package itself said; the launcher tells of a failed process at length."""
    lines = done.stderr.splitlines()
    return [line.partition("stacksl: ")[2] for line in lines if "stacksl: " in line]


def story(path: Path) -> list[dict[str, Any]]:
    """The ledger's rows without numbers that the last bits of a score reach."""
    rows = []
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        told = [row for row in ledger.rows() if row.event not in NOTES]
        same = [row for row in chain(path) if row["event"] not in NOTES]
        for row, known in zip(told, same, strict=True):
            known["payload"] = None
            if row.event == "round":
                decision = row.decision()
                known["payload"] = (decision.status, decision.reason, decision.choice)
            rows.append(known)
    return rows


def expect_alike(path: Path, other: Path) -> None:
    """Both bought the same labels, never more than the budget, and learned the same from them.

    Sums over processes are grouped otherwise than sums over one, so weights differ in last bits,
    which some steps of AdamW at a rate of 0.01 make larger: 1e-3 where they are 0.1 to 1.
    """
    for each in (path, other):
        assert Run.open(each).status()["state"] == "finished"
        expect_sound(each, BUDGET)
    assert story(path) == story(other)
    assert Run.open(path).status()["asked"] == BUDGET
    for number in ("01", "02"):
        ours, theirs = (
            load_file(each / "adapters" / number / "adapter_model.safetensors")
            for each in (path, other)
        )
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            np.testing.assert_allclose(tensor, theirs[name], rtol=1e-3, atol=1e-3, err_msg=name)
    first, second = (json.loads((p / "facts.json").read_text())["test"] for p in (path, other))
    assert first["n"] == second["n"] == TESTED
    assert first["accuracy"] == pytest.approx(second["accuracy"], abs=1.5 / TESTED)  # a near tie


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """With a run that one process has played."""
    made = Jobs(tmp_path_factory.mktemp("processes"))
    done = made.run("one", 1)
    assert done.returncode == 0, done.stderr
    return made


def test_two_processes_buy_and_learn_what_one_does(jobs: Jobs) -> None:
    two = jobs.run("two", 2)
    assert two.returncode == 0, two.stderr
    recorded = [RunFolder(jobs.folder / name).resolved()["lm_processes"] for name in ("one", "two")]
    assert recorded == [1, 2]
    assert two.stdout.count("finished") == 1
    expect_alike(jobs.folder / "two", jobs.folder / "one")
    told = jobs.play(2, "status", "two", "--json")
    assert json.loads(told.stdout)["state"] == "finished", "a verb without a model is played once"


def test_an_error_is_one_sentence_of_each_and_ends_both(jobs: Jobs) -> None:
    done = jobs.run("wrong", 2, **{"update.learning_rate": 100, "lm.weight_decay": 1e38})
    assert done.returncode != 0
    assert done.stderr.count("not finite") == 2, done.stderr
    assert done.stderr.count("stacksl: process 2 of 2: training gave") == 1
    assert Run.open(jobs.folder / "wrong").status()["state"] == "failed"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_a_run_cut_off_in_a_refit_is_resumed(jobs: Jobs, end: str, processes: int) -> None:
    name = f"{end}-{processes}"
    path, cut = jobs.folder / name, jobs.run(name, 2, end=f"{end}:{SECOND_REFIT}")
    assert cut.returncode != 0
    assert Run.open(path).status()["state"] == ("interrupted" if end == "kill" else "stopped")
    assert len(sentences(cut)) == (0 if end == "kill" else 1)
    expect_sound(path, BUDGET)
    made = {each.name for each in (path / "adapters").iterdir() if each.name.isdigit()}
    assert made == {"01"}, "not in the second refit"
    again = jobs.play(processes, "resume", name, "--quiet")
    assert again.returncode == 0, again.stderr
    expect_alike(path, jobs.folder / "one")
