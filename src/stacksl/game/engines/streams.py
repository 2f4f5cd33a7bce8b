"""A run over arrays whose labels are known: the compiled engine where there is one, else the loop.

Nothing is posted to a ledger: the budget is kept by the clock, and each wanted label is learnt
before the next round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError, SettingsError
from stacksl.game.gates import ADPO, LLF, Contested, Gate, Margin
from stacksl.game.inputs import Array
from stacksl.game.randomness import uniforms
from stacksl.game.schedules import Always, First, Random, Uniform
from stacksl.game.scorers import ScorerSettings, make_scorer

__all__ = ["Engine", "Stream", "StreamResult", "run_stream"]

Engine = Literal["auto", "fused", "loop"]

COMPILED = frozenset({Always, First, Random, Uniform, LLF, Margin, Contested, ADPO})
"""The gates that `judging` has a branch for, by their code; any other is played by the loop."""

_CHUNK = 1 << 20  # numbers of features converted to float64 and played at a time: 8 MiB


@dataclass(frozen=True, slots=True, eq=False)
class StreamResult:
    """What came of a stream of T rounds: one entry a round, (T,) each, and the last estimate.

    Attributes:
        choices: x̂_t, the index of the action played.
        asked: whether the label was bought.
        statistics, thresholds: the gate asked iff statistic > threshold (score units), but for the
            two rules above every gate. Without certificates NaN from the round on in which no
            label is left: the statistics of `llf`, `contested` and `adpo`, and the thresholds of
            the last two.
        gate_scores: the statistic of `contested`, whichever gate decided (DESIGN D8); NaN without
            certificates.
        scores: θᵀφ of the choice (score units).
        reaches: radius·width of the choice, so that its bounds are scores ± reaches; NaN without
            certificates.
        theta: the last θ, (d,), or (K, d) for class heads.
        gram_inv: the last V⁻¹ (H⁻¹), (d, d); None for sgd on class heads and for track='theta'.
        learnt: labels learnt.
        clipped: learnt labels whose loss was above the clip level; 0 but for `sgd`.
        engine: `fused` or `loop`, what played.
    """

    choices: NDArray[np.int64]
    asked: NDArray[np.bool_]
    statistics: Array
    thresholds: Array
    gate_scores: Array
    scores: Array
    reaches: Array
    theta: Array
    gram_inv: Array | None
    learnt: int
    clipped: int
    engine: Literal["fused", "loop"]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Checked inputs: `features` (T, K, d) or, with `classes`, (T, d); feedback of all rounds.

    One of `labels`, (T,), and `rewards`, (T, K), is empty.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]
    rewards: Array
    classes: int | None

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """d, the columns of φ or of h."""
        return int(self.features.shape[-1])

    @property
    def candidates(self) -> int:
        """K."""
        return int(self.features.shape[1]) if self.classes is None else self.classes

    def chunks(self) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, float64 features) of consecutive rounds."""
        size = max(1, _CHUNK // max(1, int(np.prod(self.features.shape[1:]))))
        for start in range(0, self.rounds, size):
            stop = min(self.rounds, start + size)
            rows = _plain(self.features[start:stop], np.float64)
            yield start, stop, rows


def run_stream(
    scorer: str,
    features: NDArray[Any],
    *,
    gate: Gate,
    budget: int,
    labels: NDArray[Any] | None = None,
    rewards: NDArray[Any] | None = None,
    classes: int | None = None,
    settings: ScorerSettings | None = None,
    seed: int = 0,
    kl_on_skips: bool = False,
    width_scale: float | None = None,
    certificates: bool = True,
    engine: Engine = "auto",
) -> StreamResult:
    """Play the rounds of an array stream, every candidate presented, each answer learnt at once.

    Both engines make the same decisions, numbers equal to rounding: `loop` plays a `Learner`,
    `fused` is one compiled loop (some seconds to compile when a machine runs it first, kept on disk
    from then on). There is a `fused` loop for `sgd`, `ridge` and `newton` on pair features and for
    `ridge` on class heads.

    Args:
        scorer: a name in `SCORERS`.
        features: φ, (T, K, d), or with `classes` h, (T, d); rows of norm at most 1, any float
            type, perhaps memory-mapped. A fixed part of the scores (`PairFeatures.offset`) has no
            place here: play a `Learner`.
        gate: as for `Learner`.
        budget: B, the labels it may ask for.
        labels: (T,) indices of the gold candidates; one of `labels` and `rewards` is given.
        rewards: (T, K) the reward that each candidate would bring; `ridge` on pairs alone.
        classes: K where the candidates are classes, φ(z, x) = e_x ⊗ h(z).
        settings: as for `make_scorer`.
        seed: keys the gate's uniforms, as for `Learner`.
        kl_on_skips: as for `Learner`.
        width_scale: α of the gate scores (score units); None is √d.
        certificates: False leaves out every number that no decision needs (`StreamResult` says
            which); actions and purchases stay the same, θ too but for rounding, and rounds get
            cheaper where the action is greedy.
        engine: `auto` takes `fused` where there is one.

    Raises:
        FeatureError: features of a wrong shape, or not finite.
        SettingsError: settings that do not go together, feedback that does not fit, or 'fused'
            where there is no such loop.

    >>> phi = np.eye(3)[None].repeat(6, axis=0)
    >>> from stacksl.game.gates import First
    >>> played = run_stream("ridge", phi, labels=np.zeros(6), gate=First(), budget=2, engine="loop")
    >>> played.asked.sum(), played.choices[-1]
    (np.int64(2), np.int64(0))
    """
    stream = _checked(features, labels, rewards, classes, budget)
    settings = settings or ScorerSettings()
    _check_scorer(scorer, stream, settings, gate)
    able = (classes is None or scorer == "ridge") and type(gate) in COMPILED
    if engine == "fused" and not able:
        what = f"'{scorer}'" if classes is None else f"'{scorer}' on class heads"
        raise SettingsError(
            f"no fused loop plays the scorer {what} "
            f"with the gate '{gate.name}': take engine 'auto' or 'loop'"
        )
    options = (seed, kl_on_skips, width_scale, budget)
    with _blas().limit(limits=1, user_api="blas"):
        if engine != "loop" and able:
            return _fused(scorer, stream, settings, gate, *options, certificates)
        from stacksl.game.engines.loop import play

        return play(scorer, stream, settings, gate, *options, certificates)


@cache
def _blas() -> Any:
    """The BLAS libraries in this process: finding them takes longer than a short stream."""
    import scipy.linalg  # noqa: F401  (its BLAS is the one that compiled code calls)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _fused(
    scorer: str,
    stream: Stream,
    settings: ScorerSettings,
    gate: Gate,
    seed: int,
    kl_on_skips: bool,
    width_scale: float | None,
    budget: int,
    certificates: bool,
) -> StreamResult:
    from stacksl.game.engines import plans

    plan = plans.make_plan(
        scorer,
        settings,
        gate,
        dim=stream.dim,
        budget=budget,
        horizon=stream.rounds,
        kl_on_skips=kl_on_skips,
        width_scale=width_scale,
        certificates=certificates,
    )
    memory = plans.make_memory(plan, gate, settings, stream.dim, stream.classes)
    out = plans.make_certificates(stream.rounds)
    drawn = uniforms(seed, "gate", stream.rounds)
    if stream.classes is None:
        from stacksl.game.engines.fused import play_pairs

        space = plans.make_space(plan, stream.candidates, stream.dim)
        for start, stop, rows in stream.chunks():
            labels, rewards = stream.labels[start:stop], stream.rewards[start:stop]
            expect_finite(
                rows,
                play_pairs(plan, memory, space, out, rows, labels, rewards, drawn, start),
                start,
            )
        gram_inv = memory.gram_inv if plan.track != plans.THETA else None
    else:
        from stacksl.game.engines.shared import play_classes
        from stacksl.game.engines.triangle import full

        heads = plans.make_heads(stream.classes, stream.dim)
        for start, stop, rows in stream.chunks():
            labels = stream.labels[start:stop]
            expect_finite(
                rows, play_classes(plan, memory, heads, out, rows, labels, drawn, start), start
            )
        gram_inv = full(memory.gram_inv)
    counts = memory.counts
    return StreamResult(
        *out, memory.theta, gram_inv, int(counts[plans.LEARNT]), int(counts[plans.CLIPPED]), "fused"
    )


