"""The paper's algorithms on arrays: scorers, gates and the learner.

The names here are those that a gate or a scorer of your own needs; the rest is in the modules.
"""

from stacksl.core.blocks import PairBlock, SharedBlock
from stacksl.core.gates.registry import GATES, Gate, Margin
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.scorers import SCORERS, Bounds, Scorer

__all__ = [
    "GATES",
    "SCORERS",
    "Bounds",
    "Clock",
    "Gate",
    "GateState",
    "Margin",
    "PairBlock",
    "Scorer",
    "SharedBlock",
]
