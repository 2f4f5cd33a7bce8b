"""Two ways to the same numbers: what a model says of each option of an item.

Each takes a causal model of transformers and items, and reads log p(option | prompt), summed over
the option's tokens and, where `states` are asked for, the state that the model is in over the
option's text: the mean of its last hidden states, those behind its last norm, over the option's
tokens. For states every option's last token is read too, since an option of one token would have
none otherwise. They are taken from the decoder while it makes the logits, so no logits are made for
their sake.

Logits are cast to float32 before the log-softmax, in every dtype of the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np

from stacksl.errors import FeatureError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import BATCH_TOKENS, Bools, Ints, pack
from stacksl.telemetry import load_library

Tensor: TypeAlias = Any
Items: TypeAlias = Sequence[TokenItem]
Pair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # a prompt and one of its options
Read: TypeAlias = tuple[Tensor, Tensor | None]
"""What is read of an item: Σ log p (k,), and states (k, hidden) if asked for, both in float32."""

Path: TypeAlias = Literal["packed", "padded"]

MASKED = ("sdpa", "eager")
"""Attentions that take a mask of our own; FlashAttention takes none."""


def load_torch() -> Any:
    """The library torch; see `load_library`."""
    return load_library("torch", "scoring with a language model", "lm")


def sent(values: Any, device: Any) -> Tensor:
    """An array or a list of numbers as a tensor on a device, which the host does not wait for."""
    torch = load_torch()
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return tensor.to(device, non_blocking=True)


def packed(model: Any, items: Items, *, states: bool = False) -> list[Read]:
    """One forward pass over packed rows under a tree mask; see `packing`.

    The model's attention is one that is `MASKED`.

    Raises:
        FeatureError: the model's decoder gives no hidden states.
    """
    device, batch = model.device, pack(items, with_last=states)
    logits, hidden = _forward(
        model,
        sent(batch.ids, device),
        states=states,
        position_ids=sent(batch.positions, device),
        attention_mask=_mask(model, batch.mask[:, None]),
        logits_to_keep=sent(batch.keep, device),
    )
    flat = batch.rows[:, None] * len(batch.keep) + batch.slots
    sums = _sums(logits, flat, batch.targets, batch.valid)
    spans = list(zip(batch.rows.tolist(), batch.texts, strict=True))
    return _by_item(sums, _pooled(hidden, spans) if states else None, batch.counts)


def padded(
    model: Any, items: Items, *, states: bool = False, batch_tokens: int = BATCH_TOKENS
) -> list[Read]:
    """Every option behind its own copy of the prompt, padded on the right, in batches.

    No mask is given: in a causal model of any kind, what stands to the right reaches nothing.

    Args:
        batch_tokens: sequences x longest sequence of a batch is at most this.

    Raises:
        FeatureError: the model's decoder gives no hidden states.
    """
    torch = load_torch()
    pairs = [(item.prompt, option) for item in items for option in item.options]
    sums, pooled = [], []
    for chunk in _chunks(pairs, batch_tokens):
        chunk_sums, hidden = _padded_batch(model, chunk, states)
        sums.append(chunk_sums)
        if states:
            ends = [(len(prompt), len(prompt) + len(option)) for prompt, option in chunk]
            pooled.append(_pooled(hidden, [(n, np.arange(*end)) for n, end in enumerate(ends)]))
    counts = tuple(len(item.options) for item in items)
    return _by_item(torch.cat(sums), torch.cat(pooled) if states else None, counts)


def attention(model: Any) -> str:
    """The name of the attention the model runs with."""
    return str(getattr(inner(model).config, "_attn_implementation", None))


def accepts(model: Any, argument: str) -> bool:
    """Whether the model's forward pass takes an `argument` by name."""
    return argument in inspect.signature(inner(model).forward).parameters


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model without dropout; afterwards every module is in its former mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def inner(model: Any) -> Any:
    """The model inside an adapter, or the model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _mask(model: Any, sees: Bools) -> Tensor:
    """What each token sees as the model's attention takes it; `eager` adds it to the scores."""
    torch, mask = load_torch(), sent(sees, model.device)
    if attention(model) != "eager":
        return mask
    hidden = torch.finfo(model.dtype).min
    return torch.zeros_like(mask, dtype=model.dtype).masked_fill(~mask, hidden)


