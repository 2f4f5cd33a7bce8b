"""`coverage`: whether confidence sets contain θ*, and certificates bound the regret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from stacksl_lab.figures.coverage import figures, layout
from stacksl_lab.statistics.estimates import estimates, radii
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import play, regrets
from stacksl_lab.synthetic.streams import SyntheticStream, make_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stacksl.core.blocks import Array
    from stacksl_lab.engines import StreamResult


ROUNDS, QUICK_ROUNDS = 4000, 200
BUDGETS = (0.02, 0.1, 0.25, 0.5)
RIDGE, DELTA = 1.0, 0.05
ROUNDING = 1e-9

EVERYONE = ("first", "random", "contested")
FAMILIES: Sequence[tuple[str, str, float | None, tuple[str, ...]]] = (
    ("ridge", "labeled", None, EVERYONE),
    ("ridge", "all", None, EVERYONE),
    ("newton", "labeled", None, EVERYONE),
    ("newton", "all", None, EVERYONE),
    ("sgd", "labeled", 0.03, ("first", "random")),
    ("sgd", "labeled", 0.1, ("first", "random")),
)
"""Learner, what enters V, learning rate, and who buys."""


def lines(kind: str, feedback: str) -> Iterator[Line]:
    """Those on rewards (`scalar`) are the ridge learner's, those on labels the others'.

    Under the shift, where what V says of rounds without a label matters most, sgd, random purchases
    and the largest budget are left out.
    """
    for learner, track, rate, gates in FAMILIES:
        shift = kind != "iid"
        if (learner == "ridge") != (feedback == "scalar") or (shift and learner == "sgd"):
            continue
        named = learner if rate is None else f"{learner}, η = {rate:g}"
        shared = {"learner": learner, "track": track, "ridge": RIDGE, "delta": DELTA}
        shared |= {} if rate is None else {"learning_rate": rate}
        group = f"{named}, V on {track} rounds{', shift' if shift else ''}"
        for gate in (g for g in gates if not (shift and g == "random")):
            family = {"group": group, "family": f"{group}, {gate}", "gate": gate}
            for budget in BUDGETS[:3] if shift else BUDGETS:
                row = f"{group}, {gate}, β = {budget:g}"
                yield Line(row, {**shared, **family}, budget)


def trials(quick: bool) -> Sequence[Trial]:
    """A stationary and a shifting stream of each feedback."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [
        Trial(
            {"kind": kind, "feedback": feedback, "rounds": rounds, "dim": 20},
            tuple(lines(kind, feedback)),
        )
        for kind in ("iid", "shift-2")
        for feedback in ("scalar", "softmax")
    ]


def covered(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """The numbers of one run; the action is greedy, so that its regret is what g bounds."""
    played = _played(stream, line, seed)
    moves = played.asked | (line.settings["track"] == "all")
    path = estimates(played, RIDGE, moves=moves)
    by_labels = _radii(stream, path.learned)
    lost = regrets(stream, played)
    promised = path.certificates(stream.features, played.choices, by_labels)
    by_rounds = _radii(stream, np.arange(stream.horizon))
    return {
        **_sets(path.errors(stream.truth), by_labels, by_rounds),
        "certified": float(promised.sum() >= lost.sum()),
        "certified_rounds": float((lost <= promised + ROUNDING).all()),
        "certificate_ratio": float(promised.sum() / lost.sum()) if lost.any() else None,
        "regret_per_round": float(lost.mean()),
        "asked_fraction": float(played.asked.mean()),
    }


def _played(stream: SyntheticStream, line: Line, seed: int) -> StreamResult:
    """The line's learner, marked after every round."""
    options, rounds = line.settings, stream.horizon
    settings = {"ridge": RIDGE, "delta": DELTA, "track": options["track"]}
    if options["learner"] == "sgd":
        settings |= {"learning_rate": options["learning_rate"], "kl_weight": 0.0, "clip": "none"}
    return play(
        stream,
        {"name": options["gate"]},
        int((line.budget_fraction or 0.0) * rounds + 1e-9),
        scorer=options["learner"],
        settings=settings,
        seed=seed,
        marks=range(1, rounds + 1),
    )


def _radii(stream: SyntheticStream, counts: NDArray[np.int64]) -> Array:
    """The radius at each count of labels or of rounds, (T,)."""
    return radii(
        counts,
        noise=stream.noise,
        dim=stream.features.shape[2],
        ridge=RIDGE,
        delta=DELTA,
        bound=stream.norm_bound,
    )


def _sets(errors: Array, by_labels: Array, by_rounds: Array) -> dict[str, float]:
    """Whether errors are within radii, all (T,): each is that before its round."""
    return {
        "covered": float((errors <= by_labels).all()),
        "covered_rounds": float((errors <= by_rounds).all()),
        "covered_time": float((errors <= by_labels).mean()),
        "radius_ratio": float(by_labels[-1] / errors[-1]),
        "least_radius_ratio": float((by_labels / errors).min()),
    }


COVERAGE = StreamStudy(
    name="coverage",
    title="Confidence sets and certificates",
    claim="θ* is in the confidence set with probability 1 − δ, whichever rounds enter V",
    cost="88 lines of 4,000 rounds per seed, about 14 s of one core",
    metrics=(
        "covered",
        "covered_rounds",
        "covered_time",
        "radius_ratio",
        "least_radius_ratio",
        "certified",
        "certified_rounds",
        "certificate_ratio",
        "regret_per_round",
    ),
    seeds=100,
    trials=trials,
    measure=covered,
    stream=partial(make_stream, purpose="coverage"),
    table=layout,
    figures=figures,
)
