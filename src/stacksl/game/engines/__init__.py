"""Compiled loops over array streams: the same decisions as `learner`, without its steps.

Everything numba compiles lies in modules that only `run_stream` loads, when it plays.
"""

from stacksl.game.engines.streams import Engine, StreamResult, run_stream

__all__ = ["Engine", "StreamResult", "run_stream"]
