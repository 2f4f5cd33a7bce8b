"""`learners`: regret of each learner on the same labels, the first B of a stationary stream.

The last table is of `newton` under a follower: the candidates that a label is learned over.

The exact fit is the conditional logit, fitted again at growing counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, PairFeatures
from stacksl.core.learner import loss_set, presented
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl.types import Label
from stacksl_lab.figures.learners import METRICS, REFERENCE, figures, layout
from stacksl_lab.statistics.estimates import holds
from stacksl_lab.statistics.intervals import bootstrapped, ratio
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import final_regret, play, regrets
from stacksl_lab.synthetic.streams import SyntheticStream, make_stream

ROUNDS, QUICK_ROUNDS, DIM = 20_000, 1000, 20
BUDGETS = (0.02, 0.1, 1.0)
RATES: Mapping[str, Sequence[float]] = {
    "sgd": (0.003, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3),
    "decaying": (0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 6.0, 10.0),
    "averaged": (0.01, 0.03, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0),
}
"""The learning rates that pilot seeds choose from, eight for each form of gradient steps."""

TUNED: Mapping[str, Mapping[float, float]] = {
    "sgd": {0.02: 0.1, 0.1: 0.03, 1.0: 0.01},
    "decaying": {0.02: 3.0, 0.1: 1.0, 1.0: 1.0},
    "averaged": {0.02: 1.0, 0.1: 0.6, 1.0: 0.6},
}
"""The rate by budget with the least mean regret on the way over `PILOT_SEEDS`."""

PILOT_SEEDS = (1000, 1001, 1002, 1003)

FOLLOWED: Mapping[str, Any] = {"kind": "iid", "feedback": "softmax", "dim": 10, "candidates": 20}
FOLLOWED_ROUNDS, FOLLOWED_K = 1000, 4
LOSSES: Mapping[str, str] = {
    "displaced": "C_t, an outside gold in the place of the lowest",
    "joined": "C_t and an outside gold",
    "dropped": "C_t; outside golds not learned",
    "mixed": "C_t; all candidates for an outside gold",
    "part": "C_t; all others for an outside gold",
    "all": "all candidates (the learner)",
    "given": "all candidates, and all are presented",
}
"""What a label is learned over under the follower `hard`, with its row's name."""

_PLAIN: Mapping[str, Any] = {"kl_weight": 0.0, "clip": "none"}
"""Gradient steps on the log-loss alone."""

_PAPER: Mapping[str, Any] = {"kl_weight": 0.5, "clip": "literal", "clip_level": 5.0}
"""The preset `paper`: Algorithm 2's KL term to the frozen start, and the clip of the text."""


def _lines(budget: float) -> tuple[Line, ...]:
    """Every learner from labels at a budget, as a share of the rounds."""
    sgd = {"learner": "sgd", **_PLAIN}
    learners = (
        ("sgd, rate tuned", _steps("sgd", TUNED["sgd"][budget])),
        ("sgd, decaying rate tuned", _steps("decaying", TUNED["decaying"][budget])),
        ("sgd averaged, rate tuned", _steps("averaged", TUNED["averaged"][budget])),
        ("sgd, rate 0.1", {**sgd, "learning_rate": 0.1}),
        ("sgd with the paper's KL and clip", {"learner": "sgd", "learning_rate": 0.1, **_PAPER}),
        ("ridge on one-hot targets", {"learner": "ridge"}),
        ("newton", {"learner": "newton"}),
        ("exact maximum likelihood", {"learner": "exact"}),
    )
    return tuple(Line(f"{name} · {budget:g}", settings, budget) for name, settings in learners)


def _steps(form: str, rate: float) -> Mapping[str, Any]:
    """Settings of one of the forms of gradient steps."""
    return {"learner": form, **(_PLAIN if form == "sgd" else {}), "learning_rate": rate}


