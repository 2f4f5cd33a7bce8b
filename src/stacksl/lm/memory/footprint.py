"""The memory of scoring and of training: the fullest batch of each, run without contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from stacksl.errors import SettingsError
from stacksl.lm.distributed import blocks
from stacksl.lm.loading import Loaded
from stacksl.lm.memory.meta import Alive, counted, phantom
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import PATHS, unfit
from stacksl.lm.scoring.likelihood import Path as Way
from stacksl.lm.scoring.packing import Packing
from stacksl.lm.scoring.paths import kv, load_torch, naive, packed, padded
from stacksl.lm.scoring.states import kv_states, naive_states, packed_states, padded_states
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.worker import BLOCK

__all__ = ["Memory", "memories", "row_tokens", "way"]

Rows: TypeAlias = list[list[TokenItem]]

_FLOAT = 4  # bytes of what moves, whatever the base computes in
_MOMENTS = 2  # of AdamW, each as large as what moves
_STATES = {"packed": packed_states, "kv": kv_states, "naive": naive_states}
_SUMS = {"packed": packed, "kv": kv, "naive": naive}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of tensors at the fullest moment, by what they are for.

    Attributes:
        weights: of the base model, buffers included.
        adapter: LoRA weights, with the copies that the run keeps of them; 0 where all moves.
        gradients, optimiser: of what moves.
        activations: what the passes hold besides.
        logits: tensors as wide as the vocabulary.
        copies: what the writing of a training checkpoint needs beyond all that.
    """

    weights: int
    adapter: int = 0
    gradients: int = 0
    optimiser: int = 0
    activations: int = 0
    logits: int = 0
    copies: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        parts = (self.weights, self.adapter, self.gradients, self.optimiser)
        return sum(parts) + self.activations + self.logits + self.copies


def memories(
    model: Any, config: Any, items: Sequence[TokenItem], choices: ModelChoices
) -> tuple[Memory, Memory]:
    """The memory of scoring and of training.

    Args:
        model: without weights, as `phantom.empty_model` makes it.
        config: its configuration.
        items: everything that is to be scored, in its order, and may be trained on.
        choices: the rest.
    """
    text = config.get_text_config()
    with phantom(model), counted(model, int(text.vocab_size)) as alive:
        rehearsal = _Rehearsal(model, choices, alive)
        scoring = rehearsal.scoring(_heaviest(items, choices, text, training=False))
        training = rehearsal.training(_heaviest(items, choices, text, training=True))
    return scoring, training


def way(model: Any, path: str, *, grad: bool = False) -> Way:
    """The path that scoring will take, as far as the configuration tells.

    Raises:
        SettingsError: the path asked for does not fit the model.
    """
    for each in PATHS:
        if path in ("auto", each) and unfit(model, each, grad=grad) is None:
            return each
    reason = unfit(model, cast(Way, path), grad=grad)
    raise SettingsError(f"scoring path '{path}' does not fit: {reason}; take 'auto'")


def row_tokens(item: TokenItem) -> int:
    """Tokens of a packed row with every option's last one: P + Σ L_i."""
    return len(item.prompt) + sum(map(len, item.options))


class _Rehearsal:
    """The model and what moves, with nothing in them, and the bytes they would hold."""

    def __init__(self, model: Any, choices: ModelChoices, alive: Alive) -> None:
        self.model = model
        self.choices = choices
        self.alive = alive
        base = alive.total
        self.moving = [p for p in model.parameters() if p.requires_grad]
        self.adapter = self._adapter()  # kept: it holds copies
        if choices.adapt == "lora":
            base -= sum(p.numel() * p.element_size() for p in self.moving)
        self.at_rest = Memory(base, alive.total - base)

    def scoring(self, rows: Rows) -> Memory:
        """A pass that takes scores and states."""
        self.alive.restart()
        path = way(self.model, self.choices.path)
        with load_torch().no_grad():
            if path == "padded":
                padded_states(self.model, rows, batch_tokens=self.choices.batch_tokens)
            else:
                _STATES[path](self.model, rows)
        held = self.alive.most - self.alive.most_logits - self.at_rest.total
        return replace(self.at_rest, activations=held, logits=self.alive.most_logits)

    def training(self, rows: Rows) -> Memory:
        """A backward pass that adds to gradients which are there already."""
        torch, alive = load_torch(), self.alive
        before = alive.total
        for parameter in self.moving:
            parameter.grad = torch.zeros_like(parameter)
        gradients = alive.total - before
        self.model.train()
        self.adapter.checkpointing(self.choices.training.checkpointing)
        alive.restart()
        self._backward(rows)
        passes = alive.most - before - gradients
        own = _FLOAT * sum(parameter.numel() for parameter in self.moving)
        copies = own * (1 + _MOMENTS) if self.choices.training.save_every else 0
        return replace(
            self.at_rest,
            gradients=gradients,
            optimiser=_MOMENTS * own,
            activations=passes - alive.most_logits,
            logits=alive.most_logits,
            copies=max(0, copies - gradients - passes),  # made when passes and gradients are gone
        )

    def _adapter(self) -> Adapter:
        own, choices = self.model, self.choices
        inner = own.get_base_model() if hasattr(own, "get_base_model") else own
        loaded = Loaded(inner, None, choices.model, "", None, "", None, None, "cpu", choices.dtype)
        adapter = Adapter(loaded, choices.adapt, own)
        if choices.training.pulls and choices.training.reference != "frozen":
            adapter.add_reference()
        return adapter

    def _backward(self, rows: Rows) -> None:
        sums = self._sums(rows)
        if self.choices.normalisation == "pmi":
            alone = [[replace(item, prompt=item.prompt[:1]) for item in row] for row in rows]
            sums = [a - b for a, b in zip(sums, self._sums(alone), strict=True)]
        terms = [each.log_softmax(-1)[0] for each in sums]
        load_torch().stack(terms).sum().backward()

    def _sums(self, rows: Rows) -> list[Any]:
        path = way(self.model, self.choices.path, grad=True)
        if path == "padded":
            return padded(self.model, rows, batch_tokens=self.choices.batch_tokens)
        return _SUMS[path](self.model, rows)


def _heaviest(
    items: Sequence[TokenItem], choices: ModelChoices, text: Any, *, training: bool
) -> Rows:
    """The batch that will hold most: of any block in scoring, of the longest items in training."""
    packing = Packing(batch_tokens=choices.batch_tokens)
    if training:
        size = choices.training.batch_size
        orders = (row_tokens, _tail)
        groups = [sorted(items, key=order, reverse=True)[:size] for order in orders]
    else:
        groups = [[items[i] for i in block] for block in blocks(len(items), BLOCK)]
    batches = [
        [[group[i] for i in row] for row in batch]
        for group in groups
        for batch in packing.batches(group, with_last=not training)
    ]
    return max(batches, key=lambda rows: _weight(rows, text, training))


def _weight(rows: Rows, text: Any, training: bool) -> float:
    """Roughly how many numbers a packed batch holds."""
    tail = max(sum(map(_tail, row)) for row in rows)
    width = tail + max(sum(len(item.prompt) for item in row) for row in rows)
    layers = int(text.num_hidden_layers) if training else 1
    each = layers * (16 * int(text.hidden_size) + width)  # what a column keeps, with its mask
    return len(rows) * float(width * each + 3 * tail * int(text.vocab_size))


def _tail(item: TokenItem) -> int:
    return sum(map(len, item.options))
