"""What stays in reach beside an adapter: the base, and a second adapter that follows the first."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl.lm import TokenItem
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.lora import LoraSettings

from .adapter_cases import SMALL, same, scores, train

torch = pytest.importorskip("torch")
pytest.importorskip("peft")


def test_the_base_stays_in_reach_beside_lora(open_model: Any, items: list[TokenItem]) -> None:
    loaded = open_model()
    before = scores(loaded.model, items)
    dropping = LoraSettings(rank=4, dropout=0.5)
    adapter = Adapter.attach(loaded, "lora", dropping, seed=1)
    train(adapter, items)
    moved = scores(adapter.model, items)
    adapter.model.train()
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)
    assert adapter.model.training
    assert all(parameter.requires_grad for parameter in adapter.parameters())
    adapter.model.eval()
    assert torch.equal(scores(adapter.model, items), moved)
    assert not torch.equal(moved, before)


def test_the_base_is_gone_once_full_fine_tuning_moved_it(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "full", seed=1)
    before = scores(adapter.model, items)
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)
    train(adapter, items, steps=1)
    with pytest.raises(SettingsError, match="the base model is gone"), adapter.base():
        pass
    adapter.reset()
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)


@pytest.mark.parametrize("decay", [0.0, 0.25, 0.9, 1.0])
def test_the_reference_moves_as_its_formula_says(
    open_model: Any, items: list[TokenItem], decay: float
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.add_reference()
    start = adapter.state()
    assert same(adapter.reference_state(), start)
    train(adapter, items)
    assert same(adapter.reference_state(), start), "it moves only when told"
    moved = adapter.state()
    adapter.move_reference(decay)
    for name, got in adapter.reference_state().items():
        expected = decay * start[name].double() + (1 - decay) * moved[name].double()
        assert torch.allclose(got.double(), expected, rtol=1e-6, atol=1e-8)
    assert same(adapter.state(), moved)
    if decay == 0:
        assert same(adapter.reference_state(), moved)


def test_the_reference_scores_as_the_policy_it_was_copied_from(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "lora", LoraSettings(rank=4, dropout=0.3), seed=1)
    adapter.add_reference()
    train(adapter, items)
    kept = scores(adapter.model, items)
    adapter.move_reference(0)
    train(adapter, items)
    now = scores(adapter.model, items)
    adapter.model.train()
    with adapter.reference():
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
    adapter.add_reference()
    train(adapter, items)
    adapter.move_reference(0.5)
    kept = adapter.reference_state()
    adapter.move_reference(0)
    adapter.restore_reference(kept)
    assert same(adapter.reference_state(), kept)
    adapter.reset()
    adapter.add_reference()
    assert same(adapter.reference_state(), adapter.state())


def test_a_reference_leaves_training_as_it_is(open_model: Any, items: list[TokenItem]) -> None:
    alone = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside.add_reference()
    for adapter in (alone, beside):
        train(adapter, items)
    assert same(alone.state(), beside.state())


def test_full_fine_tuning_has_no_moving_reference(open_model: Any) -> None:
    adapter = Adapter.attach(open_model(), "full", seed=1)
    with pytest.raises(SettingsError, match="a moving reference .* needs adapt 'lora'"):
        adapter.add_reference()
