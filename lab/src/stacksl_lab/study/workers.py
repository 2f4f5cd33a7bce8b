"""Worker processes with one call at a time, which end with their caller."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import Any, TypeAlias

from stacksl.errors import RunError

Play: TypeAlias = Callable[..., Any]


def in_processes(
    play: Play, calls: Sequence[tuple[Any, ...]], jobs: int
) -> Generator[tuple[int, Any], None, None]:
    """(place, `play(*call)`) of each of `calls`, as they end, in up to `jobs` processes.

    Close it to end every process at once; Ctrl-C reaches the caller alone.

    Args:
        play: a function at the top level of a module: the processes look for it by its name.

    Raises:
        RunError: a process was ended from outside.
        Exception: what `play` raised, with its traceback there as a note.
    """
    workers: dict[Connection, SpawnProcess] = {}
    try:
        with _interrupts_blocked():
            workers.update(_started(play) for _ in range(min(jobs, len(calls))))
        yield from _distributed(workers, calls)
    finally:
        for process in workers.values():
            process.terminate()
        for process in workers.values():
            process.join()


def _distributed(
    workers: dict[Connection, SpawnProcess], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    waiting = iter(enumerate(calls))
    busy: dict[Connection, int] = {}

    def send_next(link: Connection) -> None:
        place, call = next(waiting, (None, ()))
        if place is not None:
            busy[link] = place
            with suppress(OSError):  # its process has ended, which `_answer` reports
                link.send(call)

    for link in workers:
        send_next(link)
    while busy:
        ready = wait(list(busy))
        for link in [link for link in busy if link in ready]:
            place, answer = busy.pop(link), _answer(link, workers[link])
            send_next(link)
            yield place, answer


def _answer(link: Connection, process: SpawnProcess) -> Any:
    try:
        answer, error = link.recv()
    except (EOFError, OSError):
        process.join(1)
        raise RunError(
            f"a process that was measuring was ended from outside (exit code {process.exitcode}),"
            " as when memory runs out; what was measured is kept: give the same command again,"
            " with a smaller --jobs"
        ) from None
    if error is not None:
        raise error
    return answer


def _started(play: Play) -> tuple[Connection, SpawnProcess]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(play, theirs), daemon=True)
    process.start()
    theirs.close()  # so that a process that ends is seen as the end of its link
    return ours, process


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C waits for the end of the block; the processes begun in it never see one.

    A process inherits the blocked signals, so that not even one that is importing is interrupted.
    """
    resource_tracker.ensure_running()  # begun by the first process, it would release the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(play: Play, link: Connection) -> None:
    """The main loop of a process: answer calls until the other end of `link` is closed."""
    Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            link.send(_answer_or_error(play, link.recv()))


def _exit_with_parent() -> None:
    """End with the process that began this one, however that ended.

    One that was killed closes nothing, and what is played here may take an hour more.
    """
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _answer_or_error(play: Play, call: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """What `play` gave, or what it raised, in a form that can be sent."""
    try:
        return play(*call), None
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return None, RuntimeError(f"{type(error).__name__}: {error}")
        return None, error
