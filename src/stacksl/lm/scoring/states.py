"""The state a model is in over each option's text, beside the option's log-likelihood.

The pooled state of an option is the mean of the model's last hidden states, those behind its last
norm, over the option's tokens; in protocol `letter` over the tokens of the option's text inside the
prompt (`TokenItem.spans`). The three ways are those of `paths`, except that every option's last
token is read too: an option of one token would have no state otherwise. The states are taken from
the decoder while it makes the logits, so no logits are made for their sake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from stacksl.errors import FeatureError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import Ints, pack
from stacksl.lm.scoring.paths import (
    Items,
    Tensor,
    chunks,
    inner,
    load_torch,
    naive,
    packed_batch,
    padded_batch,
    split,
)

Read: TypeAlias = tuple[Tensor, Tensor]
"""What is read of an item: log p(option | prompt) (k,) and the pooled states (k, hidden)."""


def packed_states(model: Any, items: Items) -> list[Read]:
    """One forward pass over packed rows of P + Σ L_i columns; see `paths.packed`.

    Raises:
        SettingsError: the model's attention is not `sdpa`.
        FeatureError: the model's decoder gives no hidden states.
    """
    batch = pack(items, with_last=True)
    with _watched(model) as seen:
        sums = packed_batch(model, batch)
    spans = [
        None if item.spans is None else np.arange(*item.spans[option])
        for item in items
        for option in range(len(item.options))
    ]
    columns = [
        batch.carried[option][batch.valid[option]] if span is None else batch.heads[option] + span
        for option, span in enumerate(spans)
    ]
    states = _pooled(seen[0], list(zip(batch.rows.tolist(), columns, strict=True)))
    return list(zip(sums, split(states, batch.counts), strict=True))


def padded_states(model: Any, items: Items, *, batch_tokens: int = 2048) -> list[Read]:
    """Every option whole behind its own copy of the prompt, in batches; see `paths.padded`."""
    torch = load_torch()
    pairs = [(item.prompt, option) for item in items for option in item.options]
    columns = [each for item in items for each in _columns(item)]
    sums, states, done = [], [], 0
    for chunk in chunks(pairs, batch_tokens):
        with _watched(model) as seen:
            sums.append(padded_batch(model, chunk, with_last=True))
        own = columns[done : done + len(chunk)]
        states.append(_pooled(seen[0], list(enumerate(own))))
        done += len(chunk)
    counts = tuple(len(item.options) for item in items)
    both = (split(torch.cat(each), counts) for each in (sums, states))
    return list(zip(*both, strict=True))


def naive_states(
    model: Any, items: Items, *, widened: bool = False, masked: bool = False
) -> list[Read]:
    """One plain forward pass an option: the reference the other ways are held to; see `naive`."""
    torch = load_torch()
    found = []
    for item in items:
        with _watched(model) as seen:
            sums = naive(model, [item], widened=widened, masked=masked)[0]
        pairs = zip(seen, _columns(item), strict=True)
        found.append((sums, torch.cat([_pooled(state, [(0, own)]) for state, own in pairs])))
    return found


def _columns(item: TokenItem) -> list[Ints]:
    """Where each option's text stands in its own sequence of prompt and option."""
    if item.spans is not None:
        return [np.arange(*span) for span in item.spans]
    start = len(item.prompt)
    return [np.arange(start, start + len(option)) for option in item.options]


def _pooled(states: Tensor, places: Sequence[tuple[int, Ints]]) -> Tensor:
    """Means (n, hidden) in float32 of states (R, S, hidden) over columns of a row each."""
    torch = load_torch()
    longest = max(len(columns) for _, columns in places)
    index = np.zeros((len(places), longest), np.int64)
    weights = np.zeros((len(places), longest), np.float32)
    for number, (row, columns) in enumerate(places):
        index[number, : len(columns)] = row * states.shape[1] + columns
        weights[number, : len(columns)] = 1.0
    chosen = states.flatten(0, 1)[torch.from_numpy(index).to(states.device)].float()
    kept = torch.from_numpy(weights).to(states.device)
    return (chosen * kept[:, :, None]).sum(1) / kept.sum(1, keepdim=True)


@contextmanager
def _watched(model: Any) -> Iterator[list[Tensor]]:
    """The decoder's last hidden states (R, S, hidden) of every pass made within."""
    seen: list[Tensor] = []

    def take(module: Any, given: Any, out: Any) -> None:
        state = getattr(out, "last_hidden_state", None)
        if state is None:
            raise FeatureError(
                f"features need a decoder that gives its last hidden state, and "
                f"{type(module).__name__} gives none: take a causal language model of transformers"
            )
        seen.append(state)

    handle = inner(model).base_model.register_forward_hook(take)
    try:
        yield seen
    finally:
        handle.remove()
