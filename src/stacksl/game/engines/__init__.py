"""Compiled loops over array streams: the same decisions as `learner`, without its steps.

Everything numba compiles lies in modules that only `run_stream` loads, when it plays.
"""

from stacksl.game.engines.arrays import Mark, StreamResult
from stacksl.game.engines.streams import Engine, run_stream

__all__ = ["Engine", "Mark", "StreamResult", "run_stream"]
