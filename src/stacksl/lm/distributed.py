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

No rank waits for one that has failed: before anything is exchanged, and at the end of every shared
call, the ranks exchange whether any of them has failed, and if so all leave the call. A method must
therefore not catch errors of `gather` and `total`, must not catch on one rank an error that
another rank could have raised, and makes no shared call itself.
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
from typing import Any, NoReturn, TypeAlias, TypeVar

from stacksl import errors
from stacksl.errors import RunError, StackslError
from stacksl.lm.scoring.paths import Tensor, load_torch
from stacksl.telemetry import load_library

Call: TypeAlias = tuple[str, tuple[Any, ...]]
Fault: TypeAlias = tuple[str, str]  # the class of a StackslError and its sentence
T = TypeVar("T")

_TIMEOUT = timedelta(days=365)  # a rank waits so long for the next call: rank 0 may for a person


class Distributed:
    """The processes of one run, seen from one of them.

    Objects go through gloo on the CPU, on every device: it sleeps while it waits, and notices at
    once when a process at the other end dies.

    Args:
        state: of accelerate, where there is more than one process.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
        device: the device of this process, as torch names it (`cuda:1`, `cpu`); None for one
            process, which takes the device of the settings.
    """

    def __init__(self, state: Any = None, device: str | None = None) -> None:
        self.rank, self.size, self.device = 0, 1, device
        self._state = state
        self._objects = None  # the group they go through; None is the default one
        self._outcome_pending = True  # the others still wait for the outcome of this rank
        self._midway = False  # in a call that the ranks have not left together
        if state is not None:
            from torch import distributed

            self.rank, self.size = state.process_index, state.num_processes
            self._torch = distributed
            if distributed.get_backend() != "gloo":
                self._objects = distributed.new_group(backend="gloo", timeout=_TIMEOUT)

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
            StackslError: another rank failed.
        """
        if self._state is None:
            return list(results)
        self._settle(None)
        parts = self._exchanged(list(results))
        count = sum(map(len, parts))
        return [parts[piece % self.size][piece // self.size] for piece in range(count)]

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks, through one flat buffer.

        The sum is made in float32 and has the same bits on every rank. It is not the sum that one
        process would have made, since additions are grouped by rank.

        Raises:
            StackslError: another rank failed.
        """
        if self._state is None:
            return
        self._settle(None)
        torch = load_torch()
        flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
        with _linked():
            group = self._objects if flat.device.type == "cpu" else None
            self._torch.all_reduce(flat, group=group)
        pieces = flat.split([tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))

    def together(self, target: Any, method: str, *args: Any) -> Any:
        """Run ``target.method(*args)`` on every rank, each on its own target; rank 0's result.

        Called by rank 0 while the others `serve`.

        Raises:
            StackslError: the first error by rank, as the same class with the same sentence.
        """
        if self._state is None:
            return getattr(target, method)(*args)
        self._midway = True
        self._sent((method, args))
        return self._run(target, method, args)

    def serve(self, target: Any) -> None:
        """Run every shared call of rank 0 on `target` until rank 0 closes.

        Prints nothing and raises nothing: rank 0 raises the errors of all. An interrupt from the
        keyboard is rank 0's to handle. Called in the main thread.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with warnings.catch_warnings(), suppress(StackslError):
            warnings.simplefilter("ignore")
            while (call := self._sent(None)) is not None:
                with suppress(Exception):
                    self._run(target, *call)
        self.close()

    def close(self) -> None:
        """Release the other ranks and leave them; to be called once by each, in any case.

        Rank 0 sends the end, unless it was interrupted inside a shared call: the others then wait
        for numbers, and the lost connection ends them.
        """
        if self._state is None:
            return
        with suppress(StackslError):
            if self.rank == 0 and not self._midway:
                self._sent(None)
        with suppress(RuntimeError):
            self._state.destroy_process_group()

    def _run(self, target: Any, method: str, args: tuple[Any, ...]) -> Any:
        """This rank's part of a shared call, up to the outcome that all ranks agree on.

        An interrupt leaves `_midway` set, so that `close` sends nothing to ranks that wait.
        """
        self._outcome_pending = self._midway = True
        try:
            try:
                result = getattr(target, method)(*args)
                self._settle(None)
            except Exception as error:
                if self._outcome_pending:
                    self._settle(error)
                raise
        except Exception:
            self._midway = False
            raise
        self._midway = False
        return result

    def _settle(self, error: Exception | None) -> None:
        """Exchange the outcome of every rank, and leave the call where any rank has failed."""
        if not self._outcome_pending:
            raise RunError("a shared call has failed on this rank: start the run again") from error
        self._outcome_pending = False
        flag = load_torch().tensor([error is not None], dtype=load_torch().int32)
        with _linked():
            self._torch.all_reduce(flag, group=self._objects)
        if flag.item():
            fault = None if error is None else self._fault(error)
            self._raise(self._exchanged(fault), error)
        self._outcome_pending = True

    def _raise(self, faults: list[Fault | None], error: Exception | None) -> NoReturn:
        first = next(rank for rank, fault in enumerate(faults) if fault)
        if error is not None and first == self.rank:
            raise error
        kind, sentence = faults[first] or ("", "")
        raise getattr(errors, kind, StackslError)(sentence) from error

    def _fault(self, error: Exception) -> Fault:
        kind = type(error).__name__
        if isinstance(error, StackslError):
            return kind, str(error)
        return "StackslError", f"process {self.rank + 1} of {self.size} failed: {kind}: {error}"

    def _sent(self, call: Call | None) -> Call | None:
        """Rank 0's `call` on every rank, which waits for it without a limit; None is the end."""
        box: list[Any] = [None if call is None else pickle.dumps(call)]
        with _linked():
            self._torch.broadcast_object_list(box, src=0, group=self._objects)
        return None if box[0] is None else pickle.loads(box[0])

    def _exchanged(self, mine: T) -> list[T]:
        """Every rank's object, by rank."""
        parts: list[Any] = [None] * self.size
        with _linked():
            self._torch.all_gather_object(parts, mine, group=self._objects)
        return parts


ALONE = Distributed()
"""A run of one process: its share is everything, gathering and adding up do nothing."""


@cache
def current_processes() -> Distributed:
    """The processes that torchrun's environment describes, connected once; else `ALONE`.

    Each has an accelerator of its own, or the CPU where there is none. torch and accelerate are
    loaded only where there is more than one process.

    Raises:
        MissingExtra: accelerate is not installed.
        RunError: the processes cannot reach one another.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        return ALONE
    on_cpu = not load_torch().cuda.is_available()
    accelerate = load_library("accelerate", "a run of several processes", "lm")
    with _linked():
        state = accelerate.PartialState(cpu=on_cpu, timeout=_TIMEOUT)
        return Distributed(state, "cpu" if on_cpu else str(state.device))


def blocks(n: int, size: int) -> list[range]:
    """0..n cut into pieces of `size`, the last one shorter: the same for any number of ranks.

    >>> blocks(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


@contextmanager
def _linked() -> Iterator[None]:
    """A lost connection as one sentence."""
    try:
        yield
    except StackslError:
        raise
    except RuntimeError as error:
        raise RunError(
            "another process of this run has ended or cannot be reached: read what it said, then "
            "start all of them again (`stacksl resume` continues the run)"
        ) from error
