"""The scorer `sgd` of studies: several steps a label, a moving reference, a target of the KL term.

A run of the product has none of these: its reference is the policy at the start or before the step,
its KL weight stays, and its clip level is a number or a quantile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs
from stacksl.core.calibration import WINDOW
from stacksl.core.losses import kl
from stacksl.core.scorers import Scorer, ScorerSettings, make_scorer
from stacksl.core.scorers.gradient import GradientScorer
from stacksl.core.scorers.rows import all_scores, pick


@dataclass(frozen=True, slots=True)
class StudySettings(ScorerSettings):
    """The settings of a scorer, and those of `sgd` that only studies set.

    Attributes:
        reference: as in a run, or `ema`: the exponential moving average of the policy.
        kl_target: τ; the weight is adjusted after every step to keep the observed KL near it (D16);
            None leaves the weight alone.
        ema_decay: α of θ_ref ← α·θ_ref + (1 − α)·θ under `ema`.
        clip_multiple: ρ as a multiple of the median of the last losses.
        inner_steps: gradient steps on the same objective in one round, 2 or more being the
            proximal reading of the trust region (D3).
    """

    reference: Literal["frozen", "ema", "previous"] = "frozen"  # type: ignore[assignment]
    kl_target: float | None = None
    ema_decay: float = 0.99
    clip_multiple: float | None = None
    inner_steps: int = 1

    @classmethod
    def of(cls, settings: ScorerSettings | None) -> StudySettings:
        """`settings` of a run, with those of studies at their defaults."""
        if isinstance(settings, StudySettings):
            return settings
        return cls(**({} if settings is None else asdict(settings)))


class StudyGradient(GradientScorer):
    """`sgd` with `StudySettings`: `inner_steps` on one objective, with π_ref fixed.

    After them θ_ref ← α·θ_ref + (1 − α)·θ under `ema`, and with `kl_target` the KL weight is
    adjusted (`adjusted_kl_weight`). The clip level may be `clip_multiple` times the median of the
    last 200 losses.
    """

    def __init__(self, dim: int, classes: int | None, settings: StudySettings) -> None:
        super().__init__(dim, classes, settings)
        self.study = settings

    def _descend(
        self,
        inputs: Inputs,
        presented: tuple[int, ...],
        gold: int | None,
        level: float,
        anchor: Array,
    ) -> float:
        step = super()._descend
        loss = step(inputs, presented, gold, level, anchor)
        for _ in range(self.study.inner_steps - 1):
            step(inputs, presented, gold, level, anchor)
        if self.study.kl_target is not None:
            self._steady(inputs, presented, anchor, self.study.kl_target)
        if self.study.reference == "ema":
            self.reference *= self.study.ema_decay
            self.reference += (1.0 - self.study.ema_decay) * self.theta
        return loss

    def _steady(
        self, inputs: Inputs, presented: tuple[int, ...], anchor: Array, target: float
    ) -> None:
        """Adjust the KL weight by the observed KL(π_θ ‖ π_ref) of the step."""
        now = pick(self.scores(inputs), presented)
        observed = kl(now, pick(all_scores(anchor, inputs), presented))[0]
        most = 1.0 / self.settings.learning_rate
        before = max(self.kl_weight, 1e-6)
        self.kl_weight = adjusted_kl_weight(before, observed, target, most=most)

    def _level(self) -> float:
        level = super()._level()
        multiple = self.study.clip_multiple
        if multiple is None or self.settings.clip_level is not None or math.isinf(level):
            return level
        return clip_at_median(self._losses[: min(self.learned, WINDOW)], multiple)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `GradientScorer.state`; with the reference and the KL weight, which move."""
        moving = {"reference": self.reference.copy(), "kl_weight": np.array([self.kl_weight])}
        return {**super().state(), **moving}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""
        super().restore(state)
        self.reference = np.array(state["reference"])
        self.kl_weight = float(state["kl_weight"][0])


def make_study_scorer(
    name: str, *, dim: int, classes: int | None, settings: ScorerSettings | None = None
) -> Scorer:
    """See `stacksl.core.make_scorer`; `sgd` reads the settings of studies, too."""
    if name == "sgd":
        return StudyGradient(dim, classes, StudySettings.of(settings))
    return make_scorer(name, dim=dim, classes=classes, settings=settings)


def adjusted_kl_weight(
    kl_weight: float, observed: float, target: float = 1e-3, most: float = 1e6
) -> float:
    """The KL weight after a step whose observed KL was `observed` (nats).

    It grows by half when observed > 1.5·τ, shrinks to two thirds when observed < τ/1.5, and stays
    otherwise, within [1e-6, `most`]; so the observed KL is kept near τ = `target`. A gradient step
    of rate η needs `most` = 1/η: a larger weight overshoots, the KL grows, and the weight with it,
    until θ diverges.

    Source: paper, "KL Scale λ": τ in [1e-4, 1e-2]; the rule is the adaptive penalty of
    Schulman et al. 2017 (PPO).

    >>> adjusted_kl_weight(1.0, observed=1.0), adjusted_kl_weight(1.0, observed=1e-3)
    (1.5, 1.0)
    """
    if observed > 1.5 * target:
        return min(most, kl_weight * 1.5)
    if observed < target / 1.5:
        return max(1e-6, kl_weight / 1.5)
    return kl_weight


def clip_at_median(losses: Array, multiple: float = 3.0) -> float:
    """ρ, `multiple` times the median of the losses in a sliding window, (n,), in nats.

    Source: paper, "Loss Clipping ρ": a small multiple of the median.
    """
    return multiple * float(np.median(losses))
