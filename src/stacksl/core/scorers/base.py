"""The settings of a scorer, and what the scorers of one parameter θ and one matrix share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs
from stacksl.core.confidence import ConfidenceSet, radius
from stacksl.core.gates.rules import TIE
from stacksl.core.losses import Reading
from stacksl.core.scorers.rows import all_scores, pick
from stacksl.errors import SettingsError
from stacksl.types import Label

Reference = Literal["frozen", "previous"]

LEAST_RIDGE = 1e-6
"""The least λ: below it the rounding of near-duplicate rows shows in the inverse of V.

V⁻¹ is updated and never inverted again, so that its error grows with the labels and with 1/λ. After
100,000 near-duplicates the largest entry of |V⁻¹V − I| is .016 at this λ, 14 at a hundredth of it
(`benchmarks/width_error.py --floor 20`). At d = 768 it is no larger: after 20,000 near-duplicates
9e-6 at this λ, 1e-7 at 1e-5, 7e-13 at 1 (`--floor 768 --labels 20000`).
"""


@dataclass(frozen=True, slots=True)
class ScorerSettings:
    """The settings that, with name and dimensions, define a scorer.

    Those of a run are checked where they are stated, in `runs.settings.fields`.

    Attributes:
        ridge: λ of V_0 = λI, at least `LEAST_RIDGE` (paper, Section 4; 1e-3 to 1).
        delta: δ; the confidence set is to hold with probability 1 − δ.
        noise: σ, the sub-Gaussian scale of the feedback; 1 for labels.
        norm_bound: S, a bound on ‖θ*‖.
        learning_rate: η of the gradient step; `sgd` alone.
        kl_weight: λ of the term λ·KL(π_θ ‖ π_ref); `sgd` alone.
        reference: π_ref: the starting policy, or the policy at the beginning of the step (whose
            gradient there is zero: D3); `sgd` alone.
        clip: how a loss above the level is clipped (D10); `sgd` alone.
        clip_level: ρ in nats; None is the 95% quantile of the last losses; `sgd` alone.
        track: what enters V (D2): rows of learned labels, or of all rounds (as printed).
        radius_counts: the n of the radius: labels learned, or rounds so far (as printed).
        action: the action played (D6): the largest score (`greedy`) or the largest UCB (`ucb`).
    """

    ridge: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    norm_bound: float = 1.0
    learning_rate: float = 0.1
    kl_weight: float = 0.1
    reference: Reference = "frozen"
    clip: Reading = "scale"
    clip_level: float | None = None
    track: Literal["labeled", "all"] = "labeled"
    radius_counts: Literal["learned", "rounds"] = "learned"
    action: Literal["greedy", "ucb"] = "greedy"


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """One item's scores and confidence bounds, restricted to what was presented.

    UCB(x) = s_x + radius·‖φ(z, x)‖ and LCB(x) with a minus, the norm in V⁻¹ (or H⁻¹).
    All arrays are (m,) and follow the order of `presented`.

    Attributes:
        presented: C_t, indices into the item's full candidates.
        scores: s_x = θᵀφ(z, x), plus the fixed part of the score where features carry one.
        probabilities: π_θ(x | z) within C_t; they add to 1.
        widths: ‖φ(z, x)‖ in V⁻¹, never scaled by the radius; NaN where no matrix is kept.
        pair_widths: ‖φ(z, x) − φ(z, x̂)‖ in V⁻¹, 0 at the choice; NaN where no matrix is kept.
        radius: the confidence radius, in score units.
        dim: d, the columns of φ, or of h for class heads.
        choice: the position (not the candidate's index) of the action played, x̂_t.
        information: tr(F H⁻¹), the information of a label, in nats to first order; for scorers
            that keep no Fisher information the choice's width squared, that of a reward. NaN where
            no matrix is kept.
        volume: log det(V/λI) (nats), 0 before any label; NaN where no matrix is kept.
        prior_width: 1/√λ, the largest ‖φ‖ in V⁻¹ before any label.
    """

    presented: tuple[int, ...]
    scores: Array
    probabilities: Array
    widths: Array
    pair_widths: Array
    radius: float
    dim: int
    choice: int
    information: float = float("nan")
    volume: float = float("nan")
    prior_width: float = 1.0

    @property
    def upper(self) -> Array:
        """UCB of each candidate, (m,), in score units."""
        return self.scores + self.radius * self.widths

    @property
    def lower(self) -> Array:
        """LCB of each candidate, (m,), in score units."""
        return self.scores - self.radius * self.widths

    @property
    def spread(self) -> float:
        """The paper's gap Δ_t = max UCB − min LCB, in score units."""
        return float(self.upper.max() - self.lower.min())


class Scorer(ABC):
    """Scores an item's candidates, with confidence bounds, and learns from bought labels.

    `presented`, `choice` and labels are indices into the item's full candidates. A scorer sees one
    item at a time, so its results do not depend on how rounds are cut into blocks. One of your own
    says its widths, and how a label and an unasked round change it.

    Args:
        shape: of θ: (d,) for pair features, (K, d) for class heads.
        degrees: the dimensions that the radius is of; all of θ by default.

    Attributes:
        learned: labels learned so far.
        volume: log det(V/λI), in nats.
    """

    name: str
    learned: int
    volume: float

    def __init__(
        self, shape: tuple[int, ...], settings: ScorerSettings, degrees: int | None = None
    ) -> None:
        self.settings = settings
        self.dim = shape[-1]
        self.theta: Array = np.zeros(shape)
        self.rounds = 0
        self._degrees = self.theta.size if degrees is None else degrees

    def scores(self, inputs: Inputs) -> Array:
        """offset_x + θᵀφ(z, x) of all K candidates, (K,); changes nothing."""
        return all_scores(self.theta, inputs)

    def bounds(
        self, inputs: Inputs, presented: tuple[int, ...], scores: Array | None = None
    ) -> Bounds:
        """Scores, policy, widths and the action among the presented; changes nothing.

        The choice has the largest score (`greedy`) or UCB (`ucb`). `scores`, (K,), replace the
        scorer's own, such as those of a refit.

        Raises:
            SettingsError: scores are not finite.
        """
        scores = pick(self.scores(inputs) if scores is None else scores, presented)
        if not np.isfinite(scores).all():
            raise SettingsError(
                "scores should be finite numbers, got NaN or infinity: θ has diverged, or features"
                " are not finite; lower the learning rate, or repair the features"
            )
        settings = self.settings
        policy, widths, pairs, information = self._view(inputs, presented, scores)
        bound_radius = radius(
            settings.noise,
            self._degrees,
            self.learned if settings.radius_counts == "learned" else self.rounds,
            settings.ridge,
            settings.delta,
            settings.norm_bound,
        )
        reach = bound_radius * widths
        scale = float(np.nanmax(np.abs(scores) + np.nan_to_num(reach)))
        values = scores + reach if settings.action == "ucb" else scores
        choice = tie_argmax(values, scale, presented)
        is_other = np.arange(len(scores)) != choice
        return Bounds(
            presented,
            scores,
            policy,
            widths,
            pairs(choice) if callable(pairs) else np.where(is_other, pairs, 0.0),
            bound_radius,
            self.dim,
            choice,
            float(widths[choice]) ** 2 if information is None else information,
            self.volume,
            1.0 / math.sqrt(settings.ridge),
        )

    def step(
        self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label | None
    ) -> None:
        """Learn one label; `presented` is the loss set C_t ∪ {gold}, `choice` is x̂_t.

        None is the step on the KL term alone, which only `sgd` has.
        """
        if label is not None:
            self._learn(inputs, presented, choice, label)
            self.rounds += 1

    def skip(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        """Process an unasked round, once each: it is counted, and enters V under `all`."""
        self.rounds += 1
        if self.settings.track == "all":
            self._track(inputs, presented, choice)

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that `step` and `skip` change, as copies."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""

    @abstractmethod
    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        """The policy of the presented, whose scores are given, and their widths."""

    @abstractmethod
    def _learn(self, inputs: Inputs, presented: tuple[int, ...], choice: int, label: Label) -> None:
        """Learn one label."""

    @abstractmethod
    def _track(self, inputs: Inputs, presented: tuple[int, ...], choice: int) -> None:
        """Add an unasked round to the matrix."""


Pairs: TypeAlias = Callable[[int], Array]
"""A function from a position to the (m,) pair widths against it."""

View: TypeAlias = tuple[Array, Array, Pairs | float, float | None]
"""The (m,) probabilities and widths, the pair widths or that of every pair, and the information
of a label; None is the choice's width squared."""


def tie_argmax(values: Array, scale: float, indices: tuple[int, ...] | None = None) -> int:
    """The position of the largest of `values`, (m,), ties going to the lowest index.

    Values within 1e-9·`scale` of the maximum tie. `indices` are the candidates'
    indices where `values` does not follow their order; without it positions decide.

    >>> tie_argmax(np.array([1.0, 2.0, 2.0 + 1e-12]), scale=2.0)
    1
    """
    tied = np.flatnonzero(values >= values.max() - TIE * scale)
    if indices is None or len(tied) == 1:
        return int(tied[0])
    return int(min(tied, key=lambda position: indices[position]))


class LinearScorer(Scorer):
    """A scorer with the confidence set of one matrix."""

    def __init__(
        self, shape: tuple[int, ...], settings: ScorerSettings, degrees: int | None = None
    ) -> None:
        super().__init__(shape, settings, degrees)
        self.confidence = ConfidenceSet.empty(self.dim, settings.ridge)

    @property
    def learned(self) -> int:  # type: ignore[override]
        """Labels that entered the matrix."""
        return self.confidence.learned

    @property
    def volume(self) -> float:  # type: ignore[override]
        """Log det(V/λI), in nats."""
        return self.confidence.volume

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that a step changes, as copies."""
        return {
            "theta": self.theta.copy(),
            "gram_inv": self.confidence.gram_inv.copy(),
            "volume": np.array([self.confidence.volume]),
            "counts": np.array([self.learned, self.rounds], dtype=np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""
        self.theta = np.array(state["theta"])
        self.confidence.gram_inv = np.array(state["gram_inv"])
        self.confidence.volume = float(state["volume"][0])
        self.confidence.learned, self.rounds = (int(count) for count in state["counts"])
