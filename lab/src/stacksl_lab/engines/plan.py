"""The parameters of a run over a stream, checked, and as constants of a compiled loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from stacksl.core.gates.registry import LLF, Always, First, Gate, Margin, Random
from stacksl.core.scorers import make_scorer
from stacksl.errors import SettingsError
from stacksl_lab.baselines.adpo import ADPO
from stacksl_lab.baselines.gates import DGS, LUCB, Avoided, Contested, Entropy, StudyLLF, Uniform
from stacksl_lab.baselines.registry import CODES
from stacksl_lab.baselines.reserve import Reserve
from stacksl_lab.drift import DriftGuard
from stacksl_lab.engines.arrays import Stream
from stacksl_lab.gradient import StudySettings
from stacksl_lab.learner import expect_greedy

SGD, RIDGE, NEWTON = 0, 1, 2
FROZEN, EMA, PREVIOUS = 0, 1, 2
NO_CLIP, LITERAL_CLIP, SCALE_CLIP = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What fixes a run besides its stream; the names are those of `run_stream`'s arguments."""

    scorer: str
    settings: StudySettings
    gate: Gate
    budget: int
    seed: int = 0
    kl_on_skips: bool = False
    asks_ucb: bool = False
    width_scale: float | None = None
    certificates: bool = True
    marks: tuple[int, ...] = ()
    present: int | None = None
    drift: DriftGuard | None = None

    def check(self, stream: Stream) -> None:
        """Refuse terms that do not go together, or not with `stream`.

        Raises:
            SettingsError: in one sentence.
        """
        if self.budget < 0:
            raise SettingsError(f"a budget should be at least 0 labels, not {self.budget}")
        self._check_scorer(stream)
        expect_greedy(self.asks_ucb, self.settings.action)
        self._check_marks(stream.rounds)
        if self.present is not None:
            self._check_follower(stream, self.present)
        if self.drift is not None:
            self._check_drift(stream)

    def _check_scorer(self, stream: Stream) -> None:
        classes = None if stream.classes is None else 1
        make_scorer(self.scorer, dim=1, classes=classes, settings=self.settings)
        if len(stream.rewards) and (self.scorer != "ridge" or stream.classes is not None):
            raise SettingsError(
                f"the scorer '{self.scorer}' "
                f"{'' if stream.classes is None else 'on class heads '}learns "
                "from labels, got rewards: take the scorer 'ridge' on pair features"
            )

    def _check_marks(self, rounds: int) -> None:
        rising = list(self.marks) == sorted(set(self.marks))
        if not rising or not all(1 <= mark <= rounds for mark in self.marks):
            raise SettingsError(
                f"marks should be rising numbers of rounds from 1 to {rounds}, not {self.marks}"
            )

    def _check_follower(self, stream: Stream, present: int) -> None:
        if stream.classes is not None or not 2 <= present <= stream.candidates:
            raise SettingsError(
                f"an adaptive follower presents 2 to all {stream.candidates} candidates of pair "
                f"features, but present = {present}"
                f"{'' if stream.classes is None else ' with classes'}: leave it out to "
                "present every candidate"
            )
        if len(stream.labels):
            raise SettingsError(
                "an adaptive follower's labels depend on what it presents: give the utilities of "
                "all candidates in place of labels, or leave `present` out"
            )

    def _check_drift(self, stream: Stream) -> None:
        labeled = not len(stream.rewards)
        if stream.classes is not None:
            raise SettingsError(
                "the drift guard needs pair features: leave drift out for class heads"
            )
        if labeled and self.scorer == "ridge":
            raise SettingsError(
                "the drift guard reads labels by the policy's own log-loss, and the one-hot scores "
                "of 'ridge' are no such policy: take the scorer 'newton' or 'sgd', or leave drift "
                "out"
            )


class Plan(NamedTuple):
    """The constants of one run: scorer, gate, clock, and which numbers are wanted.

    A named tuple is what numba passes by value.

    `gate` and the numbers after it are the gate's code and parameters; those of other gates are
    there too, at values that nobody reads.
    """

    scorer: int
    dim: int  # d, the columns of φ or of h
    ridge: float
    delta: float
    noise: float
    norm_bound: float
    prior_width: float  # the largest width before any label
    learning_rate: float
    kl_target: float  # NaN: the weight stays
    reference: int
    ema_decay: float
    clip: int
    clip_level: float  # NaN: from the window
    clip_multiple: float  # NaN: the window's quantile; else so many times its median
    inner_steps: int
    tracks_all: bool  # rows of all rounds enter V, or those of learned labels
    by_rounds: bool  # the n of the radius: rounds gone by, or labels learned
    ucb: bool  # the largest UCB is played in every round
    asks_ucb: bool  # the largest UCB, or what `width` asks about, is played in asked rounds
    gate: int
    by_widths: bool  # the gate's statistic is made of widths, pair widths or the matrix
    by_pairs: bool  # it is made of pair widths with the choice
    exact_spend: bool
    literal: bool
    gate_scale: float
    pace: float
    adaptive: bool
    gate_width: float
    share: float
    reserve: float
    pending: int
    capacity: float  # the most that the budget can add to log det V
    reach: float  # the widest pair before any label, over the largest width
    floor: float
    level: float  # NaN: the level that keeps the pace
    tolerance: float
    bound_scale: float
    exponent: float  # NaN: the width that the budget can reach
    gate_ridge: float
    gate_delta: float
    budget: int
    horizon: int
    kl_on_skips: bool
    width_scale: float
    certificates: bool
    present: int  # the candidates a follower shows; 0: all of them
    kl_weight: float  # at the start, and again after a reset
    guarded: bool  # the numbers below are a drift guard's
    alarm_level: float
    allowance: float
    surprise_cap: float
    leverage: float
    warm: float


