"""A second adapter, which follows the first."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl.lm import TokenItem
from stacksl.lm.settings import LoraSettings
from stacksl.lm.training.adapters import Adapter

from .adapter_cases import SMALL, same, scores, train

torch = pytest.importorskip("torch")
pytest.importorskip("peft")


def weights_of(adapter: Adapter) -> dict[str, Any]:
    """Copies of the second adapter's tensors, under the first one's names."""
    named = adapter.model.named_parameters()
    return {
        name.replace(".reference.", ".default."): each.detach().clone()
        for name, each in named
        if ".reference." in name
    }


@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_the_reference_moves_as_its_formula_says(
    open_model: Any, items: list[TokenItem], decay: float
) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    second = adapter.reference()
    start = adapter.state()
    assert same(weights_of(adapter), start)
    train(adapter, items)
    assert same(weights_of(adapter), start), "it moves only when told"
    moved = adapter.state()
    second.move(decay)
    for name, got in weights_of(adapter).items():
        expected = decay * start[name].double() + (1 - decay) * moved[name].double()
        assert torch.allclose(got.double(), expected, rtol=1e-6, atol=1e-8)
    assert same(adapter.state(), moved)
    if decay == 0:
        assert same(weights_of(adapter), moved)


def test_the_reference_scores_as_the_policy_it_was_copied_from(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter(open_model(), LoraSettings(rank=4, dropout=0.3), seed=1)
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


def test_the_reference_begins_again_at_the_present_weights(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    second = adapter.reference()
    train(adapter, items)
    second.move(0.5)
    adapter.reset()
    adapter.reference()
    assert same(weights_of(adapter), adapter.state())
