"""The model of one process of a run: scores, states, training.

Items are cut into blocks at fixed positions of the list given, so that the neighbors of an item,
and with them its last bits, are the same for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from stacksl.core.blocks import Array
from stacksl.lm.distributed import ALONE, Distributed, blocks
from stacksl.lm.loading import Base, Weights, open_base
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood, Quantity, within_memory
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices, TrainSettings
from stacksl.lm.training.adapters import Adapter, digest_of
from stacksl.lm.training.refit import Example, Trained, train

Numbers: TypeAlias = tuple[Array, Array | None]
"""Of an item: log-likelihoods (k,) and, where asked for, states (k, hidden)."""


class Worker:
    """One process's model with its adapter; every method is run by all processes at once.

    Weights are read where a pass needs them: a run that is opened to take answers makes none.

    Attributes:
        base: the model as its files are.
        progress: called with (done, total) steps of a refit, on the first process alone.
        moved: whether the adapter has left its initial weights, which score as at the start.
    """

    def __init__(self, processes: Distributed = ALONE) -> None:
        self.processes = processes
        self.progress: Callable[[int, int], None] | None = None
        self.moved = False
        self.base: Base
        self._choices: ModelChoices
        self._seed = 0

    def open(self, choices: ModelChoices, seed: int, known: Weights | None = None) -> None:
        """Open the model; `known` is what was recorded of its weights before."""
        device = choices.device
        if device != "cpu" and self.processes.device is not None:
            device = self.processes.device
        if choices.threads is not None:
            load_torch().set_num_threads(choices.threads)
        self.base = open_base(choices.model, device=device, dtype=choices.dtype, known=known)
        self._choices, self._seed = choices, seed

    @cached_property
    def adapter(self) -> Adapter:
        """What is trained, attached to the weights."""
        return Adapter(self.base, self._choices.lora, seed=self._seed)

    @cached_property
    def likelihood(self) -> Likelihood:
        """The model as a scorer of options."""
        choices = self._choices
        return Likelihood(
            self.adapter.model,
            batch_tokens=choices.batch_tokens,
            verdict=choices.verdict,
        )

    @property
    def verdict(self) -> str:
        """Which scoring path holds, as far as any was checked."""
        built = "likelihood" in vars(self)
        return self.likelihood.verdict if built else self._choices.verdict

    @cached_property
    def start(self) -> str:
        """The digest of the adapter that the run starts from; empty where that is the base."""
        return digest_of(self._choices.lora.start) if self._choices.lora.start else ""

    def sums(self, items: Sequence[TokenItem]) -> list[Array]:
        """Log p(option | prompt) of every option: a float64 array (k,) an item."""
        return [sums for sums, _ in self._in_blocks(items, "sums")]

    def states(self, items: Sequence[TokenItem]) -> list[tuple[Array, Array]]:
        """Log-likelihoods (k,) and pooled states (k, hidden) of every item's options."""
        return self._in_blocks(items, "states")

    def _in_blocks(self, items: Sequence[TokenItem], quantity: Quantity) -> list[Any]:
        """What is read of each item, block by block, each process its share of the blocks."""
        pieces = blocks(len(items), BLOCK)
        share = self.processes.share(len(pieces))
        model = self.likelihood.model
        # an adapter that begins at zero changes no bit until it moves, and its layers take time
        left_out = not self.moved and not self.start
        with model.disable_adapter() if left_out else nullcontext():
            mine = [self._block([items[i] for i in pieces[number]], quantity) for number in share]
        return [result for piece in self.processes.gather(mine) for result in piece]

    def _block(self, block: Sequence[TokenItem], quantity: Quantity) -> list[Numbers]:
        if quantity == "states":
            with within_memory("read the states of an item"):
                pair = self.likelihood.sums_and_states(block)
            return [(_numbers(a), _numbers(b)) for a, b in zip(*pair, strict=True)]
        with load_torch().no_grad(), within_memory("score an item"):
            return [(_numbers(value), None) for value in self.likelihood.sums(block)]

    def train(
        self, examples: Sequence[Example], settings: TrainSettings, seed: int, key: int
    ) -> Trained:
        """Train from the initial weights on `examples`; see `training.train`."""
        self.adapter.reset()
        self.moved = True
        return train(
            self.adapter,
            self.likelihood,
            examples,
            settings,
            seed=seed,
            key=key,
            progress=self.progress,
            processes=self.processes,
        )

    def reset(self) -> None:
        """Take the initial weights, which score as at the start."""
        if self.moved:
            self.adapter.reset()
            self.moved = False

    def take(self, folder: Path) -> None:
        """Take the weights of a refit that was saved in `folder`."""
        self.adapter.load(folder)
        self.moved = True


def _numbers(tensor: Any) -> Array:
    return np.asarray(tensor.detach().float().cpu().numpy(), dtype=np.float64)
