"""The paper's two algorithms as learners."""

from __future__ import annotations

from typing import Any, Literal

from stacksl.core import Scorer
from stacksl.core.gates.registry import Always
from stacksl.core.learner import Learner
from stacksl_lab.baselines.gates import StudyLLF
from stacksl_lab.learner import StudyLearner


def StackSL(scorer: Scorer, *, horizon: int, budget: int | None = None, **options: Any) -> Learner:
    """Algorithm 1: a learner with the gate `always`; the budget is T unless given."""
    labels = horizon if budget is None else budget
    return Learner(scorer, Always(), budget=labels, horizon=horizon, **options)


def LLFStackSL(
    scorer: Scorer,
    *,
    budget: int,
    horizon: int,
    gate_scale: float = 1.0,
    reading: Literal["else", "literal"] = "else",
    **options: Any,
) -> Learner:
    """Algorithm 2: a learner with the gate `llf`."""
    gate = StudyLLF(gate_scale, reading)
    return StudyLearner(scorer, gate, budget=budget, horizon=horizon, **options)
