"""`drift`: the guarded reset: its false alarms, how late it comes, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stacksl.game.drift import DriftGuard
from stacksl.game.engines import StreamResult
from stacksl.studies.lab.claims.drift_rows import GUARDS, Case, case_of
from stacksl.studies.lab.drawing.drift import figures, layout
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Samples, Trial
from stacksl.studies.lab.worlds.playing import final_regret, play, regrets
from stacksl.studies.lab.worlds.streams import KINDS, World, make_world
from stacksl.studies.rows import Row, pooled

__all__ = ["DRIFT", "alarms", "measure"]

ROUNDS, QUICK_ROUNDS, DIM = 20_000, 300, 20
BUDGETS = (0.02, 0.1)
GATES = ("contested", "random")
NOISE: Mapping[str, float] = {"scalar": 0.3, "softmax": 1.0}
ACTION: Mapping[str, str] = {"scalar": "asked", "softmax": "greedy"}
MOVES = "concept"
"""The one stream whose θ* changes: after half of its rounds."""

UNGUARDED = 1e9
"""A leverage that no answer has: every answer is counted."""


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each kind and feedback; every guard, gate and budget on it."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    kinds = ("iid", MOVES) if quick else KINDS
    return [
        Trial({"kind": kind, "feedback": fb, "rounds": rounds, "dim": DIM}, _lines(kind, fb))
        for fb in NOISE
        for kind in kinds
    ]


def _lines(kind: str, feedback: str) -> tuple[Line, ...]:
    scale = {"width_scale": 2.0 * NOISE[feedback]}
    return tuple(
        Line(
            Case(guard, gate, kind, feedback, budget).row,
            {
                "gate": {"name": gate, **(scale if gate == "contested" else {})},
                "action": ACTION[feedback],
                "guard": guard,
            },
            budget,
        )
        for budget in BUDGETS
        for gate in GATES
        for guard in GUARDS
    )


def measure(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """Alarms, delays and regret, for each line."""
    stream = make_world(**world, seed=seed)
    return [_numbers(stream, line, seed, world["kind"] == MOVES) for line in lines]


def _numbers(stream: World, line: Line, seed: int, moves: bool) -> Numbers:
    budget = int((line.budget_fraction or 0.0) * stream.horizon + 1e-9)
    guard = {
        "no reset": None,
        "guarded": DriftGuard(),
        "unguarded": DriftGuard(leverage=UNGUARDED),
    }[line.settings["guard"]]
    played = play(
        stream,
        line.settings["gate"],
        budget,
        settings={"action": line.settings["action"]},
        seed=seed,
        drift=guard,
    )
    return {
        "regret_per_round": float(regrets(stream, played).mean()),
        "final_regret": final_regret(stream, played.theta),
        **(alarms(played, stream.horizon // 2 if moves else None) if guard else {}),
        "asked_fraction": float(played.asked.mean()),
    }


def alarms(played: StreamResult, change: int | None) -> dict[str, float | None]:
    """How often a guard was wrong, and how long it took to be right.

    `false_alarms` are the resets while θ* had not moved: up to round `change`, or all where it is
    None. Else `detected` is 1 where a reset followed the change, and `delay_rounds`, `delay_labels`
    count from the change to the first of them, that round included; None where there was none.
    """
    if change is None:
        return {"false_alarms": float(len(played.resets))}
    after = played.resets[played.resets > change]
    found: dict[str, float | None] = {
        "false_alarms": float((played.resets <= change).sum()),
        "detected": float(len(after) > 0),
        "delay_rounds": None,
        "delay_labels": None,
    }
    if len(after):
        found["delay_rounds"] = float(after[0] - change)
        found["delay_labels"] = float(played.asked[change : after[0]].sum())
    return found


def derive(samples: Samples) -> list[Row]:
    """What a reset makes of the regret, and the shares of runs with a false alarm."""
    return [*_gains(samples), *_shares(samples)]


def _gains(samples: Samples) -> Iterator[Row]:
    """Regret with a reset over that without, the mean of the seeds' ratios."""
    for row, numbers in samples.items():
        case = case_of(row)
        if case.guard == "no reset":
            continue
        without = samples[case.under("no reset").row]
        for metric in ("regret_per_round", "final_regret"):
            over = np.array(numbers[metric]) / np.array(without[metric])
            value, error = pooled(over.tolist())
            yield Row(
                "drift",
                row,
                f"{metric}_over_none",
                value,
                se=error,
                seeds=len(over),
                budget_fraction=case.budget,
                settings={"marks": []},
            )


def _shares(samples: Samples) -> Iterator[Row]:
    """Of all runs in which θ* never moves, the share with an alarm, by guard, feedback and gate.

    `limit` is the upper end of the exact one-sided 95 % interval (Clopper and Pearson 1934), the
    runs taken as independent; they share streams, so that it is a little too small.
    """
    from scipy.stats import beta

    cases = {case_of(row): numbers for row, numbers in samples.items()}
    for guard in GUARDS[1:]:
        for feedback in NOISE:
            for gate in GATES:
                counts = [
                    count
                    for case, numbers in cases.items()
                    if (case.guard, case.feedback, case.gate) == (guard, feedback, gate)
                    and case.kind != MOVES
                    for count in numbers["false_alarms"]
                ]
                wrong, runs = sum(count > 0 for count in counts), len(counts)
                if not runs:
                    continue
                limit = 1.0 if wrong == runs else float(beta.ppf(0.95, wrong + 1, runs - wrong))
                settings = {"runs": runs, "alarms": sum(counts), "limit": round(limit, 4)}
                yield Row(
                    "drift",
                    f"{guard} · {gate} · {feedback}, no change",
                    "runs_with_a_false_alarm",
                    wrong / runs,
                    settings={**settings, "marks": []},
                )


DRIFT = LabStudy(
    name="drift",
    title="The guarded drift reset",
    claim="a reset that counts well-known directions alone finds a change of θ* and nothing else",
    cost="168 lines of 20,000 rounds a seed, some 5 s of one core",
    metrics=(
        "regret_per_round",
        "final_regret",
        "false_alarms",
        "detected",
        "delay_rounds",
        "delay_labels",
    ),
    seeds=12,
    trials=trials,
    play=measure,
    derive=derive,
    layout=layout,
    figures=figures,
)
