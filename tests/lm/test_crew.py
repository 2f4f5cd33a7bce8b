"""The processes of one run: shared work, sums, an error on either of them, and a death.

This file is also the program that the processes run: `main` below.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import FeatureError
from stacksl.lm.distributed import ALONE, Distributed, blocks, current_processes

pytest.importorskip("torch")

LIMIT = 600  # seconds; processes that hang are a failure


class Target:
    """A target: the same lines on every rank."""

    def __init__(self, mine: Distributed) -> None:
        self.processes = mine
        self.calls = 0

    def squares(self, numbers: list[int]) -> dict[str, Any]:
        """Squares in blocks of 3, each with the rank that made it."""
        self.calls += 1
        pieces = blocks(len(numbers), 3)
        done = [
            (self.processes.rank, [numbers[i] ** 2 for i in pieces[piece]])
            for piece in self.processes.share(len(pieces))
        ]
        found = self.processes.gather(done)
        return {
            "ranks": [rank for rank, _ in found],
            "squares": [square for _, part in found for square in part],
        }

    def sums(self) -> list[Any]:
        """Sums of tensors of several shapes and kinds, and the same kinds afterwards."""
        import torch

        share = torch.tensor([1.0, 10.0]) * (self.processes.rank + 1)
        half = torch.full((2, 2), 0.5 + self.processes.rank, dtype=torch.bfloat16)
        turned = torch.arange(6.0).view(2, 3).t() + self.processes.rank  # not contiguous
        trained = torch.nn.Parameter(torch.tensor([2.0]))
        tensors = [share, half, turned, trained]
        self.processes.total(tensors)
        return [[str(each.dtype), each.tolist()] for each in tensors]

    def fail(self, rank: int) -> None:
        """Raise on one rank while the other goes on to exchange numbers."""
        if self.processes.rank == rank:
            raise FeatureError(f"rank {rank} cannot go on")
        self.processes.gather([0])

    def die(self) -> None:
        if self.processes.rank == 1:
            os._exit(9)
        self.processes.gather([0])


def outcome(target: Target, method: str, *args: Any) -> list[str]:
    """The class and the sentence that a shared call ends with."""
    try:
        target.processes.together(target, method, *args)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def facts(target: Target) -> dict[str, Any]:
    together = target.processes.together
    return {
        "size": target.processes.size,
        "device": target.processes.device,
        "squares": together(target, "squares", list(range(14))),
        "sums": together(target, "sums"),
        "after": together(target, "squares", [1, 2, 3, 4]),
        "first": outcome(target, "fail", 0),
    }


def play(job: str, folder: Path) -> None:
    """What one rank does."""
    mine = current_processes()
    target = Target(mine)
    if mine.rank:
        mine.serve(target)
    else:
        calls = {"die": ("die",), "fail": ("fail", 1)}
        found = {"error": outcome(target, *calls[job])} if job in calls else facts(target)
        mine.close()
        (folder / f"{job}.json").write_text(json.dumps(found))
    (folder / f"{job}-{mine.rank}").write_text(str(target.calls))


def fork(job: str, rank: int, port: int, folder: Path) -> int:
    """A process of two, as torchrun would start it, with its streams in files."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{job}-{rank}.{name}", os.O_CREAT | os.O_WRONLY), number)
        place = {"WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        play(job, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(folder: Path, *ports: str) -> None:
    """Every job by two processes; they are forked, so that the libraries are loaded once."""
    import torch  # noqa: F401

    codes = {}
    for job, port in zip(("facts", "die", "fail"), ports, strict=True):
        pids = [fork(job, rank, int(port), folder) for rank in (0, 1)]
        codes[job] = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    (folder / "codes.json").write_text(json.dumps(codes))


@pytest.fixture(scope="module")
def jobs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the jobs left their files."""
    from ..ports import reserved_port  # not where this file is the program

    folder = tmp_path_factory.mktemp("processes")
    with reserved_port() as one, reserved_port() as two, reserved_port() as three:
        words = [sys.executable, __file__, str(folder), str(one), str(two), str(three)]
        started = subprocess.Popen(words, env=_environment(), start_new_session=True)
        try:
            assert started.wait(timeout=LIMIT) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)  # what hangs of it
    return folder


@pytest.fixture(scope="module")
def job_facts(jobs_folder: Path) -> dict[str, Any]:
    said = {name: (jobs_folder / f"facts-{name}").read_text() for name in ("0.err", "1.err")}
    assert json.loads((jobs_folder / "codes.json").read_text())["facts"] == [0, 0], said
    assert not (jobs_folder / "facts-0.out").read_text()
    found = json.loads((jobs_folder / "facts.json").read_text())
    found["stderr"] = "".join(said.values())
    found["calls"] = [(jobs_folder / f"facts-{rank}").read_text() for rank in (0, 1)]
    return dict(found)


def test_two_processes_take_turns_at_the_blocks(job_facts: dict[str, Any]) -> None:
    assert job_facts["size"] == 2
    assert job_facts["device"] == "cpu"
    assert job_facts["squares"] == {"ranks": [0, 1, 0, 1, 0], "squares": [n * n for n in range(14)]}
    assert job_facts["calls"] == ["2", "2"]


def test_tensors_are_summed_in_place(job_facts: dict[str, Any]) -> None:
    assert job_facts["sums"] == [
        ["torch.float32", [3.0, 30.0]],
        ["torch.bfloat16", [[2.0, 2.0], [2.0, 2.0]]],
        ["torch.float32", [[1.0, 7.0], [3.0, 9.0], [5.0, 11.0]]],
        ["torch.float32", [4.0]],
    ]


def test_calls_go_on_and_end_quietly_with_the_first(job_facts: dict[str, Any]) -> None:
    assert job_facts["after"] == {"ranks": [0, 1], "squares": [1, 4, 9, 16]}
    assert job_facts["first"] == ["FeatureError", "rank 0 cannot go on"]
    assert "Traceback" not in job_facts["stderr"]


def test_a_process_that_fails_says_why_and_ends_the_others(jobs_folder: Path) -> None:
    assert json.loads((jobs_folder / "codes.json").read_text())["fail"] == [0, 1]
    assert "FeatureError: rank 1 cannot go on" in (jobs_folder / "fail-1.err").read_text()
    _, sentence = json.loads((jobs_folder / "fail.json").read_text())["error"]
    assert sentence.startswith("another process of this run has ended")


def test_a_process_that_dies_ends_the_others_with_a_sentence(jobs_folder: Path) -> None:
    assert json.loads((jobs_folder / "codes.json").read_text())["die"] == [0, 9]
    _, sentence = json.loads((jobs_folder / "die.json").read_text())["error"]
    assert sentence.startswith("another process of this run has ended")


@pytest.mark.parametrize("given", [{}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_one_process_is_alone_and_loads_no_torch(given: dict[str, str]) -> None:
    code = (
        "import sys; from stacksl.lm.distributed import ALONE, current_processes; "
        "assert current_processes() is ALONE and ALONE.size == 1; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=_environment() | given, check=True)


def test_alone_shares_everything() -> None:
    target = Target(ALONE)
    found = ALONE.together(target, "squares", list(range(14)))
    assert found == {"ranks": [0] * 5, "squares": [n * n for n in range(14)]}
    assert ALONE.gather(["a"]) == ["a"]
    with pytest.raises(FeatureError):
        ALONE.together(target, "fail", 0)
    ALONE.close()
    assert list(ALONE.share(2)) == [0, 1]


def _environment() -> dict[str, str]:
    left = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    kept = {name: value for name, value in os.environ.items() if name not in left}
    return {**kept, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
