"""The laboratory: the paper's studies, and compiled loops over streams of arrays.

`run_stream` plays one array stream; `stacksl reproduce STUDY` makes a table of `lab.studies`.
"""

from stacksl.lab.bisection import BudgetLevel, bracket_level, calibrate_to_budget, simulated_stream
from stacksl.lab.engines import Engine, Mark, StreamResult, run_stream

__all__ = [
    "BudgetLevel",
    "Engine",
    "Mark",
    "StreamResult",
    "bracket_level",
    "calibrate_to_budget",
    "run_stream",
    "simulated_stream",
]