def _checked(
    features: NDArray[Any],
    labels: NDArray[Any] | None,
    rewards: NDArray[Any] | None,
    classes: int | None,
    budget: int,
) -> Stream:
    features = np.asarray(features)
    wanted = "(T, K, d)" if classes is None else "(T, d)"
    if features.ndim != wanted.count(",") + 1 or 0 in features.shape:
        raise FeatureError(
            f"features should have the shape {wanted}, none of it 0, not {features.shape}: "
            "give φ a row for each candidate, or h a row for each item with `classes`"
        )
    if classes is not None and classes < 1:
        raise SettingsError(f"there should be at least 1 class, not {classes}")
    if budget < 0:
        raise SettingsError(f"a budget should be at least 0 labels, not {budget}")
    if (labels is None) == (rewards is None):
        raise SettingsError("a stream needs its labels or its rewards, one of the two")
    rounds, size = len(features), features.shape[1] if classes is None else classes
    gold = np.zeros(0, dtype=np.int64) if labels is None else _gold(labels, rounds, size)
    gains = np.zeros((0, 0)) if rewards is None else _gains(rewards, rounds, size)
    return Stream(features, gold, gains, classes)


def expect_finite(rows: Array, stopped: int, start: int) -> None:
    """Refuse what made the scores of a round no finite numbers; `stopped` is that round, or −1.

    A feature that is not finite makes its score NaN or infinite, whatever θ is.
    """
    if stopped < 0:
        return
    if np.isfinite(rows[stopped - start]).all():
        raise SettingsError(
            f"the scores of round {stopped + 1} are no finite numbers, though its features are: "
            "θ has grown beyond all bounds; lower the learning rate"
        )
    raise FeatureError(
        f"features should be finite numbers, but round {stopped + 1} has NaN or infinite ones: "
        "remove the item or repair its features"
    )


