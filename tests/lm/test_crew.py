"""The processes of one run: shared work, sums, errors on any of them, and a death.

This file is also the program that the processes run: `main` below.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import FeatureError, RunError, SettingsError, StackslError
from stacksl.lm.distributed import ALONE, Crew, blocks, crew, serve

pytest.importorskip("accelerate")

LIMIT = 120  # seconds; a crew that hangs is a failure
PIECES = 5


class Hands:
    """A target: the same lines on every rank."""

    def __init__(self, mine: Crew) -> None:
        self.crew = mine
        self.calls = 0

    def squares(self, numbers: list[int]) -> dict[str, Any]:
        """Squares in blocks of 3, each with the rank that made it."""
        self.calls += 1
        pieces = blocks(len(numbers), 3)
        done = [
            (self.crew.rank, [numbers[i] ** 2 for i in pieces[piece]])
            for piece in self.crew.share(len(pieces))
        ]
        found = self.crew.gather(done)
        return {
            "ranks": [rank for rank, _ in found],
            "squares": [square for _, part in found for square in part],
        }

    def sums(self) -> list[Any]:
        """Sums of tensors of several shapes and kinds, and the same kinds afterwards."""
        import torch

        share = torch.tensor([1.0, 10.0]) * (self.crew.rank + 1)
        half = torch.full((2, 2), 0.5 + self.crew.rank, dtype=torch.bfloat16)
        turned = torch.arange(6.0).view(2, 3).t() + self.crew.rank  # not contiguous
        trained = torch.nn.Parameter(torch.tensor([2.0]))
        tensors = [share, half, turned, trained]
        self.crew.total(tensors)
        self.crew.total([])
        return [[str(each.dtype), each.tolist()] for each in tensors]

    def nested(self) -> int:
        """A shared call inside a shared call."""
        found = self.crew.together(self, "seat")
        return int(sum(self.crew.gather([found])))

    def seat(self) -> int:
        return self.crew.rank + 1

    def fail(self, ranks: list[int], kind: str, midway: bool) -> None:
        """Raise on some ranks while the others go on to exchange numbers."""
        if midway:
            self.crew.gather([0])
        if self.crew.rank in ranks:
            kinds = {"features": FeatureError, "settings": SettingsError, "bug": KeyError}
            raise kinds[kind](f"rank {self.crew.rank} cannot go on")
        self.sums()

    def stubborn(self) -> None:
        """On rank 0, swallow the other's error and try to exchange numbers all the same."""
        try:
            self.fail([1], "features", midway=True)
        except StackslError:
            if self.crew.rank:
                raise
            self.crew.gather([1])

    def die(self) -> None:
        if self.crew.rank == 1:
            os._exit(9)
        self.crew.gather([0])


def told(hands: Hands, method: str, *args: Any) -> list[str]:
    """The class and the sentence that a shared call ends with."""
    try:
        hands.crew.together(hands, method, *args)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def facts(hands: Hands) -> dict[str, Any]:
    together = hands.crew.together
    return {
        "size": hands.crew.size,
        "device": hands.crew.device,
        "squares": together(hands, "squares", list(range(14))),
        "sums": together(hands, "sums"),
        "nested": together(hands, "nested"),
        "worker": told(hands, "fail", [1], "features", False),
        "midway": told(hands, "fail", [1], "settings", True),
        "first": told(hands, "fail", [0], "settings", False),
        "both": told(hands, "fail", [0, 1], "bug", True),
        "bug": told(hands, "fail", [1], "bug", False),
        "unknown": told(hands, "nowhere"),
        "stubborn": told(hands, "stubborn"),
        "after": together(hands, "squares", [1, 2, 3, 4]),
    }


def main(job: str, folder: Path) -> None:
    mine = crew("cpu")
    hands = Hands(mine)
    if mine.rank:
        serve(mine, hands)
    else:
        found: dict[str, Any] = {}
        found.update(facts(hands) if job == "facts" else {"error": told(hands, "die")})
        mine.close()
        found["alone"] = hands.squares([5, 6, 7, 8])
        (folder / "facts.json").write_text(json.dumps(found))
    (folder / f"rank-{mine.rank}").write_text(str(hands.calls))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("crew")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    started = _start([*launcher, __file__, "facts", str(folder)], {})
    stdout, stderr = _end(started)
    assert started.returncode == 0, stderr
    assert stdout == ""
    found = json.loads((folder / "facts.json").read_text())
    found["stderr"] = stderr
    found["calls"] = [(folder / f"rank-{rank}").read_text() for rank in (0, 1)]
    return dict(found)


