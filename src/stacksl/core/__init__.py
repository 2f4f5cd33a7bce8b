"""The paper's algorithms on arrays: scorers, gates, followers and the learner.

>>> from stacksl.core import Learner, make_gate, make_scorer
>>> scorer, gate = make_scorer("newton", dim=4, classes=None), make_gate("always")
>>> Learner(scorer, gate, budget=100, horizon=100).round
0
"""

from stacksl.core.blocks import PairBlock, PairFeatures, SharedBlock, SharedFeatures
from stacksl.core.calibration import calibrate_gate_scale, warmup_length, warmup_spreads
from stacksl.core.confidence import ConfidenceSet, radius
from stacksl.core.followers import FOLLOWERS, Follower, Given, Hard, loss_set
from stacksl.core.gates.registry import (
    GATES,
    LLF,
    ONE_HOT_PACE,
    Always,
    Contested,
    First,
    Gate,
    Margin,
    make_gate,
)
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.learner import Learner
from stacksl.core.rng import generator
from stacksl.core.scorers import SCORERS, Bounds, Scorer, ScorerSettings, make_scorer

__all__ = [
    "FOLLOWERS",
    "GATES",
    "LLF",
    "ONE_HOT_PACE",
    "SCORERS",
    "Always",
    "Bounds",
    "Clock",
    "ConfidenceSet",
    "Contested",
    "First",
    "Follower",
    "Gate",
    "GateState",
    "Given",
    "Hard",
    "Learner",
    "Margin",
    "PairBlock",
    "PairFeatures",
    "Scorer",
    "ScorerSettings",
    "SharedBlock",
    "SharedFeatures",
    "calibrate_gate_scale",
    "generator",
    "loss_set",
    "make_gate",
    "make_scorer",
    "radius",
    "warmup_length",
    "warmup_spreads",
]
