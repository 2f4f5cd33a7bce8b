"""Pooled states: every path gives those of a plain pass, an option of one token has its own."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl.errors import FeatureError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood

from .plain import by, naive

torch = pytest.importorskip("torch")

BATCHES = {"an item a batch": 1, "some items a batch": 90, "all in one batch": 2048}


def by_hand(model: Any, item: TokenItem) -> Any:
    """The definition, from the hidden states that the model itself hands out."""
    found = []
    for option in item.options:
        ids = torch.tensor([[*item.prompt, *option]])
        with torch.no_grad():
            states = model(ids, output_hidden_states=True).hidden_states[-1][0]
        found.append(states[len(item.prompt) :].mean(0))
    return torch.stack(found)


def assert_near(got: list[Any], expected: list[Any], within: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max()) <= within * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("batch_tokens", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("kind", "path"), [("qwen3", "packed"), ("llama", "padded")])
def test_states_and_sums_are_those_of_a_plain_pass(
    make_model: Any, kind: str, path: str, batch_tokens: int, items: list[TokenItem]
) -> None:
    model = make_model(kind)
    likelihood = by(path, model, batch_tokens=batch_tokens)
    sums, states = likelihood.sums_and_states(items)
    assert likelihood.used == {"states": path}
    assert_near(states, [by_hand(model, item) for item in items])
    with torch.no_grad():
        assert_near(sums, naive(model, items))
        assert_near(sums, likelihood.sums(items))
    assert all(each.dtype == torch.float32 and not each.requires_grad for each in [*sums, *states])


@pytest.mark.parametrize(("kind", "path"), [("mamba", "padded"), ("opt", "packed")])
def test_recurrent_states_are_padded_and_a_decoder_of_its_own_is_read(
    make_model: Any, kind: str, path: str, items: list[TokenItem]
) -> None:
    model = make_model(kind)
    likelihood = Likelihood(model)
    sums, states = likelihood.sums_and_states(items)
    assert likelihood.used == {"states": path}
    assert_near(states, [by_hand(model, item) for item in items], 5e-5)
    with torch.no_grad():
        assert_near(sums, naive(model, items), 5e-5)


def test_a_model_without_hidden_states_is_refused(make_model: Any, items: list[TokenItem]) -> None:
    model = make_model("qwen3")
    type(model).base_model_prefix, kept = "none", type(model).base_model_prefix
    try:
        with pytest.raises(FeatureError, match="gives its last hidden state"):
            Likelihood(model).sums_and_states(items)
    finally:
        type(model).base_model_prefix = kept
