"""A second adapter, which follows the first."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl.lm import TokenItem
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.lora import LoraSettings

from .adapter_cases import SMALL, same, scores, train

torch = pytest.importorskip("torch")
pytest.importorskip("peft")


@pytest.mark.parametrize("decay", [0.0, 0.25, 0.9, 1.0])
def test_the_reference_moves_as_its_formula_says(
    open_model: Any, items: list[TokenItem], decay: float
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    second = adapter.reference()
    start = adapter.state()
    assert same(second.state(), start)
    train(adapter, items)
    assert same(second.state(), start), "it moves only when told"
    moved = adapter.state()
    second.move(decay)
    for name, got in second.state().items():
        expected = decay * start[name].double() + (1 - decay) * moved[name].double()
        assert torch.allclose(got.double(), expected, rtol=1e-6, atol=1e-8)
    assert same(adapter.state(), moved)
    if decay == 0:
        assert same(second.state(), moved)


def test_the_reference_scores_as_the_policy_it_was_copied_from(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "lora", LoraSettings(rank=4, dropout=0.3), seed=1)
    second = adapter.reference()
    train(adapter, items)
    kept = scores(adapter.model, items)
    second.move(0)
    train(adapter, items)
    now = scores(adapter.model, items)
    adapter.model.train()
    with second.active():
        assert not torch.is_grad_enabled()
        assert torch.equal(scores(adapter.model, items), kept)
    adapter.model.eval()
    assert torch.equal(scores(adapter.model, items), now)
    trainable = {id(p) for p in adapter.model.parameters() if p.requires_grad}
    assert trainable == {id(p) for p in adapter.parameters()}


def test_the_reference_comes_back_from_its_state_and_begins_anew(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    second = adapter.reference()
    train(adapter, items)
    second.move(0.5)
    kept = second.state()
    second.move(0)
    second.restore(kept)
    assert same(second.state(), kept)
    adapter.reset()
    assert same(adapter.reference().state(), adapter.state())


def test_a_reference_leaves_training_as_it_is(open_model: Any, items: list[TokenItem]) -> None:
    alone = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside.reference()
    for adapter in (alone, beside):
        train(adapter, items)
    assert same(alone.state(), beside.state())
