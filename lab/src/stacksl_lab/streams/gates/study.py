"""`gates`: every gate on every stream, by the regret of the rounds and of the final model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stacksl.core.blocks import PairFeatures
from stacksl.core.calibration import calibrate_gate_scale, warmup_length, warmup_spreads
from stacksl.core.learner import presented
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl_lab.drift import DriftGuard
from stacksl_lab.figures.gates import figures, layout
from stacksl_lab.streams.gates.entries import Entry, Place, Swept, entries
from stacksl_lab.streams.gates.scores import derive, summary
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import outcome, play
from stacksl_lab.synthetic.streams import KINDS, SyntheticStream

ROUNDS, QUICK_ROUNDS, DIM = 20_000, 300, 20
BUDGETS = (0.02, 0.1)
NOISE: Mapping[str, float] = {"scalar": 0.3, "softmax": 1.0}
"""σ of the feedback, in which width scales are written."""

ACTION: Mapping[str, str] = {"scalar": "asked", "softmax": "greedy"}
"""What is played (D6): optimism is of use only where the reward of the action is bought."""

RIDGES = (1.0, 0.1, 0.01, 0.001)
SWEPT = ("first", "contested, α = σ√d", "information", "reserve")
SWEPT_KINDS = ("iid", "shift-2")


def trial(
    kind: str,
    feedback: str,
    rounds: int,
    gates: Sequence[Entry],
    budgets: Sequence[float] = BUDGETS,
) -> Trial:
    """All entries at all budgets on one stream."""
    lines = tuple(
        Line(
            Place(entry.name, kind, feedback, budget).row,
            {
                "gate": entry.settings(NOISE[feedback], DIM),
                "action": ACTION[feedback],
                "reset": entry.reset,
            },
            budget,
        )
        for budget in budgets
        for entry in gates
    )
    return Trial({"kind": kind, "feedback": feedback, "rounds": rounds, "dim": DIM}, lines)


def sweep(kind: str, rounds: int) -> Trial:
    """Gates made of widths at ridges down to the paper's smallest (L514)."""
    noise, dim = NOISE["scalar"], DIM
    lines = tuple(
        Line(
            Swept(entry.name, kind, ridge).row,
            {
                "gate": entry.settings(noise, dim),
                "action": ACTION["scalar"],
                "reset": False,
                "ridge": ridge,
            },
            BUDGETS[0],
        )
        for entry in entries()
        if entry.name in SWEPT
        for ridge in RIDGES
    )
    return Trial({"kind": kind, "feedback": "scalar", "rounds": rounds, "dim": DIM}, lines)


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each kind and feedback, and two for the sweep over the ridge."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    kinds = ("iid", "concept") if quick else KINDS
    battery = [trial(kind, fb, rounds, entries()) for fb in NOISE for kind in kinds]
    return [*battery, *(sweep(kind, rounds) for kind in kinds if kind in SWEPT_KINDS)]


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Regret on the way and of the last estimate."""
    gate = dict(line.settings["gate"])
    if gate.get("gate_scale") == "calibrated":
        gate["gate_scale"] = _calibrated(stream)
    drift = DriftGuard() if line.settings["reset"] else None
    budget = line.budget(stream.horizon)
    settings = {k: line.settings[k] for k in ("action", "ridge") if k in line.settings}
    played = play(stream, gate, budget, settings=settings, seed=seed, drift=drift)
    return outcome(stream, played)


def _calibrated(stream: SyntheticStream) -> float:
    """The c of `llf`: the median rule under its cap, from warm-up rounds at θ = 0."""
    settings = ScorerSettings(noise=stream.noise, norm_bound=stream.norm_bound)
    name = "newton" if stream.rewards is None else "ridge"
    scorer = make_scorer(name, dim=stream.features.shape[2], classes=None, settings=settings)
    rows = stream.features[: warmup_length(stream.horizon)]
    block = [PairFeatures(np.ascontiguousarray(row)) for row in rows]
    pool = stream.features.shape[1]
    shown = presented(block, scorer, None if stream.present == pool else stream.present - 1)
    return calibrate_gate_scale(warmup_spreads(scorer, block, shown))


GATES_STUDY = StreamStudy(
    name="gates",
    title="Gates at equal labels: regret on the way and of the final model",
    claim="LLF buys its labels where they matter, more cheaply than labels bought at random",
    cost="every gate in 28 cells of 20,000 rounds per seed, about 17 s of one core",
    metrics=("regret_per_round", "final_regret"),
    seeds=12,
    trials=trials,
    measure=measure,
    derive=derive,
    summary=summary,
    table=layout,
    figures=figures,
)
