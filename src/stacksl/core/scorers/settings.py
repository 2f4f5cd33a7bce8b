"""The settings of a scorer, with the default and the origin of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from stacksl.core.losses import Reading
from stacksl.core.scorers.bounds import Action
from stacksl.errors import SettingsError

Reference = Literal["frozen", "ema", "previous"]
Track = Literal["labelled", "all"]
RadiusCounts = Literal["learnt", "rounds"]


LEAST_RIDGE = 1e-6
"""The least λ: below it the rounding of near-duplicate rows shows in the inverse of V.

V⁻¹ is updated and never inverted anew, so that its error grows with the labels and with 1/λ. After
100,000 near-duplicates the largest entry of |V⁻¹V − I| is .016 at this λ, 14 at a hundredth of it
(`benchmarks/width_error.py --floor 20`). At d = 768 it is no larger: after 20,000 near-duplicates
9e-6 at this λ, 1e-7 at 1e-5, 7e-13 at 1 (`--floor 768 --labels 20000`).
"""


@dataclass(frozen=True, slots=True)
class ScorerSettings:
    """The settings that, with name and dimensions, define a scorer.

    Attributes:
        ridge: λ of V_0 = λI, at least `LEAST_RIDGE` (paper, Section 4; 1e-3 to 1).
        delta: δ; the confidence set is to hold with probability 1 − δ.
        noise: σ, the sub-Gaussian scale of the feedback; 1 for labels.
        norm_bound: S, a bound on ‖θ*‖.
        feature_norm: L, a bound on ‖φ‖.
        learning_rate: η of the gradient step; `sgd` alone.
        kl_weight: λ of the term λ·KL(π_θ ‖ π_ref); `sgd` alone.
        kl_target: τ; the weight is adjusted after every step to keep the observed KL near it (D16);
            None leaves the weight alone; `sgd` alone.
        reference: π_ref: the starting policy, its exponential moving average, or the policy at
            the beginning of the step (whose gradient there is zero: D3); `sgd` alone.
        ema_decay: α of θ_ref ← α·θ_ref + (1 − α)·θ; `sgd` with `ema` alone.
        clip: how a loss above the level is clipped (D10); `sgd` alone.
        clip_level: ρ in nats; None is the 95 % quantile of the last losses; `sgd` alone.
        clip_multiple: ρ as a multiple of the median of the last losses instead; `sgd` alone.
        inner_steps: gradient steps on the same objective in one round, 2 or more being the
            proximal reading of the trust region (D3); `sgd` alone.
        track: what enters V (D2): rows of learnt labels, or of all rounds (as printed).
        radius_counts: the n of the radius: labels learnt, or rounds so far (as printed).
        action: the action played (D6): the largest score (`greedy`) or the largest UCB (`ucb`).

    Raises:
        SettingsError: naming every value that is out of range.
    """

    ridge: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    norm_bound: float = 1.0
    feature_norm: float = 1.0
    learning_rate: float = 0.1
    kl_weight: float = 0.1
    kl_target: float | None = None
    reference: Reference = "frozen"
    ema_decay: float = 0.99
    clip: Reading = "scale"
    clip_level: float | None = None
    clip_multiple: float | None = None
    inner_steps: int = 1
    track: Track = "labelled"
    radius_counts: RadiusCounts = "learnt"
    action: Action = "greedy"

    def __post_init__(self) -> None:
        mistakes = [*self._range_mistakes(), *self._choice_mistakes()]
        if mistakes:
            raise SettingsError("; ".join(mistakes))

    def _range_mistakes(self) -> list[str]:
        level, target, multiple = self.clip_level, self.kl_target, self.clip_multiple
        at_least_0, above_0 = "a number of at least 0", "a number above 0"
        exact = f"a number of at least {LEAST_RIDGE:g}, for V⁻¹ to be exact"
        checks = {
            "ridge": (exact, LEAST_RIDGE <= self.ridge < math.inf),
            "delta": ("a number between 0 and 1", 0 < self.delta < 1),
            "noise": (at_least_0, 0 <= self.noise < math.inf),
            "norm_bound": (at_least_0, 0 <= self.norm_bound < math.inf),
            "feature_norm": (above_0, 0 < self.feature_norm < math.inf),
            "learning_rate": (above_0, 0 < self.learning_rate < math.inf),
            "kl_weight": (at_least_0, 0 <= self.kl_weight < math.inf),
            "kl_target": (above_0, target is None or 0 < target < math.inf),
            "ema_decay": ("a number from 0 to below 1", 0 <= self.ema_decay < 1),
            "clip_level": (above_0, level is None or level > 0),
            "clip_multiple": (
                f"{above_0}, without a clip_level",
                multiple is None or (multiple > 0 and level is None),
            ),
            "inner_steps": ("1 or more", self.inner_steps >= 1),
        }
        return [
            f"{name} must be {wanted}, got {getattr(self, name)}"
            for name, (wanted, good) in checks.items()
            if not good
        ]

    def _choice_mistakes(self) -> list[str]:
        choices = {
            "reference": Reference,
            "clip": Reading,
            "track": Track,
            "radius_counts": RadiusCounts,
            "action": Action,
        }
        return [
            f"{name} must be one of {', '.join(get_args(known))}, got '{getattr(self, name)}'"
            for name, known in choices.items()
            if getattr(self, name) not in get_args(known)
        ]
