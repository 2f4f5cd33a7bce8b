"""A refit shared by two processes, and one made again after it was cut off: as one process has it.

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

pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

LIMIT = 600  # seconds; processes that hang are a failure


class Refits:
    """A target of shared calls: one tiny model a process, the same on all."""

    def __init__(self, processes: Any) -> None:
        from conftest import make_items, random_model  # type: ignore[import-not-found]
        from training_cases import FAST, attached, made

        from stacksl.lm.scoring.likelihood import Likelihood

        self.processes = processes
        self.adapter = attached(random_model("qwen3"), dropout=0.2)
        self.settings = replace(FAST, batch_size=5, learning_rate=1e-3)
        self.examples = made(self.adapter, make_items(), self.settings, skips={2})
        # several micro-batches a step, so that both processes have some
        self.likelihood = Likelihood(self.adapter.model, batch_tokens=30)

    def refit(self, until: int) -> list[Any]:
        """Train from the start; give up after `until` steps. What came out."""
        from stacksl.errors import RunError
        from stacksl.lm.training.refit import train

        def tell(done: int, _total: int) -> None:
            if done == until:
                raise RunError("cut off")

        self.adapter.reset()
        found = train(
            self.adapter, self.likelihood, self.examples, self.settings,
            seed=0, key=1, progress=tell, processes=self.processes,
        )  # fmt: skip
        return self._result(found, self.adapter)

    def evenly(self) -> list[Any]:
        """Train without dropout on steps that are one batch, which the processes cut in two."""
        from conftest import make_items, random_model
        from training_cases import attached, made

        from stacksl.lm.scoring.likelihood import Likelihood
        from stacksl.lm.training.refit import train

        adapter, passes = attached(random_model("qwen3")), []
        examples = made(adapter, make_items(), self.settings, skips={2})
        adapter.model.get_input_embeddings().register_forward_hook(lambda *_: passes.append(1))
        likelihood = Likelihood(adapter.model, batch_tokens=4096)
        found = train(
            adapter, likelihood, examples, self.settings, seed=0, key=1, processes=self.processes
        )
        assert len(passes) >= found.steps, "a process had no work"
        return self._result(found, adapter)

    def _result(self, found: Any, adapter: Any) -> list[Any]:
        weights = {name: each.tolist() for name, each in adapter.state().items()}
        return [found.steps, found.loss, found.kl, found.tokens, weights]


def main(folder: Path) -> None:
    from stacksl.errors import RunError
    from stacksl.lm.distributed import current_processes

    mine = current_processes()
    target = Refits(mine)
    if mine.rank:
        mine.serve(target)
        return
    whole = mine.together(target, "refit", -1)
    said = ""
    if mine.size == 1:  # an error ends several
        try:
            target.refit(3)
        except RunError as error:
            said = str(error)
    again = mine.together(target, "refit", -1)
    even = mine.together(target, "evenly")
    found = {"size": mine.size, "whole": whole, "said": said, "again": again, "even": even}
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    mine.close()


def played(folder: Path, *launcher: str) -> dict[str, Any]:
    folder.mkdir()
    left = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    kept = {name: value for name, value in os.environ.items() if name not in left}
    done = subprocess.run(
        [sys.executable, *launcher, __file__, str(folder)],
        env={**kept, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    import torch

    one = played(tmp_path / "one")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    two = played(tmp_path / "two", *launcher)
    assert (one["size"], two["size"]) == (1, 2)
    assert one["said"] == "cut off"
    assert one["again"] == one["whole"]
    assert two["again"] == two["whole"]
    for kind in ("whole", "even"):
        (steps, loss, kl, tokens, weights), (*rest, others) = one[kind], two[kind]
        assert rest == [steps, pytest.approx(loss, rel=1e-4), pytest.approx(kl, rel=1e-2), tokens]
        for name, wanted in weights.items():
            torch.testing.assert_close(
                torch.tensor(others[name]), torch.tensor(wanted), rtol=1e-3, atol=1e-4
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
