"""The paper's rules for c, the KL weight, ρ and η.

Warm-up items are scored at the starting θ before round 1; no label is bought for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stacksl.errors import GateNeverOpens, SettingsError

if TYPE_CHECKING:
    from stacksl.core.blocks import Array, Inputs
    from stacksl.core.scorers import Scorer

CAP = 0.9
"""The largest c, as a share of the smallest warm-up spread (DESIGN D7)."""


def warmup_length(horizon: int) -> int:
    """T0 = max(1, min(500, T/20)), the warm-up items of a run of `horizon` rounds.

    Source: paper, parameter analysis (500 to 1,000 steps). Deviation: shorter where T is below
    10,000, so that a warm-up is never most of the run.

    >>> warmup_length(20_000), warmup_length(1000), warmup_length(3)
    (500, 50, 1)
    """
    return max(1, min(500, horizon // 20))


def warmup_spreads(
    scorer: Scorer, block: Sequence[Inputs], presented: Sequence[tuple[int, ...]]
) -> Array:
    """The paper's spread Δ of each warm-up item at the scorer's present θ, (T0,), score units."""
    pairs = zip(block, presented, strict=True)
    return np.array([scorer.bounds(inputs, shown).spread for inputs, shown in pairs])


@dataclass(frozen=True, slots=True)
class GateScale:
    """The calibrated c of the gate `llf`, with the spreads that it follows from (score units).

    Attributes:
        value: c.
        median: the median of the warm-up spreads; κ times it is the paper's rule.
        smallest: the smallest of them.
        capped: whether the cap, not the rule, set c.
    """

    value: float
    median: float
    smallest: float
    capped: bool


def calibrate_gate_scale(spreads: Array, kappa: float = 1.0, *, cap: bool = True) -> GateScale:
    """The median rule, c = κ·median(Δ) over the warm-up, at most 0.9 × the smallest Δ.

    Args:
        spreads: the warm-up spreads, (T0,) (`warmup_spreads`).
        kappa: κ > 0; the paper takes 0.5 to 1.5.
        cap: whether c is held below the smallest spread. Above it the gate may never ask, since
            a skipped round changes neither the spread nor the threshold (D7).

    Raises:
        SettingsError: no spread, one that is not finite, or κ not positive.
        GateNeverOpens: a smallest spread of 0; or, with the cap off, a c at or above it.

    Source: paper, "Confidence Scale c". Deviation: the cap.

    >>> calibrate_gate_scale(np.array([1.0, 2.0, 4.0])).value
    0.9
    """
    _check_warmup(spreads, kappa)
    smallest, median = float(np.min(spreads)), float(np.median(spreads))
    if smallest <= 0.0:
        raise GateNeverOpens(
            "the gate 'llf' needs a positive spread on every warm-up item, the smallest is "
            f"{smallest:g}: no c would open it there; use another gate, such as 'first'"
        )
    rule = kappa * median
    if not cap and rule >= smallest:
        raise GateNeverOpens(
            f"the gate 'llf' needs c below the smallest warm-up spread {smallest:.6g}, the median "
            f"rule with kappa = {kappa:g} gives {rule:.6g} and the cap is off: turn the cap on, or "
            "lower kappa"
        )
    value = min(rule, CAP * smallest) if cap else rule
    return GateScale(value, median, smallest, capped=value < rule)


def _check_warmup(spreads: Array, kappa: float) -> None:
    if len(spreads) == 0 or not np.all(np.isfinite(spreads)):
        raise SettingsError(
            f"calibrating the gate 'llf' needs at least one warm-up item and finite spreads, got "
            f"{len(spreads)} items: use a scorer that keeps widths (track 'labelled' or 'all')"
        )
    if not 0.0 < kappa < math.inf:
        raise SettingsError(
            f"kappa must be a positive number, got {kappa}: the paper takes 0.5-1.5"
        )


def gate_scale_warning(gate_scale: float, spreads: Array) -> str | None:
    """The warning for an explicit c at or above the smallest warm-up spread, else None."""
    smallest = float(np.min(spreads))
    if gate_scale < smallest:
        return None
    return (
        f"gate_scale {gate_scale:g} is not below the smallest warm-up spread {smallest:.6g}: the "
        f"gate 'llf' may never ask; {CAP * smallest:.6g} would open it, or leave gate_scale out"
    )


def adjusted_kl_weight(
    kl_weight: float, observed: float, target: float = 1e-3, factor: float = 1.5, most: float = 1e6
) -> float:
    """The KL weight after a step whose observed KL was `observed` (nats).

    It grows by `factor` when observed > factor·τ, shrinks by it when observed < τ/factor, and
    stays otherwise, within [1e-6, `most`]; so the observed KL is kept near τ = `target`. A gradient
    step of rate η needs `most` = 1/η: a larger weight overshoots, the KL grows, and the weight
    with it, until θ diverges.

    Raises:
        SettingsError: a weight or a target that is not positive, or a factor of at most 1.

    Source: paper, "KL Scale λ": τ in [1e-4, 1e-2]; the rule is the adaptive penalty of
    Schulman et al. 2017 (PPO).

    >>> adjusted_kl_weight(1.0, observed=1.0), adjusted_kl_weight(1.0, observed=1e-3)
    (1.5, 1.0)
    """
    if kl_weight <= 0.0 or target <= 0.0 or factor <= 1.0:
        raise SettingsError(
            "adjusting the KL weight needs a positive weight and target and a factor above 1, got "
            f"{kl_weight}, {target} and {factor}"
        )
    if observed > factor * target:
        return min(most, kl_weight * factor)
    if observed < target / factor:
        return max(1e-6, kl_weight / factor)
    return kl_weight


def clip_at_quantile(losses: Array, quantile: float = 0.95) -> float:
    """ρ, the `quantile` of the losses in a sliding window, (n,), in nats.

    Raises:
        SettingsError: no loss, or a quantile outside (0, 1].

    Source: paper, "Loss Clipping ρ": the 90th to 95th percentile.
    """
    if len(losses) == 0 or not 0.0 < quantile <= 1.0:
        raise SettingsError(
            f"the clip level needs at least one loss and a quantile in (0, 1], got {len(losses)} "
            f"losses and {quantile}"
        )
    rank = math.ceil(quantile * len(losses))
    return float(np.sort(losses)[rank - 1])  # an observed loss, not an interpolated one


def clip_at_median(losses: Array, multiple: float = 3.0) -> float:
    """ρ, `multiple` times the median of the losses in a sliding window, (n,), in nats.

    Raises:
        SettingsError: no loss, or a multiple that is not positive.

    Source: paper, "Loss Clipping ρ": a small multiple of the median.
    """
    if len(losses) == 0 or multiple <= 0.0:
        raise SettingsError(
            f"the clip level needs at least one loss and a positive multiple, got {len(losses)} "
            f"losses and {multiple}"
        )
    return multiple * float(np.median(losses))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The paper's settings for a range of budget fractions.

    Attributes:
        name: 'small', 'medium' or 'large'.
        up_to: the largest budget fraction it is for.
        kappa: κ of the median rule; larger is a stricter gate.
        kl_weight: λ of the KL term.
        learning_rate: η of `sgd`.
    """

    name: str
    up_to: float
    kappa: float
    kl_weight: float
    learning_rate: float


