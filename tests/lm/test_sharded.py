"""A base divided between two processes: the numbers that two whole ones give.

This file is also the program that the processes run: `main` below.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate", reason="accelerate is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

LIMIT = 600  # seconds; processes that hang are a failure


class Both:
    """A target of shared calls: scores, states and a refit of the sample model."""

    def __init__(self, processes: Any) -> None:
        self.processes = processes

    def opened(self, shard: bool) -> Any:
        from stacksl.lm import LoraSettings, ModelChoices
        from stacksl.lm.worker import Worker

        choices = ModelChoices(
            model="sample", device="cpu", dtype="float32", batch_tokens=64, threads=1,
            lora=LoraSettings(rank=4, dropout=0.1), shard=shard,
        )  # fmt: skip
        worker = Worker(self.processes)
        worker.open(choices, 0)
        return worker, choices

    def play(self, shard: bool, folder: Path) -> dict[str, Any]:
        """Open a worker and use it; what it gave, and how many numbers of the base it held."""
        from stacksl.lm.scoring.paths import inner
        from stacksl.lm.sharded import card_bytes
        from stacksl.lm.worker import BLOCK

        worker, choices = self.opened(shard)
        blocks = inner(worker.adapter.model).model.layers
        largest = max(frozen(block) for block in blocks)
        rows = [row(n) for n in range(2 * BLOCK + 3)]  # three blocks: one process has two
        base = worker.states(rows)
        settings = replace(
            choices.training, objective="stacksl", reference="ema", epochs=1, batch_size=5,
            normalisation="pmi", temperature=1.0, learning_rate=1e-2, checkpointing=True,
        )  # fmt: skip
        found = worker.train([example(r) for r in rows[:11]], settings, 0, 1, None)
        if self.processes.rank == 0:
            worker.adapter.save(folder / f"shard-{shard}")
        held = frozen(worker.adapter.model)
        after = worker.sums(rows[:3])  # one block: the other process has nothing to do
        return {
            "base": [[part.tolist() for part in pair] for pair in base],
            "loss": [found.steps, found.loss, found.kl],
            "after": [each.tolist() for each in after],
            "held": held,
            "card": 0 if shard else card_bytes(inner(worker.adapter.model), 2) - 2 * largest,
            "rest": held - sum(frozen(block) for block in blocks),
        }

    def fail(self) -> None:
        """One process fails between passes, the other goes on with its own."""
        from stacksl.errors import RunError

        if self.processes.rank == 1:
            raise RunError("failed on purpose")
        self.processes.gather([])

    def lose(self) -> None:
        """One process fails within a pass, for whose weights the other waits."""
        from stacksl.errors import RunError
        from stacksl.lm.scoring.paths import inner

        def broken(*_: Any) -> None:
            raise RunError("failed in a pass")

        worker, _ = self.opened(True)
        if self.processes.rank == 1:
            inner(worker.adapter.model).model.layers[1].register_forward_pre_hook(broken)
        worker.states([row(n) for n in range(3)])


def frozen(module: Any) -> int:
    """Bytes of the base that this process holds."""
    return sum(
        getattr(each, "_local_tensor", each).nbytes
        for each in module.parameters()
        if not each.requires_grad
    )


def row(number: int) -> Any:
    from stacksl.lm import TokenItem

    options = tuple(tuple(range(9 + n, 10 + n + (number + n) % 3)) for n in range(2 + number % 3))
    prompt = tuple(range(5, 9 + number % 7))
    return TokenItem(f"{number}", prompt, options, tuple(map(len, options)))


def example(row: Any) -> Any:
    from stacksl.lm.training.objectives import Example

    return Example(row, replace(row, prompt=row.prompt[:1]), 1, tuple(range(len(row.options))), ())


def main(folder: Path, lost: bool) -> None:
    from stacksl.errors import RunError
    from stacksl.lm.distributed import connect, serve

    mine = connect("cpu")
    target = Both(mine)
    if mine.rank:
        serve(mine, target)
        return
    if lost:
        mine.together(target, "lose")
    found = {str(shard): mine.together(target, "play", shard, folder) for shard in (False, True)}
    try:
        mine.together(target, "fail")
    except RunError as error:
        found["said"] = str(error)
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    mine.close()


def played(*words: str) -> subprocess.CompletedProcess[str]:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return subprocess.run(
        [sys.executable, *launcher, __file__, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def assert_close(found: list[Any], wanted: list[Any]) -> None:
    import torch

    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_failure_within_a_pass_ends_all_processes(tmp_path: Path) -> None:
    done = played(str(tmp_path), "lost")
    assert done.returncode != 0
    assert "process 2: failed in a pass" in done.stderr


@pytest.mark.slow
def test_two_processes_compute_over_a_divided_base_what_they_do_over_two(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    done = played(str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    whole, divided = found["False"], found["True"]
    # gathered weights lie elsewhere in memory, on which the last bits of a product depend
    assert_close(divided["after"], whole["after"])
    for one, other in zip(divided["base"], whole["base"], strict=True):
        assert_close(one, other)
    assert divided["loss"] == pytest.approx(whole["loss"], rel=1e-4)
    assert divided["held"] < 0.55 * whole["held"]
    # embeddings are divided too, but whole in a pass; an odd number of rows is cut unevenly
    in_a_pass = divided["held"] + whole["rest"] - divided["rest"]
    assert whole["card"] == pytest.approx(in_a_pass, rel=0.02)
    one, other = (
        load_file(tmp_path / f"shard-{shard}" / "adapter_model.safetensors")
        for shard in (False, True)
    )
    assert one.keys() == other.keys()
    for name, wanted in one.items():
        torch.testing.assert_close(other[name], wanted, rtol=1e-3, atol=1e-4)
    assert found["said"] == "failed on purpose"


if __name__ == "__main__":
    main(Path(sys.argv[1]), lost="lost" in sys.argv)


def test_a_process_that_has_failed_does_not_train_on() -> None:
    """Another one is about to go backward; this one has nothing to do so from."""
    import torch

    from stacksl.errors import RunError
    from stacksl.lm.sharded import _BACKWARD, Lockstep

    lockstep = Lockstep(torch.nn.Linear(1, 1), lambda mine: max(mine, _BACKWARD))
    with pytest.raises(RunError, match="cannot train on"):
        lockstep.finish()
    assert lockstep.lost
