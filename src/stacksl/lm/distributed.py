"""Several processes of one run: the first one plays it, the others compute with it.

Started by ``torchrun --nproc-per-node N -m stacksl ...``, every process has a rank. Rank 0 alone
holds the ledger, the lock and the labeler. Work for all ranks is a *shared call*: the name of a
method and its arguments go to every rank, each runs it on a target of its own, and inside it the
ranks share pieces of work whose cut does not depend on how many ranks there are::

    rank 0                                          every other rank
    processes.together(target, "scores", items)     serve(processes, target)
        pieces = blocks(len(items), 64)                 the same method, the same lines
        for b in processes.share(len(pieces)): ...
        processes.gather(results)

No rank waits for one that has failed: before anything is exchanged, and at the end of every shared
call, the ranks exchange whether any of them has failed, and if so all leave the call. A method must
therefore not catch errors of `gather` and `total`, and must not catch on one rank an error that
another rank could have raised.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar

from stacksl import errors
from stacksl.errors import MissingExtra, RunError, StackslError
from stacksl.lm.scoring.paths import load_torch

Tensor: TypeAlias = Any
Call: TypeAlias = tuple[str, tuple[Any, ...]]
Fault: TypeAlias = tuple[str, str]  # the class of a StackslError and its sentence
T = TypeVar("T")

_TIMEOUT_DAYS = 365  # a rank may wait that long for the next call: rank 0 may wait for a person


class Distributed:
    """The processes of one run, seen from one of them.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
        device: the device of this process, as torch names it (`cuda:1`, `cpu`); None for one
            process, which takes the device of the settings.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: str | None = None, link: _Link | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self._link = link
        self._inside = False
        self._owing = True  # the others still wait for the outcome of this rank
        self._midway = False  # in a call that the ranks have not left together

    def share(self, n: int) -> range:
        """Which of `n` pieces of work are this rank's: piece b belongs to rank b mod size.

        >>> list(ALONE.share(3))
        [0, 1, 2]
        """
        return range(n) if self._link is None else range(self.rank, n, self.size)

    def gather(self, results: Sequence[T]) -> list[T]:
        """Every piece's result, in the order of the pieces, on every rank.

        Args:
            results: one a piece of this rank's `share`, in its order.

        Raises:
            StackslError: another rank failed.
        """
        if self._link is None:
            return list(results)
        self._settle(None)
        parts = self._link.gather(list(results))
        count = sum(map(len, parts))
        return [parts[piece % self.size][piece // self.size] for piece in range(count)]

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks, through one flat buffer.

        The sum is made in float32 at least and has the same bits on every rank. It is not the sum
        that one process would have made, since additions are grouped by rank.

        Raises:
            StackslError: another rank failed.
        """
        if self._link is None:
            return
        self._settle(None)
        if tensors:
            self._link.total(tensors)

    def together(self, target: Any, method: str, *args: Any) -> Any:
        """Run ``target.method(*args)`` on every rank, each on its own target; rank 0's result.

        Called by rank 0 while the others `serve`. Inside a shared call it is a plain call, since
        every rank runs the line that makes it.

        Args:
            target: the object of this rank.
            method: the name of the method.
            args: what goes to every rank, pickled.

        Raises:
            StackslError: the first error by rank, as the same class with the same sentence.
        """
        if self._link is None or self._inside:
            return getattr(target, method)(*args)
        if self.rank:
            raise RuntimeError("a shared call is made by rank 0; the other ranks serve")
        self._midway = True
        self._link.send((method, args))
        return self.run(target, method, args)

    def receive(self) -> Call | None:
        """Wait for the next shared call, without a limit; None once rank 0 has closed."""
        return None if self._link is None else self._link.send(None)

    def run(self, target: Any, method: str, args: tuple[Any, ...]) -> Any:
        """This rank's part of a shared call, up to the outcome that all ranks agree on."""
        self._inside = self._owing = self._midway = True
        try:
            result = self._agreed(target, method, args)
        except Exception:
            self._midway = False
            raise
        finally:
            self._inside = False
        self._midway = False
        return result

    def close(self) -> None:
        """Release the other ranks and leave them; to be called once by each, in any case.

        Rank 0 sends the end, unless it was interrupted inside a shared call: the others then wait
        for numbers, and the lost connection ends them.
        """
        link, self._link = self._link, None
        if link is not None:
            link.close(send_end=self.rank == 0 and not self._midway)

    def _agreed(self, target: Any, method: str, args: tuple[Any, ...]) -> Any:
        try:
            result = getattr(target, method)(*args)
            self._settle(None)
            return result
        except Exception as error:
            if self._owing:
                self._settle(error)
            raise

    def _settle(self, error: Exception | None) -> None:
        """Exchange the outcome of every rank, and leave the call where any rank has failed."""
        if self._link is None or not self._owing:
            raise RunError("a shared call has failed on this rank: start the run again") from error
        try:
            faults = self._link.faults(None if error is None else self._fault(error))
        except StackslError:
            self._owing = False
            raise
        if any(faults):
            self._owing = False
            self._raise(faults, error)

    def _raise(self, faults: list[Fault | None], error: Exception | None) -> NoReturn:
        first = next(rank for rank, fault in enumerate(faults) if fault)
        if error is not None and first == self.rank:
            raise error
        kind, sentence = faults[first] or ("", "")
        raise getattr(errors, kind, StackslError)(sentence) from error

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, StackslError):
            return type(error).__name__, str(error)
        kind = type(error).__name__
        return "StackslError", f"process {self.rank + 1} of {self.size} failed: {kind}: {error}"


ALONE = Distributed()
"""A run of one process: its share is everything, gathering and adding up do nothing."""


def connect(device: str = "auto") -> Distributed:
    """The processes that torchrun's environment describes; `ALONE` where it describes one.

    torch and accelerate are loaded only where there is more than one.

    Args:
        device: `cpu`, or another name or `auto` for one accelerator a process.

    Raises:
        MissingExtra: accelerate is not installed.
        RunError: the processes cannot reach one another.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        return ALONE
    torch = load_torch()
    try:
        from accelerate import PartialState
    except ImportError:
        raise MissingExtra.of("a run of several processes", "lm") from None
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    with _linked():
        state = PartialState(cpu=on_cpu, timeout=_timeout())
        place = "cpu" if on_cpu else str(state.device)
        return Distributed(state.process_index, state.num_processes, place, _Link(state))


@cache
def current_processes() -> Distributed:
    """The processes of this run, connected once, with the device that is there."""
    return connect()


def serve(processes: Distributed, target: Any) -> None:
    """Run every shared call of rank 0 on `target` until rank 0 closes.

    Prints nothing and raises nothing: rank 0 raises the errors of all. An interrupt from the
    keyboard is rank 0's to handle.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with warnings.catch_warnings(), suppress(StackslError):
        warnings.simplefilter("ignore")
        while (call := processes.receive()) is not None:
            with suppress(Exception):
                processes.run(target, *call)
    processes.close()


def blocks(n: int, size: int) -> list[range]:
    """0..n cut into pieces of `size`, the last one shorter: the same for any number of ranks.

    >>> blocks(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


class _Link:
    """What passes between the ranks. Objects go through gloo on the CPU, on every device.

    gloo sleeps while it waits, and notices at once when a process at the other end dies.
    """

    def __init__(self, state: Any) -> None:
        from torch import distributed

        self._dist = distributed
        self._state = state
        self._objects = None  # the default group
        if distributed.get_backend() != "gloo":
            self._objects = distributed.new_group(backend="gloo", timeout=_timeout())

    def send(self, call: Call | None) -> Call | None:
        """Rank 0's `call` on every rank."""
        box: list[Any] = [None if call is None else pickle.dumps(call)]
        with _linked():
            self._dist.broadcast_object_list(box, src=0, group=self._objects)
        return None if box[0] is None else pickle.loads(box[0])

    def faults(self, fault: Fault | None) -> list[Fault | None]:
        """Every rank's fault; one small sum where there is none."""
        torch = load_torch()
        flag = torch.tensor([fault is not None], dtype=torch.int32)
        with _linked():
            self._dist.all_reduce(flag, group=self._objects)
        return self.gather(fault) if flag.item() else []

    def gather(self, mine: T) -> list[T]:
        """Every rank's object, by rank."""
        parts: list[Any] = [None] * self._dist.get_world_size()
        with _linked():
            self._dist.all_gather_object(parts, mine, group=self._objects)
        return parts

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over the ranks in place."""
        torch = load_torch()
        wide = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
        flat = torch.cat([tensor.detach().reshape(-1).to(wide) for tensor in tensors])
        group = self._objects if flat.device.type == "cpu" else None
        with _linked():
            self._dist.all_reduce(flat, group=group)
        pieces = flat.split([tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))

    def close(self, *, send_end: bool) -> None:
        """Take the link down; with `send_end` the ranks that serve end first."""
        with suppress(StackslError):
            if send_end:
                self.send(None)
        with suppress(RuntimeError):
            self._state.destroy_process_group()


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
            "start all of them again (`stacksl resume` goes on where the run was)"
        ) from error


def _timeout() -> Any:
    from datetime import timedelta

    return timedelta(days=_TIMEOUT_DAYS)
