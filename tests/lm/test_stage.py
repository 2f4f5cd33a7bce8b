"""One process's copy of the model: scores by fixed blocks, weights put back, threads set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.settings import LoraSettings, ModelChoices, TrainSettings
from stacksl.lm.training.refit import Example
from stacksl.lm.worker import Worker

from .conftest import make_items

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


def opened(folder: Path, **changes: Any) -> Worker:
    choices = ModelChoices(str(folder), device="cpu", lora=LoraSettings(rank=2))
    stage = Worker()
    stage.open(replace(choices, **changes), 0)
    return stage


def many(count: int) -> list[TokenItem]:
    made = make_items()
    return [replace(made[n % len(made)], id=f"i{n}") for n in range(count)]


class Half:
    """One of two processes; what the other found is not known here."""

    rank, size, device = 0, 2, None

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def share(self, count: int) -> list[int]:
        return [n for n in range(count) if n % 2 == self.rank]

    def gather(self, found: list[Any]) -> list[Any]:
        return found


def test_an_items_numbers_do_not_depend_on_the_number_of_processes(folder: Path) -> None:
    """Bit for bit: blocks are cut at the same places, whoever scores them."""
    stage, items = opened(folder), many(2 * BLOCK + 5)
    whole = stage.sums(items)
    assert len(whole) == len(items)
    for rank, blocks in ((0, (0, 2)), (1, (1,))):
        stage.processes = Half(rank)  # type: ignore[assignment]
        mine = stage.sums(items)
        expected = [each for b in blocks for each in whole[b * BLOCK : (b + 1) * BLOCK]]
        assert len(mine) == len(expected)
        assert all(np.array_equal(a, b) for a, b in zip(mine, expected, strict=True))


def examples() -> list[Example]:
    return [
        Example(item, None, n % len(item.options), tuple(range(len(item.options))),
                (0.0,) * len(item.options))
        for n, item in enumerate(many(6))
    ]  # fmt: skip


def test_every_refit_begins_at_the_initial_weights(folder: Path, tmp_path: Path) -> None:
    stage = opened(folder)
    start = stage.adapter.fingerprint()
    settings = TrainSettings(objective="ce", epochs=1, batch_size=3, learning_rate=1e-2)
    stage.train(examples(), settings, 0, 1)
    once = stage.adapter.fingerprint()
    assert once != start
    stage.adapter.save(tmp_path / "kept")
    stage.train(examples()[:3], settings, 0, 2)
    assert stage.adapter.fingerprint() != once
    stage.train(examples(), settings, 0, 1)
    assert stage.adapter.fingerprint() == once, "what was trained before left no trace"
    stage.reset()
    assert stage.adapter.fingerprint() == start
    stage.take(tmp_path / "kept")
    assert stage.adapter.fingerprint() == once


def test_threads_are_set_only_where_they_are_given(folder: Path, monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    opened(folder)
    assert asked == []
    opened(folder, threads=3)
    assert asked == [3]


def test_opening_reads_no_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read where a pass needs them; what was recorded of them is not computed again."""
    from stacksl.lm import loading

    base, read = opened(folder).base, []
    known = base.weights
    real = loading.read_weights
    monkeypatch.setattr(loading, "read_weights", lambda *a, **b: read.append(1) or real(*a, **b))
    stage = Worker()
    stage.open(ModelChoices(str(folder), device="cpu"), 0, known)
    stage.reset()
    assert (stage.moved, stage.verdict, stage.base.weights) == (False, "", known)
    assert not read
    assert stage.base.known is known
    stage.sums(many(1))
    assert (len(read), stage.likelihood.used) == (1, {"sums": "packed"})
    assert loading.identify(folder, base.config) == known


def test_an_adapter_takes_part_in_scoring_once_it_moved(folder: Path, tmp_path: Path) -> None:
    """Before, its layers would add zeros: not a bit changes without them."""
    stage, items = opened(folder), many(3)
    passes = list[str]()
    for name, module in stage.adapter.model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_hook(lambda *_: passes.append("A"))
    before = stage.states(items)
    assert not passes
    with torch.no_grad():
        read = stage.likelihood.sums_and_states(items)
    assert passes, "the layers are there"
    for (sums, states), *with_zeros in zip(before, *read, strict=True):
        assert np.array_equal(sums, with_zeros[0].numpy())
        assert np.array_equal(states, with_zeros[1].numpy())
    assert all(parameter.requires_grad for parameter in stage.adapter.parameters())
    passes.clear()
    stage.train(examples(), TrainSettings(learning_rate=2e-2), 0, 1)
    stage.adapter.save(tmp_path / "start")
    moved = stage.states(items)
    assert passes
    assert not np.array_equal(moved[0][0], before[0][0])
    stage.reset()
    assert np.array_equal(stage.states(items)[0][0], before[0][0])
    stage.take(tmp_path / "start")
    assert np.array_equal(stage.states(items)[0][0], moved[0][0])
    # an adapter that the run starts from is no zero
    other = opened(folder, lora=LoraSettings(rank=2, start=str(tmp_path / "start")))
    assert np.array_equal(other.states(items)[0][0], moved[0][0])
