"""Several processes of one run: the first one plays it, the others compute with it.

Started by ``torchrun --nproc-per-node N -m stacksl ...``, every process has a rank. Rank 0 alone
holds the ledger, the lock and the labeler. Work for all ranks is a *shared call*: the name of a
method and its arguments go to every rank, each runs it on a target of its own, and inside it the
ranks share pieces of work whose cut does not depend on how many ranks there are::

    rank 0                                          every other rank
    processes.together(target, "scores", items)     processes.serve(target)
        pieces = blocks(len(items), 64)                 the same method, the same lines
        for b in processes.share(len(pieces)): ...
        processes.gather(results)

A rank that fails in a shared call says why and ends, and the others then lose their connection to
it. What can fail is therefore followed by a `gather`, before any `total`.
"""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from stacksl.errors import RunError
from stacksl.lm.scoring.paths import Tensor, load_torch

T = TypeVar("T")

_TIMEOUT = timedelta(days=365)  # a rank waits so long for the next call: rank 0 may for a person


class Disconnected(RunError):
    """Another process of the run has ended."""


class Distributed:
    """The processes of one run, seen from one of them.

    Objects go through gloo on the CPU, on every device: it sleeps while it waits, and notices at
    once when a process at the other end dies.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
        device: the device of this process, as torch names it (`cuda:1`, `cpu`); None for one
            process, which takes the device of the settings.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: str | None = None) -> None:
        self.rank, self.size, self.device = rank, size, device

    def share(self, n: int) -> range:
        """Which of `n` pieces of work are this rank's: piece b belongs to rank b mod size.

        >>> list(ALONE.share(3))
        [0, 1, 2]
        """
        return range(self.rank, n, self.size)

    def gather(self, results: Sequence[T]) -> list[T]:
        """Every piece's result, in the order of the pieces, on every rank.

        Args:
            results: one a piece of this rank's `share`, in its order.

        Raises:
            RunError: another rank has ended.
        """
        if self.size == 1:
            return list(results)
        by_rank: list[Any] = [None] * self.size
        with _connected() as distributed:
            distributed.all_gather_object(by_rank, list(results))
        count = sum(map(len, by_rank))
        return [by_rank[piece % self.size][piece // self.size] for piece in range(count)]

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks, through one flat buffer.

        The sum is made in float32 and has the same bits on every rank. It is not the sum that one
        process would have made, since additions are grouped by rank.

        Raises:
            RunError: another rank has ended.
        """
        if self.size == 1:
            return
        torch = load_torch()
        flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
        with _connected() as distributed:
            distributed.all_reduce(flat)
        pieces = flat.split([tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))

    def together(self, target: Any, method: str, *args: Any) -> Any:
        """Run ``target.method(*args)`` on every rank, each on its own target; rank 0's result.

        Called by rank 0 while the others `serve`.

        Raises:
            RunError: another rank has ended.
        """
        if self.size > 1:
            self._sent((method, args))
        return getattr(target, method)(*args)

    def serve(self, target: Any) -> None:
        """Run every shared call of rank 0 on `target` until rank 0 ends.

        An interrupt from the keyboard is rank 0's to handle. Called in the main thread.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with warnings.catch_warnings(), suppress(Disconnected):
            warnings.simplefilter("ignore")
            while True:
                method, args = self._sent(None)
                getattr(target, method)(*args)

    def close(self) -> None:
        """Leave the other ranks, which end then."""
        if self.size > 1:
            with suppress(Disconnected), _connected() as distributed:
                distributed.destroy_process_group()

    def _sent(self, call: tuple[str, tuple[Any, ...]] | None) -> Any:
        """Rank 0's `call` on every rank, which waits for it without a limit."""
        box = [pickle.dumps(call)]
        with _connected() as distributed:
            distributed.broadcast_object_list(box, src=0)
        return pickle.loads(box[0])


ALONE = Distributed()
"""A run of one process: its share is everything, gathering and adding up do nothing."""


@cache
def current_processes() -> Distributed:
    """The processes that torchrun's environment describes, connected once; else `ALONE`.

    Each has a GPU of its own, or the CPU where there is none. Torch is loaded only where there is
    more than one process.

    Raises:
        RunError: the processes cannot reach one another.
    """
    if int(os.environ.get("WORLD_SIZE") or "1") < 2 or "RANK" not in os.environ:
        return ALONE
    torch, device, backend = load_torch(), "cpu", "gloo"
    if torch.cuda.is_available():
        device, backend = f"cuda:{os.environ.get('LOCAL_RANK', '0')}", "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    with _connected() as distributed:
        distributed.init_process_group(backend, timeout=_TIMEOUT)
        return Distributed(distributed.get_rank(), distributed.get_world_size(), device)


def blocks(n: int, size: int) -> list[range]:
    """0..n cut into pieces of `size`, the last one shorter: the same for any number of ranks.

    >>> blocks(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


@contextmanager
def _connected() -> Iterator[Any]:
    """The library that connects processes; a lost connection is one sentence."""
    from torch import distributed

    try:
        yield distributed
    except RuntimeError as error:
        raise Disconnected(
            "another process of this run has ended or cannot be reached: read what it said, then "
            "start all of them again (`stacksl resume` continues the run)"
        ) from error
