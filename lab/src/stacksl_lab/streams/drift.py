"""`drift`: false alarms, delays and benefit of the guarded reset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stacksl_lab.drift import DriftGuard
from stacksl_lab.engines import StreamResult
from stacksl_lab.figures.drift import GUARDS, STILL, Case, case_of, figures, layout
from stacksl_lab.statistics.intervals import bootstrapped, clopper_pearson, ratio
from stacksl_lab.streams.gates.study import ACTION, BUDGETS, DIM, NOISE, QUICK_ROUNDS, ROUNDS
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import outcome, play
from stacksl_lab.synthetic.streams import KINDS, SyntheticStream

GATES = ("contested", "random")
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


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Alarms, delays and regret of a line."""
    budget = line.budget(stream.horizon)
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
    numbers = outcome(stream, played)
    change = None if stream.truth_before is None else stream.horizon // 2
    return numbers | alarms(played, change) if guard else numbers


def alarms(played: StreamResult, change: int | None) -> dict[str, float | None]:
    """How often a guard was wrong, and how long it took to be right.

    `false_alarms` are the resets while θ* had not moved: up to round `change`, or all where it is
    None. Else `alarmed_before` and `alarmed_after` are 1 where a reset is among the n rounds up to
    the change and the n after it, n being the lesser of what is there: a guard that found the
    change alarms more often after it than before. `delay_rounds` and `delay_labels` count from the
    change to the first reset, that round included; None where there was none.
    """
    if change is None:
        return {"false_alarms": float(len(played.resets))}
    resets = played.resets
    reach = min(change, len(played.asked) - change)
    after = resets[(resets > change) & (resets <= change + reach)]
    before = resets[(resets <= change) & (resets > change - reach)]
    first = int(after[0]) if len(after) else None
    return {
        "false_alarms": float((resets <= change).sum()),
        "alarmed_before": float(len(before) > 0),
        "alarmed_after": float(len(after) > 0),
        "delay_rounds": None if first is None else float(first - change),
        "delay_labels": None if first is None else float(played.asked[change:first].sum()),
    }


def derive(samples: Samples) -> list[Row]:
    """What a reset makes of the regret, and the shares of runs with an alarm."""
    return [*_regret_rows(samples), *_false_alarm_rows(samples), *_change_rows(samples)]


def _regret_rows(samples: Samples) -> Iterator[Row]:
    """Mean regret with a reset over that without, seeds drawn together."""
    for row, numbers in samples.items():
        case = case_of(row)
        if case.guard == "no reset":
            continue
        without = samples[case.under("no reset").row]
        for metric in ("regret_per_round", "final_regret"):
            value, error = bootstrapped(ratio, [numbers[metric], without[metric]])
            seeds, name = len(numbers[metric]), f"{row} / no reset"
            over = f"{metric}_over_none"
            yield Row("drift", name, over, value, error, seeds, case.budget, settings={"marks": []})


def _false_alarm_rows(samples: Samples) -> Iterator[Row]:
    """Of all runs in which θ* never moves, the share with an alarm.

    A guard, gate, feedback and budget each; its runs are on streams of their own.
    """
    groups: dict[Case, list[float]] = {}
    for row, numbers in samples.items():
        case = case_of(row)
        if case.kind != MOVES and case.guard != "no reset":
            groups.setdefault(replace(case, kind=STILL), []).extend(numbers["false_alarms"])
    for case, counts in groups.items():
        yield _share(case, "runs_with_a_false_alarm", counts)


def _change_rows(samples: Samples) -> Iterator[Row]:
    """Of the runs in which θ* moves, the shares with an alarm after it, and before it."""
    for row, numbers in samples.items():
        case = case_of(row)
        if case.kind == MOVES and case.guard != "no reset":
            for metric in ("alarmed_after", "alarmed_before"):
                yield _share(case, f"runs_{metric}", numbers[metric])


def _share(case: Case, metric: str, counts: Sequence[float]) -> Row:
    """The share of runs that count any alarm, its exact 95% interval, and all alarms."""
    wrong, runs = sum(count > 0 for count in counts), len(counts)
    ends = [round(end, 4) for end in clopper_pearson(wrong, runs)]
    settings = {"runs": runs, "alarms": sum(counts), "interval": ends, "marks": []}
    return Row("drift", f"{case.row} / runs", metric, wrong / runs, seeds=runs, settings=settings)


DRIFT = StreamStudy(
    name="drift",
    title="The guarded drift reset",
    claim="a reset that counts only well-known directions detects a change of θ* and nothing else",
    cost="168 lines of 20,000 rounds per seed, about 5 s of one core",
    metrics=(
        "regret_per_round",
        "final_regret",
        "false_alarms",
        "alarmed_before",
        "alarmed_after",
        "delay_rounds",
        "delay_labels",
    ),
    seeds=12,
    trials=trials,
    measure=measure,
    derive=derive,
    table=layout,
    figures=figures,
)
