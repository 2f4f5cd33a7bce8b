"""Several processes of one command: the first plays it, the others lend it their hands.

torchrun --nproc-per-node 2 -m stacksl run train.jsonl --model ...
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["in_crew"]


def in_crew(play: Callable[[], int]) -> int:
    """The exit code of `play`, which only the first of several processes runs.

    The others serve it until it is done, whatever the command; torch is loaded only where there
    is more than one process.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return play()
    from stacksl.errors import StackslError
    from stacksl.lm.crew import present_crew, serve
    from stacksl.lm.stage import Stage

    try:
        crew = present_crew()
    except StackslError as error:
        if os.environ.get("RANK", "0") == "0":
            import sys

            print(f"stacksl: {error}", file=sys.stderr)
        return 2
    if crew.rank > 0:
        serve(crew, Stage(crew))
        return 0
    try:
        return play()
    finally:
        crew.close()
