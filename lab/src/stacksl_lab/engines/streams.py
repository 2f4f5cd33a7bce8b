"""`run_stream`: a run over arrays with known labels, compiled where an engine exists.

There is no ledger: the clock enforces the budget, and each wanted label is learned before the next
round.

>>> import numpy as np
>>> phi = np.eye(3)[None].repeat(6, axis=0)
>>> from stacksl.core.gates.registry import First
>>> played = run_stream("ridge", phi, labels=np.zeros(6), gate=First(), budget=2, engine="loop")
>>> played.asked.sum(), played.choices[-1]
(np.int64(2), np.int64(0))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from stacksl.core.gates.registry import Gate
from stacksl.core.scorers import ScorerSettings
from stacksl.errors import SettingsError
from stacksl_lab.baselines.registry import CODES
from stacksl_lab.drift import DriftGuard
from stacksl_lab.engines.arrays import Stream, StreamResult, checked_stream
from stacksl_lab.engines.plan import Terms
from stacksl_lab.gradient import StudySettings

Engine: TypeAlias = Literal["auto", "fused", "loop"]


def run_stream(
    scorer: str,
    features: NDArray[Any],
    *,
    gate: Gate,
    budget: int,
    labels: NDArray[Any] | None = None,
    rewards: NDArray[Any] | None = None,
    utilities: NDArray[Any] | None = None,
    classes: int | None = None,
    settings: ScorerSettings | None = None,
    seed: int = 0,
    kl_on_skips: bool = False,
    asks_ucb: bool = False,
    width_scale: float | None = None,
    certificates: bool = True,
    marks: Sequence[int] = (),
    present: int | None = None,
    drift: DriftGuard | None = None,
    engine: Engine = "auto",
) -> StreamResult:
    """Play the rounds of an array stream, each answer learned at once.

    Both engines make the same decisions, numbers equal to rounding. `loop` plays a `StudyLearner`;
    `fused` is one compiled loop (some seconds to compile when a machine runs it first, kept on disk
    from then on), for `sgd`, `ridge` and `newton` on pair features and for `ridge` on class heads.

    Args:
        scorer: a name in `SCORERS`.
        features: φ, (T, K, d), or with `classes` h, (T, d); rows of norm at most 1, any float
            type, perhaps memory-mapped. A fixed part of the scores (`PairFeatures.offset`) has no
            place here: play a `Learner`.
        gate: as for `Learner`.
        budget: B, the labels it may ask for.
        labels: (T,) indices of the gold candidates; one of `labels`, `rewards` and `utilities` is
            given.
        rewards: (T, K) the reward that each candidate would bring; `ridge` on pairs alone.
        utilities: (T, K) in place of labels: the label of a round is the presented candidate of the
            largest utility, of equals the first. Scores under θ* plus independent standard
            Gumbel noise make it a draw from their softmax among the presented.
        classes: K where the candidates are classes, φ(z, x) = e_x ⊗ h(z).
        settings: as for `make_study_scorer`.
        seed, kl_on_skips: as for `Learner`.
        asks_ucb: as for `StudyLearner`.
        width_scale: α of the gate scores (score units); None is √d.
        certificates: False leaves out every number that no decision needs (`StreamResult` says
            which); actions and purchases stay the same, θ too but for rounding, and rounds get
            cheaper where the action is greedy.
        marks: rising numbers of rounds, from 1 to T, after which the estimate is kept.
        present: the candidates that an adaptive follower shows of the K: those scored best under
            the present θ, ties to the lowest index (`learner.presented`, k = present − 1). None
            shows them all. Choices are indices into all K. Pair features alone, and no `labels`.
            Rows that are equal tie but for rounding, which may differ between the engines.
        drift: starts over where bought answers contradict what is known; None never does. Pair
            features alone: rewards, or labels learned by `newton` or `sgd`.
        engine: `auto` takes `fused` where it plays this.

    Raises:
        FeatureError: features of a wrong shape, or not finite.
        SettingsError: settings that do not go together, feedback that does not fit, or an engine
            that does not play this.
    """
    stream = checked_stream(features, labels, rewards, utilities, classes)
    terms = Terms(
        scorer=scorer, settings=StudySettings.of(settings), gate=gate, budget=budget, seed=seed,
        kl_on_skips=kl_on_skips, asks_ucb=asks_ucb, width_scale=width_scale,
        certificates=certificates, marks=tuple(marks), present=present, drift=drift,
    )  # fmt: skip
    terms.check(stream)
    play = _engine(engine, terms, heads=classes is not None)
    with _blas().limit(limits=1, user_api="blas"):
        return play(stream, terms)


def _engine(name: Engine, terms: Terms, heads: bool) -> Callable[[Stream, Terms], StreamResult]:
    """What plays a stream; the compiled loops are loaded here, at their first use."""
    compiled = type(terms.gate) in CODES and (not heads or terms.scorer == "ridge")
    if name == "fused" and not compiled:
        raise SettingsError(
            f"the engine 'fused' does not play the scorer '{terms.scorer}'"
            f"{' on class heads' if heads else ''} with the gate '{terms.gate.name}': take engine"
            " 'auto' or 'loop'"
        )
    if compiled and name != "loop":
        from stacksl_lab.engines.driver import play as compiled_play

        return compiled_play
    from stacksl_lab.engines.loop import play

    return play


@cache
def _blas() -> Any:
    """The BLAS libraries in this process: finding them takes longer than a short stream."""
    import scipy.linalg  # noqa: F401  (its BLAS is the one that compiled code calls)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