RECIPES: tuple[Recipe, ...] = (
    Recipe("small", up_to=0.1, kappa=1.5, kl_weight=1.0, learning_rate=0.03),
    Recipe("medium", up_to=0.3, kappa=1.0, kl_weight=0.5, learning_rate=0.06),
    Recipe("large", up_to=1.0, kappa=0.5, kl_weight=0.1, learning_rate=0.1),
)
"""The paper's three recipes by budget size; it gives directions, the numbers are ours.

κ spans the paper's range; kl_weight's middle is the `paper` preset's; the largest learning rate is
the preset's. Measured against them: in the linear softmax game SGD's best learning rate *rises*
as the budget falls (0.1 at 400 labels, 0.03 at 2,000, 0.01 at 20,000), and at a ridge of 1 κ
under the cap changes nothing. They are kept because they are the paper's.
"""


def recipe(budget_fraction: float) -> Recipe:
    """The recipe of a budget fraction in (0, 1]: small up to 0.1, medium up to 0.3, then large.

    Raises:
        SettingsError: the fraction is outside (0, 1].

    Source: paper, "Practical Recipes".

    >>> recipe(0.1).name, recipe(0.3).name, recipe(0.31).name
    ('small', 'medium', 'large')
    """
    if not 0.0 < budget_fraction <= 1.0:
        raise SettingsError(
            f"a recipe needs a budget fraction above 0 and at most 1, got {budget_fraction}: "
            "divide the labels by the rounds"
        )
    return next(r for r in RECIPES if budget_fraction <= r.up_to)


@dataclass(frozen=True, slots=True)
class Range:
    """The paper's recommendation for a setting: an interval, or a few values.

    Attributes:
        low, high: the interval's ends, both included.
        values: the allowed values where it is not an interval.
    """

    low: float
    high: float
    values: tuple[float, ...] = ()

    def __contains__(self, value: float) -> bool:
        if self.values:
            return any(math.isclose(value, v) for v in self.values)
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.values:
            return " or ".join(f"{v:g}" for v in self.values)
        return f"{self.low:g} to {self.high:g}"


PAPER_RANGES: dict[str, Range] = {
    "kappa": Range(0.5, 1.5),
    "warmup": Range(500, 1000),
    "ridge": Range(1e-3, 1.0),
    "delta": Range(0.05, 0.1, values=(0.05, 0.1)),
    "ema_decay": Range(0.9, 0.999),
    "lora_learning_rate": Range(1e-5, 5e-5),
    "kl_target": Range(1e-4, 1e-2),
    "clip_quantile": Range(0.9, 0.95),
}
"""The paper's recommended values, by the name of the setting (its parameter analysis)."""


def range_warnings(explicit: Mapping[str, float]) -> list[str]:
    """A warning for every explicit setting outside the range that the paper recommends.

    Names without a range are ignored.

    >>> range_warnings({"ridge": 10.0, "delta": 0.05})
    ['ridge = 10 is outside the range that the paper recommends (0.001 to 1)']
    """
    return [
        f"{name} = {value:g} is outside the range that the paper recommends ({PAPER_RANGES[name]})"
        for name, value in explicit.items()
        if name in PAPER_RANGES and value not in PAPER_RANGES[name]
    ]
