"""The paper's algorithms on arrays: scorers, gates, followers and the learner.

>>> from stacksl.core import StackSL, make_scorer
>>> StackSL(make_scorer("newton", dim=4, classes=None), horizon=100).budget
100
"""

from stacksl.core.blocks import (
    Array,
    Block,
    Inputs,
    PairBlock,
    PairFeatures,
    SharedBlock,
    SharedFeatures,
)
from stacksl.core.calibration import (
    adjusted_kl_weight,
    calibrate_gate_scale,
    clip_at_median,
    clip_at_quantile,
    gate_scale_warning,
    warmup_length,
    warmup_spreads,
)
from stacksl.core.confidence import ConfidenceSet, radius
from stacksl.core.followers import (
    FOLLOWERS,
    Follower,
    Given,
    Hard,
    gold_outside,
    loss_set,
    make_follower,
)
from stacksl.core.gates.adpo import ADPO
from stacksl.core.gates.priced import Contested, Information, Reserve, contested_score
from stacksl.core.gates.registry import (
    GATES,
    LLF,
    ONE_HOT_PACE,
    Gate,
    Margin,
    make_gate,
    require_ranking,
)
from stacksl.core.gates.rules import Clock, GateState
from stacksl.core.gates.schedules import Always, First, Random, Uniform
from stacksl.core.learner import Learner, LLFStackSL, StackSL
from stacksl.core.rng import generator, uniforms
from stacksl.core.scorers import (
    SCORERS,
    Bounds,
    Head,
    Scorer,
    ScorerSettings,
    make_scorer,
    restore_head,
)

__all__ = [
    "ADPO",
    "FOLLOWERS",
    "GATES",
    "LLF",
    "ONE_HOT_PACE",
    "SCORERS",
    "Always",
    "Array",
    "Block",
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
    "Head",
    "Information",
    "Inputs",
    "LLFStackSL",
    "Learner",
    "Margin",
    "PairBlock",
    "PairFeatures",
    "Random",
    "Reserve",
    "Scorer",
    "ScorerSettings",
    "SharedBlock",
    "SharedFeatures",
    "StackSL",
    "Uniform",
    "adjusted_kl_weight",
    "calibrate_gate_scale",
    "clip_at_median",
    "clip_at_quantile",
    "contested_score",
    "gate_scale_warning",
    "generator",
    "gold_outside",
    "loss_set",
    "make_follower",
    "make_gate",
    "make_scorer",
    "radius",
    "require_ranking",
    "restore_head",
    "uniforms",
    "warmup_length",
    "warmup_spreads",
]