def _plain(array: Any, dtype: type) -> NDArray[Any]:
    """A C-ordered, writable array: numba would compile a second loop for any other kind."""
    return np.require(np.asarray(array), dtype=dtype, requirements=["C", "W", "E"])


def _gold(labels: NDArray[Any], rounds: int, size: int) -> NDArray[np.int64]:
    given = np.asarray(labels)
    if given.shape != (rounds,) or not np.isin(given, np.arange(size)).all():
        raise SettingsError(
            f"labels should be {rounds} indices from 0 to {size - 1}, one a round, but those given "
            f"have the shape {given.shape} or hold something else"
        )
    return _plain(given, np.int64)


def _gains(rewards: NDArray[Any], rounds: int, size: int) -> Array:
    gains = _plain(rewards, np.float64)
    if gains.shape != (rounds, size) or not np.isfinite(gains).all():
        raise SettingsError(
            f"rewards should be finite, one for each candidate of each round, of the shape "
            f"{(rounds, size)}, but those given have the shape {gains.shape}"
        )
    return gains


def _check_scorer(scorer: str, stream: Stream, settings: ScorerSettings, gate: Gate) -> None:
    make_scorer(scorer, dim=1, classes=None if stream.classes is None else 1, settings=settings)
    if len(stream.rewards) and (scorer != "ridge" or stream.classes is not None):
        raise SettingsError(
            f"the scorer '{scorer}' {'' if stream.classes is None else 'on class heads '}learns "
            "from labels, but rewards came: take the scorer 'ridge' on pair features"
        )
    if settings.track == "theta" and gate.name in ("llf", "contested", "adpo"):
        raise SettingsError(
            f"the gate '{gate.name}' needs widths, and track 'theta' keeps none: "
            "track 'labelled', or choose another gate"
        )