def trials(quick: bool) -> Sequence[Trial]:
    """One stream of softmax labels, and one of rewards, from which `ridge` alone learns."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    base = {"kind": "iid", "rounds": rounds, "dim": DIM}
    labeled = tuple(line for budget in BUDGETS for line in _lines(budget))
    rewarded = tuple(
        Line(f"ridge on rewards · {budget:g}", {"learner": "ridge", "action": "asked"}, budget)
        for budget in BUDGETS
    )
    followed = tuple(Line(name, {"loss": kind}, 1.0) for kind, name in LOSSES.items())
    return [
        Trial({**base, "feedback": "softmax"}, labeled),
        Trial({**base, "feedback": "scalar"}, rewarded),
        Trial({**FOLLOWED, "rounds": QUICK_ROUNDS // 5 if quick else FOLLOWED_ROUNDS}, followed),
    ]


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Regret on the way and of the last estimate."""
    settings = dict(line.settings)
    if "loss" in settings:
        return _followed(stream, settings["loss"])
    learner = settings.pop("learner")
    budget = line.budget(stream.horizon)
    rate = settings.get("learning_rate", 0.0)
    if learner in ("exact", "decaying", "averaged"):
        lost, theta = _replayed(stream, *_estimates(stream, learner, budget, rate))
    else:
        gate = {"name": "first"}
        played = play(stream, gate, budget, scorer=learner, settings=settings, seed=seed)
        lost, theta = float(regrets(stream, played).mean()), played.theta
    return {
        "regret_per_round": lost,
        "final_regret": final_regret(stream, theta),
        "asked_fraction": budget / stream.horizon,
    }


def _followed(stream: SyntheticStream, loss: str) -> Numbers:
    """`newton` on a label a round under `hard`; `loss` is of `LOSSES`.

    Regret is to the best presented candidate, `regret_of_all` to the best of all; `covered` is the
    share of rounds whose confidence set holds θ*, `norm` ‖θ‖/‖θ*‖ at the end, `outside` the share
    of golds that were not presented.
    """
    dim = stream.features.shape[2]
    settings = ScorerSettings(norm_bound=stream.norm_bound)
    scorer: Any = make_scorer("newton", dim=dim, classes=None, settings=settings)
    lost, missed, covered, outside = [], [], [], []
    for rows, values, gold in zip(stream.features, stream.values, stream.labels, strict=True):
        inputs = PairFeatures(rows)
        scores = scorer.scores(inputs)
        [shown] = presented([inputs], scorer, None if loss == "given" else FOLLOWED_K)
        view = scorer.bounds(inputs, shown)
        got = values[shown[view.choice]]
        lost.append(values[list(shown)].max() - got)
        missed.append(values.max() - got)
        trust = scorer.confidence
        covered.append(holds(trust, stream.truth, scorer.theta, view.radius))
        outside.append(gold not in shown)
        learned = _loss_over(loss, shown, int(gold), scores)
        if learned:
            scorer.step(inputs, learned, shown[view.choice], Label(int(gold)))
    return {
        "regret_per_round": float(np.mean(lost)),
        "regret_of_all": float(np.mean(missed)),
        "final_regret": final_regret(stream, scorer.theta),
        "covered": float(np.mean(covered)),
        "norm": float(np.linalg.norm(scorer.theta)) / stream.norm_bound,
        "outside": float(np.mean(outside)),
        "asked_fraction": 1.0,
    }


def _loss_over(loss: str, shown: tuple[int, ...], gold: int, scores: Array) -> tuple[int, ...]:
    """The candidates that a label is learned over; none where it is not learned."""
    everything = tuple(range(len(scores)))
    if loss in ("all", "given"):
        return everything
    if gold in shown or loss == "part":
        return loss_set(shown, gold, len(scores))
    if loss == "mixed":
        return everything
    if loss == "dropped":
        return ()
    lowest = min(shown, key=lambda x: (scores[x], -x))
    others = [x for x in shown if x != lowest or loss == "joined"]
    return tuple(sorted((*others, gold)))


