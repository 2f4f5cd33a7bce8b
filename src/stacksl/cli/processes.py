"""Several processes of one command: the first runs it, the others serve its calls of the model.

torchrun --nproc-per-node 2 -m stacksl run train.jsonl --model ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def in_crew(play: Callable[[], int]) -> int:
    """The exit code of `play`, which only the first of several processes runs.

    The others serve it until it is done; torch is loaded only where there
    is more than one process.
    """
    if int(os.environ.get("WORLD_SIZE") or "1") < 2:
        return play()
    from stacksl.errors import StackslError

    try:
        from stacksl.lm.distributed import current_processes, serve
        from stacksl.lm.worker import Worker

        processes = current_processes()
    except StackslError as error:
        return _unformed(str(error), 2)
    except KeyboardInterrupt:
        return _unformed("stopped; nothing was changed", 130)
    if processes.rank > 0:
        serve(processes, Worker(processes))
        return 0
    try:
        return play()
    finally:
        processes.close()


def _unformed(sentence: str, code: int) -> int:
    """The exit code of a process that could not join the others; the first one prints why."""
    if os.environ.get("RANK", "0") == "0":
        print(f"stacksl: {sentence}", file=sys.stderr)
    return code