def test_two_processes_take_turns_at_the_blocks(found: dict[str, Any]) -> None:
    assert found["size"] == 2
    assert found["device"] == "cpu"
    assert found["squares"] == {
        "ranks": [0, 1, 0, 1, 0],
        "squares": [n * n for n in range(14)],
    }
    assert found["calls"] == ["3", "2"]  # the last one is rank 0's own, after the crew was closed


def test_tensors_are_summed_in_place(found: dict[str, Any]) -> None:
    assert found["sums"] == [
        ["torch.float32", [3.0, 30.0]],
        ["torch.bfloat16", [[2.0, 2.0], [2.0, 2.0]]],
        ["torch.float32", [[1.0, 7.0], [3.0, 9.0], [5.0, 11.0]]],
        ["torch.float32", [4.0]],
    ]


def test_a_shared_call_inside_another_is_a_plain_call(found: dict[str, Any]) -> None:
    assert found["nested"] == 3


@pytest.mark.parametrize(
    ("case", "kind", "sentence"),
    [
        ("worker", "FeatureError", "rank 1 cannot go on"),
        ("midway", "SettingsError", "rank 1 cannot go on"),
        ("first", "SettingsError", "rank 0 cannot go on"),
        ("both", "KeyError", "'rank 0 cannot go on'"),
        ("bug", "StackslError", "process 2 of 2 failed: KeyError: 'rank 1 cannot go on'"),
        ("unknown", "AttributeError", "'Hands' object has no attribute 'nowhere'"),
        ("stubborn", "RunError", "the crew was left after a failed call: start the run again"),
    ],
)
def test_an_error_on_any_rank_comes_out_on_the_first(
    found: dict[str, Any], case: str, kind: str, sentence: str
) -> None:
    assert found[case] == [kind, sentence]


def test_the_crew_goes_on_after_errors_and_ends_quietly(found: dict[str, Any]) -> None:
    assert found["after"] == {"ranks": [0, 1], "squares": [1, 4, 9, 16]}
    assert "Traceback" not in found["stderr"]


def test_a_closed_crew_is_alone(found: dict[str, Any]) -> None:
    assert found["alone"] == {"ranks": [0, 0], "squares": [25, 36, 49, 64]}


def test_a_process_that_dies_ends_the_others_with_a_sentence(tmp_path: Path) -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    started = [
        _start([__file__, "die", str(tmp_path)], {**place, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    said = [_end(process)[1] for process in started]
    assert [process.returncode for process in started] == [0, 9], said
    kind, sentence = json.loads((tmp_path / "facts.json").read_text())["error"]
    assert kind == RunError.__name__
    assert sentence.startswith("another process of this run has ended")


def test_one_process_is_alone_and_loads_no_torch() -> None:
    code = (
        "import sys; from stacksl.lm.distributed import ALONE, crew; "
        "assert crew() is ALONE and ALONE.size == 1; "
        "assert not {'torch', 'accelerate'} & set(sys.modules)"
    )
    for place in ({}, {"RANK": "0", "WORLD_SIZE": "1"}):
        subprocess.run([sys.executable, "-c", code], env={**_environment(), **place}, check=True)


def test_alone_shares_everything() -> None:
    hands = Hands(ALONE)
    found = ALONE.together(hands, "squares", list(range(14)))
    assert found == {"ranks": [0] * PIECES, "squares": [n * n for n in range(14)]}
    assert ALONE.receive() is None
    assert ALONE.gather(["a"]) == ["a"]
    with pytest.raises(KeyError):
        ALONE.together(hands, "fail", [0], "bug", False)
    ALONE.close()
    assert list(ALONE.share(2)) == [0, 1]


def test_alone_leaves_tensors_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3)
    ALONE.total([tensor])
    assert tensor.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("n", "size"), [(0, 3), (1, 3), (3, 3), (14, 3), (5, 1)])
def test_blocks_cover_everything_once(n: int, size: int) -> None:
    cut = blocks(n, size)
    assert [i for block in cut for i in block] == list(range(n))
    assert all(len(block) == size for block in cut[:-1])


def _start(arguments: list[str], place: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**_environment(), **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said on both streams; it is ended where it hangs."""
    try:
        return process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its children then, and kills them half a minute later
        process.communicate()
        raise


def _environment() -> dict[str, str]:
    left = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    kept = {name: value for name, value in os.environ.items() if name not in left}
    return {**kept, "OMP_NUM_THREADS": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
