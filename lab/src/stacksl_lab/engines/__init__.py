"""Compiled loops over array streams: with the same decisions as `Learner`.

What numba compiles is in modules that only `run_stream` loads, at its first use.
"""

from stacksl_lab.engines.arrays import Mark, StreamResult
from stacksl_lab.engines.streams import Engine, run_stream

__all__ = ["Engine", "Mark", "StreamResult", "run_stream"]