def make_plan(terms: Terms, dim: int, horizon: int) -> Plan:
    """The plan of a run under `terms` of so many rounds, in `dim` columns of φ or of h."""
    settings, reserve = terms.settings, _reserve_of(terms.gate)
    prior_width = 1.0 / math.sqrt(settings.ridge)
    return Plan(
        scorer=("sgd", "ridge", "newton").index(terms.scorer),
        dim=int(dim),
        budget=int(terms.budget),
        horizon=int(horizon),
        kl_on_skips=bool(terms.kl_on_skips),
        asks_ucb=bool(terms.asks_ucb),
        width_scale=_alpha(terms.width_scale, dim),
        certificates=bool(terms.certificates),
        present=terms.present or 0,
        prior_width=prior_width,
        capacity=reserve.most(int(terms.budget), int(dim), prior_width),
        **_scorer_numbers(settings),
        **_gate_numbers(terms.gate, dim),
        **_guard_numbers(terms.drift),
    )


def _scorer_numbers(settings: StudySettings) -> dict[str, Any]:
    return {
        "ridge": float(settings.ridge),
        "delta": float(settings.delta),
        "noise": float(settings.noise),
        "norm_bound": float(settings.norm_bound),
        "learning_rate": float(settings.learning_rate),
        "kl_weight": float(settings.kl_weight),
        "kl_target": _or_nan(settings.kl_target),
        "reference": ("frozen", "ema", "previous").index(settings.reference),
        "ema_decay": float(settings.ema_decay),
        "clip": ("none", "literal", "scale").index(settings.clip),
        "clip_level": _or_nan(settings.clip_level),
        "clip_multiple": _or_nan(settings.clip_multiple),
        "inner_steps": int(settings.inner_steps),
        "tracks_all": settings.track == "all",
        "by_rounds": settings.radius_counts == "rounds",
        "ucb": settings.action == "ucb",
    }


def _guard_numbers(drift: DriftGuard | None) -> dict[str, Any]:
    guard = drift or DriftGuard()
    return {
        "guarded": drift is not None,
        "alarm_level": float(guard.level),
        "allowance": float(guard.allowance),
        "surprise_cap": float(guard.cap),
        "leverage": float(guard.leverage),
        "warm": float(guard.warm),
    }


def _gate_numbers(gate: Gate, dim: int) -> dict[str, Any]:
    llf = gate if isinstance(gate, LLF) else LLF()
    margin = gate if isinstance(gate, Margin) else Margin()
    adpo = gate if isinstance(gate, ADPO) else ADPO()
    reserve = _reserve_of(gate)
    return {
        "gate": CODES[type(gate)],
        "by_widths": by_widths(gate),
        "by_pairs": isinstance(gate, (Contested, ADPO, Avoided, DGS, Reserve)),
        "exact_spend": bool(gate.exact_spend),
        "literal": isinstance(gate, StudyLLF) and gate.literal,
        "gate_scale": float(llf.gate_scale),
        "pace": float(gate.pace if isinstance(gate, ADPO) else margin.pace),
        "adaptive": bool(margin.adaptive),
        "gate_width": _gate_width(gate, dim),
        "share": float(reserve.share),
        "reserve": float(getattr(gate, "reserve", reserve.ahead)),
        "pending": int(reserve.pending),
        "reach": float(reserve.reach),
        "floor": float(getattr(gate, "floor", 0.5)),
        "level": _or_nan(adpo.level),
        "tolerance": float(getattr(gate, "tolerance", 0.0)),
        "bound_scale": float(getattr(gate, "scale", 1.0)),
        "exponent": _or_nan(getattr(gate, "exponent", None)),
        "gate_ridge": float(getattr(gate, "ridge", 1.0)),
        "gate_delta": float(getattr(gate, "delta", 1.0)),
    }


def _reserve_of(gate: Gate) -> Reserve:
    """The gate, or where it is another one a `reserve` that nobody reads."""
    return gate if isinstance(gate, Reserve) else Reserve()


def by_widths(gate: Gate) -> bool:
    """Whether the gate's statistic is made of widths, pair widths or the matrix."""
    return not isinstance(gate, (Always, First, Random, Uniform, Margin, Entropy))


def _gate_width(gate: Gate, dim: int) -> float:
    """The factor on the gate's widths (score units); NaN for the scorer's radius (`lucb`)."""
    if isinstance(gate, LUCB):
        return _or_nan(gate.width_scale)
    if isinstance(gate, Avoided):
        return float(gate.width_scale)
    return _alpha(gate.width_scale if isinstance(gate, Contested) else None, dim)


def _alpha(width_scale: float | None, dim: int) -> float:
    return math.sqrt(dim) if width_scale is None else float(width_scale)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