def _estimates(
    stream: SyntheticStream, learner: str, budget: int, rate: float
) -> tuple[NDArray[np.int64], Array]:
    """The label counts from which on there is a new estimate, (n,), and the estimates, (n, d)."""
    features, labels = stream.features[:budget], stream.labels[:budget]
    if learner == "exact":
        grid, thetas = exact_estimates(features, labels)
        return np.array([0, *grid]), np.vstack([np.zeros(thetas.shape[1]), thetas])
    thetas = descent(features, labels, rate, 0.5 if learner == "decaying" else 0.0)
    return np.arange(budget + 1), averaged(thetas) if learner == "averaged" else thetas


def _replayed(
    stream: SyntheticStream, counts: NDArray[np.int64], thetas: Array
) -> tuple[float, Array]:
    """Mean regret a round of the latest estimate, and the last one."""
    before = np.searchsorted(counts, np.arange(stream.horizon), side="right") - 1
    scores = np.einsum("tki,ti->tk", stream.features, thetas[before])
    values = stream.values
    got = np.take_along_axis(values, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    return float((values.max(axis=1) - got).mean()), thetas[-1]


def derive(samples: Samples) -> list[Row]:
    """Each learner's mean over that of `newton` at the same labels, seeds drawn together."""
    rows = []
    for row, numbers in samples.items():
        name, _, budget = row.rpartition(" · ")
        reference = samples.get(f"{REFERENCE} · {budget}")
        if reference is None or name in (REFERENCE, "ridge on rewards"):
            continue
        for metric in METRICS:
            value, error = bootstrapped(ratio, [numbers[metric], reference[metric]])
            over, seeds = f"{metric}_over_{REFERENCE}", len(numbers[metric])
            place = ("learners", f"{row} / {REFERENCE}", over)
            rows.append(Row(*place, value, error, seeds, float(budget), settings={"marks": []}))
    return rows


def pilot(
    seeds: Sequence[int] = PILOT_SEEDS, rounds: int = ROUNDS
) -> dict[tuple[str, float, float], float]:
    """Mean regret on the way by (form of steps, budget, learning rate), over pilot seeds.

    >>> sorted(pilot([1000], rounds=20))[0]
    ('averaged', 0.02, 0.01)
    """
    total = {(form, b, rate): 0.0 for form in RATES for b in BUDGETS for rate in RATES[form]}
    for seed in seeds:
        stream = make_stream("iid", "softmax", seed, rounds=rounds, dim=DIM)
        for form, budget, rate in total:
            line = Line("pilot", _steps(form, rate), budget)
            lost = measure(stream, line, seed)["regret_per_round"]
            total[form, budget, rate] += (math.nan if lost is None else lost) / len(seeds)
    return total


LEARNERS = StreamStudy(
    name="learners",
    title="Learners at equal labels: the first B of 20,000 rounds",
    claim="the gradient learner has the regret of the estimate that the theorems are about",
    cost="34 lines per seed, about 4 s of one core",
    metrics=("regret_per_round", "regret_of_all", "final_regret", "covered", "norm", "outside"),
    seeds=12,
    trials=trials,
    measure=measure,
    derive=derive,
    table=layout,
    figures=figures,
)


GROWTH = 1.1
"""The next fit has this many times the labels of the last: at worst so much of them is unused."""

_STEPS, _TOLERANCE = 500, 1e-8
_AT_REST = 1e-6  # the largest entry of a gradient that counts as 0


def counts(labels: int, first: int = 10, growth: float = GROWTH) -> list[int]:
    """The label counts that are fitted: 1 to `first` one by one, then geometric, `labels` last.

    >>> counts(15, first=3, growth=1.5)
    [1, 2, 3, 5, 8, 12, 15]
    """
    grid = list(range(1, min(first, labels) + 1))
    while grid and grid[-1] < labels:
        grid.append(min(labels, max(grid[-1] + 1, int(np.ceil(growth * grid[-1])))))
    return grid


def exact_estimates(features: Array, labels: NDArray[np.int64]) -> tuple[list[int], Array]:
    """The counts that were fitted, and the estimate of each under a ridge of 1, (n, d).

    Args:
        features: φ of the labeled rounds in their order, (B, K, d).
        labels: their labels, (B,).
    """
    grid = counts(len(labels))
    thetas = np.zeros((len(grid), features.shape[2]))
    theta = thetas[0]
    for place, count in enumerate(grid):
        theta = thetas[place] = fit(features[:count], labels[:count], 1.0, theta)
    return grid, thetas


def fit(features: Array, labels: NDArray[np.int64], ridge: float, start: Array) -> Array:
    """The θ, (d,), that minimizes Σ −log π_θ(label) + ½ ridge‖θ‖², by L-BFGS from `start`.

    Args:
        features: φ, (n, K, d).
        labels: (n,).
        ridge: the prior's precision; the first term alone has no minimum on few labels.
        start: (d,).

    Raises:
        SettingsError: the fit does not come to rest.
    """
    from scipy.optimize import minimize

    gold = features[np.arange(len(labels)), labels].sum(axis=0)
    options = {"maxiter": _STEPS, "gtol": _TOLERANCE, "ftol": 1e-14}
    fitted = minimize(
        _objective, start, (features, gold, ridge), jac=True, method="L-BFGS-B", options=options
    )
    # a line search that rounding ends is no failure where the gradient is as good as 0
    if not fitted.success and np.abs(fitted.jac).max() > _AT_REST:
        raise SettingsError(f"the exact fit of {len(labels)} labels did not end: {fitted.message}")
    return np.asarray(fitted.x, dtype=np.float64)


def _objective(theta: Array, features: Array, gold: Array, ridge: float) -> tuple[float, Array]:
    """What `fit` minimizes, a label, and its gradient; `gold` is the sum of the labels' φ, (d,)."""
    scores = features @ theta
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    value = float((top + np.log(total)).sum() - gold @ theta + 0.5 * ridge * theta @ theta)
    gradient = np.tensordot(weights / total, features, axes=2) - gold + ridge * theta
    return value / len(features), gradient / len(features)


def descent(features: Array, labels: NDArray[np.int64], rate: float, power: float) -> Array:
    """θ before and after each of n labels, (n + 1, d), from 0, by one step a label on its log-loss.

        θ_n = θ_{n−1} − rate n^(−power) ∇(−log π_θ(label_n))

    Args:
        features: φ of the labeled rounds in their order, (n, K, d).
        labels: (n,).
        rate: of the first step.
        power: 0 for a constant rate, 0.5 for one that falls with the square root.

    Source: Robbins and Monro (1951), A Stochastic Approximation Method.
    """
    thetas = np.zeros((len(labels) + 1, features.shape[2]))
    steps = rate * np.arange(1.0, len(labels) + 1.0) ** -power
    for n, (rows, gold, step) in enumerate(zip(features, labels, steps, strict=True)):
        scores = rows @ thetas[n]
        weights = np.exp(scores - scores.max())
        thetas[n + 1] = thetas[n] + step * (rows[gold] - weights @ rows / weights.sum())
    return thetas


def averaged(thetas: Array) -> Array:
    """The mean of the first 1, 2, … of `thetas`, (n, d).

    Source: Polyak and Juditsky (1992), Acceleration of Stochastic Approximation by Averaging.
    """
    means: Array = np.cumsum(thetas, axis=0) / np.arange(1.0, len(thetas) + 1.0)[:, None]
    return means


if __name__ == "__main__":
    for (form, budget, rate), lost in pilot().items():
        print(f"{form}, budget {budget:g}, rate {rate:g}: {lost:.5f}")
