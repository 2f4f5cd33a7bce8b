"""Three ways to the same numbers: log p(option | prompt), summed over the option's tokens.

Each takes a causal model of transformers and items, and gives one float32 tensor (k,) an item.
Logits are cast to float32 before the log-softmax, in every dtype of the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import MissingExtra, SettingsError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import Ints, Packed, pack
from stacksl.telemetry import refuse_telemetry

Tensor: TypeAlias = Any
Items: TypeAlias = Sequence[TokenItem]
Pair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # a prompt and one of its options

_BEHIND = 8  # tokens behind an option in a widened pass


def load_torch() -> Any:
    """torch, which this module imports nowhere else.

    Raises:
        MissingExtra: it is not installed.
    """
    refuse_telemetry()
    try:
        import torch
    except ImportError:
        raise MissingExtra.of("scoring with a language model", "lm") from None
    return torch


def packed(model: Any, items: Items) -> list[Tensor]:
    """One forward pass over packed rows under a tree mask; see `packing` and `packed_batch`."""
    return packed_batch(model, pack(items))


def packed_batch(model: Any, batch: Packed) -> list[Tensor]:
    """One forward pass over rows that are packed already.

    Raises:
        SettingsError: the model's attention is not `sdpa`. `eager` would add the boolean mask to
            the scores as 0 and 1, and be wrong without an error.
    """
    if attention(model) != "sdpa":
        raise SettingsError(
            f"packed scoring needs the attention 'sdpa', and this model has '{attention(model)}': "
            "call model.set_attn_implementation('sdpa'), or choose another path"
        )
    torch = load_torch()
    device = model.device
    logits = model(
        input_ids=torch.from_numpy(batch.ids).to(device),
        position_ids=torch.from_numpy(batch.positions).to(device),
        attention_mask=torch.from_numpy(batch.mask[:, None]).to(device),
        logits_to_keep=torch.from_numpy(batch.keep).to(device),
        use_cache=False,
    ).logits
    flat = batch.rows[:, None] * len(batch.keep) + batch.slots
    return split(_sums(logits, flat, batch.targets, batch.valid), batch.counts)


def padded(model: Any, items: Items, *, batch_tokens: int = 2048) -> list[Tensor]:
    """Every option behind its own copy of the prompt, padded on the right, in batches.

    No mask is given: in a causal model of any kind, what stands to the right reaches nothing.

    Args:
        model: the model.
        items: the items.
        batch_tokens: sequences x longest sequence of a batch is at most this.
    """
    torch = load_torch()
    pairs = [(item.prompt, option) for item in items for option in item.options]
    sums = [padded_batch(model, chunk) for chunk in chunks(pairs, batch_tokens)]
    return split(torch.cat(sums), tuple(len(item.options) for item in items))


def naive(model: Any, items: Items, *, widened: bool = False, masked: bool = False) -> list[Tensor]:
    """One plain forward pass an option: the reference the other paths are held to.

    Args:
        model: the model.
        items: the items.
        widened: with tokens behind the option, which nothing before them sees.
        masked: with the causal mask given, which a model of full attention alone takes. Either way
            the numbers are the same but for rounding, since other kernels make them: the
            difference is what rounding does here.
    """
    torch = load_torch()
    found = []
    for item in items:
        sums = []
        for option in item.options:
            whole = [*item.prompt, *option]
            ids = torch.tensor([whole + [0] * (_BEHIND * widened)], device=model.device)
            more = {}
            if masked:
                size = ids.shape[1]
                mask = torch.ones(size, size, dtype=torch.bool, device=model.device).tril()
                more["attention_mask"] = mask[None, None]
            logits = model(input_ids=ids, use_cache=False, **more).logits[0]
            logits = logits[len(item.prompt) - 1 : len(whole) - 1]
            target = ids[0, len(item.prompt) : len(whole), None]
            sums.append(logits.float().log_softmax(-1).gather(1, target).sum())
        found.append(torch.stack(sums))
    return found


def attention(model: Any) -> str:
    """The name of the attention the model runs with."""
    return str(getattr(inner(model).config, "_attn_implementation", None))


def accepts(model: Any, argument: str) -> bool:
    """Whether the model's forward pass takes an `argument` by name."""
    return argument in inspect.signature(inner(model).forward).parameters


def checkpoints(model: Any) -> bool:
    """Whether the model drops activations in training and computes them again."""
    bare = inner(model)
    for name in ("is_activation_checkpointing", "is_gradient_checkpointing"):  # new name, old name
        if hasattr(type(bare), name):
            return bool(getattr(bare, name))
    return False


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model without dropout; afterwards every module is in its former mode."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def inner(model: Any) -> Any:
    """The model inside an adapter, or the model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def padded_batch(model: Any, pairs: list[Pair], *, with_last: bool = False) -> Tensor:
    """Σ log p (n,) of n options in one padded pass, their last tokens read too if `with_last`."""
    torch = load_torch()
    last = None if with_last else -1
    ids, _, _ = _filled([(*prompt, *option[:last]) for prompt, option in pairs])
    first = min(len(prompt) for prompt, _ in pairs) - 1
    logits = model(
        input_ids=torch.from_numpy(ids).to(model.device),
        use_cache=False,
        **_kept(model, *range(first, ids.shape[1])),
    ).logits
    first = ids.shape[1] - logits.shape[1]  # 0 where the model gives all logits
    targets, valid, steps = _filled([option for _, option in pairs])
    starts = np.array([len(prompt) - 1 - first for prompt, _ in pairs])
    flat = np.arange(len(pairs))[:, None] * logits.shape[1] + starts[:, None] + steps
    return _sums(logits, flat, targets, valid)


def _kept(model: Any, *columns: int) -> dict[str, Tensor]:
    if not accepts(model, "logits_to_keep"):
        return {}
    return {"logits_to_keep": load_torch().tensor(columns, device=model.device)}


def _filled(sequences: Sequence[tuple[int, ...]]) -> tuple[Ints, NDArray[np.bool_], Ints]:
    """Sequences as an array padded on the right, which entries are theirs, and each one's step."""
    longest = max(map(len, sequences))
    ids = np.zeros((len(sequences), longest), np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    steps = np.broadcast_to(np.arange(longest), ids.shape)
    valid = steps < np.array([len(sequence) for sequence in sequences])[:, None]
    return ids, valid, steps


def chunks(pairs: list[Pair], batch_tokens: int) -> Iterator[list[Pair]]:
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


def _sums(logits: Tensor, flat: Ints, targets: Ints, valid: NDArray[np.bool_]) -> Tensor:
    """Σ log softmax(logits)[target] over each option's tokens, shape (n,).

    Args:
        logits: (R, C, V).
        flat: (n, L) which of the R x C rows of logits predicts each token.
        targets: (n, L) the tokens.
        valid: (n, L) which of them there are.
    """
    torch = load_torch()
    needed, where = np.unique(flat[valid], return_inverse=True)
    device = logits.device
    table = logits.flatten(0, 1)
    if len(needed) < len(table):
        table = table.index_select(0, torch.from_numpy(needed).to(device))
    logs = table.float().log_softmax(-1)
    chosen = logs[torch.from_numpy(where).to(device), torch.from_numpy(targets[valid]).to(device)]
    places = torch.from_numpy(np.ascontiguousarray(valid)).to(device)
    spread = torch.zeros(places.shape, device=device).masked_scatter(places, chosen)
    return spread.sum(-1)


def split(values: Tensor, counts: tuple[int, ...]) -> list[Tensor]:
    """A tensor of all options as one an item."""
    return list(values.split(list(counts)))
