"""The paper's rules for c and ρ.

Warm-up items are scored at the starting θ before round 1; no label is bought for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.core.blocks import Array, Inputs
    from stacksl.core.scorers import Scorer

CAP = 0.9
"""The largest c, as a share of the smallest warm-up spread (`docs/paper.md`, D7)."""


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
    return np.array([scorer.bounds(inputs, subset).spread for inputs, subset in pairs])


def calibrate_gate_scale(spreads: Array, kappa: float = 1.0) -> float:
    """The c of the gate `llf` by the median rule, κ·median(Δ), at most 0.9 × the smallest Δ.

    Above the smallest spread the gate may never ask, since a skipped round changes neither the
    spread nor the threshold (D7).

    Args:
        spreads: the warm-up spreads, (T0,) (`warmup_spreads`).
        kappa: κ > 0; the paper takes 0.5 to 1.5.

    Raises:
        SettingsError: no spread, or one that is 0 or not finite.

    Source: paper, "Confidence Scale c". Deviation: the cap.

    >>> calibrate_gate_scale(np.array([1.0, 2.0, 4.0]))
    0.9
    """
    if len(spreads) == 0 or not np.all(np.isfinite(spreads)):
        raise SettingsError(
            f"calibrating the gate 'llf' needs at least one warm-up item and finite spreads, got "
            f"{len(spreads)} items: use a scorer that keeps widths"
        )
    smallest, rule = float(np.min(spreads)), kappa * float(np.median(spreads))
    if smallest <= 0.0:
        raise SettingsError(
            "the gate 'llf' needs a positive spread on every warm-up item, the smallest is "
            f"{smallest:g}: no c would open it there; use another gate, such as 'first'"
        )
    return min(rule, CAP * smallest)


WINDOW = 200  # losses that the clip level is a quantile of
_ENOUGH = 20  # losses before that quantile means anything


def clip_level(losses: Array, fixed: float | None) -> float:
    """ρ in nats: the `fixed` one, or `clip_at_quantile` of the last `WINDOW` losses.

    It is infinite before 20 losses, so that nothing is clipped.
    """
    if fixed is not None:
        return fixed
    return clip_at_quantile(losses) if len(losses) >= _ENOUGH else math.inf


def clip_at_quantile(losses: Array, quantile: float = 0.95) -> float:
    """ρ, the `quantile` of the losses in a sliding window, (n,), in nats.

    Source: paper, "Loss Clipping ρ": the 90th to 95th percentile.
    """
    rank = math.ceil(quantile * len(losses))
    return float(np.sort(losses)[rank - 1])  # an observed loss, not an interpolated one
