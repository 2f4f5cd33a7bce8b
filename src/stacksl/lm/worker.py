"""The model of one process of a run: scores, states, training.

Items are cut into blocks at fixed positions of the list given, so that the items beside an item,
and with them its last bits, are the same for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stacksl.core.blocks import Array
from stacksl.lm.distributed import ALONE, Distributed, blocks
from stacksl.lm.loading import Loaded, load
from stacksl.lm.memory.errors import within_memory
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.packing import Packing
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.objectives import Example
from stacksl.lm.training.recipe import TrainSettings
from stacksl.lm.training.refit import Trained, train

T = TypeVar("T")

BLOCK = 32  # items scored side by side


class Worker:
    """One process's model with its adapter; every method is run by all processes at once.

    Attributes:
        processes: the processes.
        progress: called with (done, total) steps of a refit, on the first process alone.
    """

    def __init__(self, processes: Distributed = ALONE) -> None:
        self.processes = processes
        self.progress: Callable[[int, int], None] | None = None
        self.loaded: Loaded
        self.adapter: Adapter
        self.likelihood: Likelihood

    def open(self, choices: ModelChoices, seed: int) -> None:
        """Load the model and attach what is to be trained."""
        device = choices.device
        if device != "cpu" and self.processes.device is not None:
            device = self.processes.device
        if choices.threads is not None:
            load_torch().set_num_threads(choices.threads)
        divided = choices.shard and self.processes.size > 1
        self.loaded = load(choices.model, device=device, dtype=choices.dtype, moved=not divided)
        self.adapter = Adapter.attach(self.loaded, choices.adapt, choices.lora, seed=seed)
        if divided:
            self.processes.divide(self.adapter.model, self.adapter.parameters(), self.loaded.device)
        packing = Packing(batch_tokens=choices.batch_tokens)
        self.likelihood = Likelihood(self.adapter.model, path=choices.path, packing=packing)

    def sums(self, items: Sequence[TokenItem]) -> list[Array]:
        """Log p(option | prompt) of every option: a float64 array (k,) an item."""
        return self._in_blocks(items, self._block_sums)

    def states(self, items: Sequence[TokenItem]) -> list[tuple[Array, Array]]:
        """Log-likelihoods (k,) and pooled states (k, hidden) of every item's options."""
        return self._in_blocks(items, self._block_states)

    def _block_sums(self, block: Sequence[TokenItem]) -> list[Array]:
        """`sums` of one block."""
        with load_torch().no_grad(), within_memory("score a batch of items"):
            return [_numbers(value) for value in self.likelihood.sums(block)]

    def _block_states(self, block: Sequence[TokenItem]) -> list[tuple[Array, Array]]:
        """`states` of one block."""
        with within_memory("read the states of a batch of items"):
            sums, states = self.likelihood.sums_and_states(block)
        return [(_numbers(a), _numbers(b)) for a, b in zip(sums, states, strict=True)]

    def train(
        self,
        examples: Sequence[Example],
        settings: TrainSettings,
        seed: int,
        key: int,
        folder: Path | None,
    ) -> Trained:
        """Train from the initial weights on `examples`; see `training.train`."""
        self.adapter.reset()
        first = self.processes.rank == 0
        return train(
            self.adapter,
            self.likelihood,
            examples,
            settings,
            seed=seed,
            key=key,
            folder=folder,
            progress=self.progress if first else None,
            processes=self.processes,
        )

    def reset(self) -> None:
        """Take the initial weights, which score as the base model does."""
        self.adapter.reset()

    def take(self, folder: Path) -> None:
        """Take the weights of a refit that was saved in `folder`."""
        self.adapter.load(folder)

    def _in_blocks(
        self, items: Sequence[TokenItem], read: Callable[[Sequence[TokenItem]], list[T]]
    ) -> list[T]:
        """What `read` gives of each item, block by block, each process its share of the blocks."""
        pieces = blocks(len(items), BLOCK)
        mine = [read([items[i] for i in pieces[b]]) for b in self.processes.share(len(pieces))]
        return [result for piece in self.processes.gather(mine) for result in piece]


def _numbers(tensor: Any) -> Array:
    """A tensor as float64 numbers of its own."""
    return np.asarray(tensor.detach().float().cpu().numpy(), dtype=np.float64)