def _forward(model: Any, ids: Tensor, *, states: bool, **keywords: Any) -> Read:
    """The logits of one pass and, if asked for, the decoder's last hidden states (R, S, hidden)."""
    states_seen: list[Tensor] = []

    def take(module: Any, inputs: Any, output: Any) -> None:
        state = getattr(output, "last_hidden_state", None)
        states_seen.extend(() if state is None else (state,))

    network = inner(model)
    decoders = {network.base_model, network.get_decoder()} - {network}  # OPT calls the second alone
    handles = [decoder.register_forward_hook(take) for decoder in decoders if states]
    try:
        logits = model(input_ids=ids, use_cache=False, **keywords).logits
    finally:
        for handle in handles:
            handle.remove()
    if states and not states_seen:
        raise FeatureError(
            "features need a decoder that gives its last hidden state, and"
            f" {type(network).__name__} has none: take a causal language model of transformers"
        )
    return logits, states_seen[0] if states else None


def _padded_batch(model: Any, pairs: list[Pair], states: bool) -> Read:
    """Σ log p (n,) of n options in one padded pass; its hidden states if asked for."""
    torch = load_torch()
    stop = None if states else -1
    ids, _, _ = _filled([(*prompt, *option[:stop]) for prompt, option in pairs])
    offset, keywords = min(len(prompt) for prompt, _ in pairs) - 1, {}
    if accepts(model, "logits_to_keep"):
        keywords["logits_to_keep"] = torch.arange(offset, ids.shape[1], device=model.device)
    logits, hidden = _forward(model, sent(ids, model.device), states=states, **keywords)
    offset = ids.shape[1] - logits.shape[1]  # 0 where the model gives all logits
    targets, valid, steps = _filled([option for _, option in pairs])
    starts = np.array([len(prompt) - 1 - offset for prompt, _ in pairs])
    flat = np.arange(len(pairs))[:, None] * logits.shape[1] + starts[:, None] + steps
    return _sums(logits, flat, targets, valid), hidden


def _filled(sequences: Sequence[tuple[int, ...]]) -> tuple[Ints, Bools, Ints]:
    """Sequences as an array padded on the right, which entries are theirs, and each one's step."""
    longest = max(map(len, sequences))
    ids = np.zeros((len(sequences), longest), np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    steps = np.broadcast_to(np.arange(longest), ids.shape)
    valid = steps < np.array([len(sequence) for sequence in sequences])[:, None]
    return ids, valid, steps


def _chunks(pairs: list[Pair], batch_tokens: int) -> Iterator[list[Pair]]:
    """The pairs in order, in groups of sequences x longest sequence at most `batch_tokens`."""
    chunk: list[Pair] = []
    longest = 0
    for pair in pairs:
        length = len(pair[0]) + len(pair[1]) - 1
        if chunk and (len(chunk) + 1) * max(longest, length) > batch_tokens:
            yield chunk
            chunk, longest = [], 0
        chunk.append(pair)
        longest = max(longest, length)
    yield chunk


def _sums(logits: Tensor, flat: Ints, targets: Ints, valid: Bools) -> Tensor:
    """Σ log softmax(logits)[target] over each option's tokens, shape (n,).

    Args:
        logits: (R, C, V).
        flat: (n, L) which of the R x C rows of logits predicts each token.
        targets: (n, L) the tokens.
        valid: (n, L) which of them there are.
    """
    needed, ranks = np.unique(flat[valid], return_inverse=True)
    device = logits.device
    table = logits.flatten(0, 1)
    if len(needed) < len(table):
        table = table.index_select(0, sent(needed, device))
    logs = table.float().log_softmax(-1)
    columns = np.zeros(valid.shape, np.int64)  # any one where the option has no token
    columns[valid] = ranks
    target_logs = logs[sent(columns, device), sent(np.where(valid, targets, 0), device)]
    return target_logs.masked_fill(sent(~valid, device), 0.0).sum(-1)


def _pooled(hidden: Tensor, spans: Sequence[tuple[int, Ints]]) -> Tensor:
    """Means (n, hidden) in float32 of states (R, S, hidden) over columns of a row each."""
    longest = max(len(columns) for _, columns in spans)
    index = np.zeros((len(spans), longest), np.int64)
    weights = np.zeros((len(spans), longest), np.float32)
    for number, (row, columns) in enumerate(spans):
        index[number, : len(columns)] = row * hidden.shape[1] + columns
        weights[number, : len(columns)] = 1.0
    states = hidden.flatten(0, 1)[sent(index, hidden.device)].float()
    shares = sent(weights, hidden.device)
    return (states * shares[:, :, None]).sum(1) / shares.sum(1, keepdim=True)


def _by_item(sums: Tensor, states: Tensor | None, counts: tuple[int, ...]) -> list[Read]:
    """What was read of all options, one entry per item."""
    sizes = list(counts)
    pooled = [None] * len(sizes) if states is None else states.split(sizes)
    return list(zip(sums.split(sizes), pooled, strict=True))
