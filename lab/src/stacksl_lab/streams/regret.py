"""`regret`: the paper's table of regret against budget, baselines and readings next to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stacksl_lab.figures.regret import figures, layout
from stacksl_lab.statistics.intervals import bootstrapped, ratio
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row, pooled
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import first_spread, outcome, play
from stacksl_lab.synthetic.streams import SyntheticStream

ROUNDS, QUICK_ROUNDS = 20_000, 1000

PAPER: Sequence[tuple[str, str, float, float]] = (
    ("LLF, β = 0.1", "llf", 0.10, 0.00244),
    ("Random, β = 0.1", "random", 0.10, 0.02284),
    ("LLF, β = 0.25", "llf", 0.25, 0.00243),
    ("LLF, β = 0.5", "llf", 0.50, 0.00209),
    ("Full", "always", 1.0, 0.00200),
)
"""The rows of the paper's table: gate, β and regret a round (label tab:theorem2)."""

SWITCH = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0)
"""c as a multiple of the first spread, around the one step that it makes."""

SWITCH_PRINTED = (0.9, 0.99, 1.01, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
"""The same under the radius as printed, which grows with the rounds and so opens the gate late."""

UCB: Mapping[str, Any] = {"action": "ucb"}
PRINTED: Mapping[str, Any] = {**UCB, "radius_counts": "rounds"}


def _line(
    row: str, gate: str, budget: float, scorer: Mapping[str, Any] = UCB, **gate_settings: Any
) -> Line:
    settings = {"gate": gate, **gate_settings, "scorer_settings": dict(scorer)}
    paper = {name: value for name, _, _, value in PAPER}
    known = {"regret_per_round": paper[row]} if row in paper else {}
    return Line(row, settings, budget, known)


def lines() -> tuple[Line, ...]:
    """The paper's rows, the two baselines next to them, the readings (D1, D2, D6) and c (D7)."""
    return (*_table(), *_readings(), *_switch())


def _table() -> Iterator[Line]:
    for row, gate, budget, _ in PAPER:
        yield _line(row, gate, budget)
    for budget in (0.1, 0.25, 0.5):
        yield _line(f"first, β = {budget:g}", "first", budget)
    yield _line("uniform, β = 0.1", "uniform", 0.1)


def _readings() -> Iterator[Line]:
    for scale in (1.0, 50.0, 500.0):
        row = f"LLF, β = 0.1, no ELSE, c = {scale:g}"
        yield _line(row, "llf", 0.1, reading="literal", gate_scale=scale)
    names = (("LLF", "llf"), ("first", "first"), ("Random", "random"))
    for name, gate in names:
        yield _line(f"{name}, β = 0.1, V on all rounds", gate, 0.1, {**UCB, "track": "all"})
    for name, gate in names:
        yield _line(f"{name}, β = 0.1, greedy on skips", gate, 0.1, {"action": "asked"})
    for name, gate in names:
        yield _line(f"{name}, β = 0.1, greedy always", gate, 0.1, {})
    yield _line("Full, greedy always", "always", 1.0, {})
    for name, gate in names:
        yield _line(f"{name}, β = 0.1, radius of rounds", gate, 0.1, PRINTED)
    yield _line("Full, radius of rounds", "always", 1.0, PRINTED)


def _switch() -> Iterator[Line]:
    for share in SWITCH:
        yield _line(f"LLF, β = 0.1, c = {share:g} Δ₁", "llf", 0.1, first_spreads=share)
    for share in SWITCH_PRINTED:
        row = f"LLF, β = 0.1, radius of rounds, c = {share:g} Δ₁"
        yield _line(row, "llf", 0.1, PRINTED, first_spreads=share)


def trials(quick: bool) -> Sequence[Trial]:
    """One stream a seed, that of the paper's table."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [Trial({"kind": "iid", "feedback": "scalar", "rounds": rounds, "dim": 20}, lines())]


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Regret on the way and of the last estimate."""
    gate = {k: v for k, v in line.settings.items() if k != "scorer_settings"}
    gate["name"] = gate.pop("gate")
    if "first_spreads" in gate:
        gate["gate_scale"] = gate.pop("first_spreads") * first_spread(stream)
    budget = line.budget(stream.horizon)
    played = play(stream, gate, budget, settings=line.settings["scorer_settings"], seed=seed)
    return outcome(stream, played)


def derive(samples: Samples) -> list[Row]:
    """Each of the paper's rows over its printed number, and every row at β = 0.1 over `first`."""
    rows = []
    for row, _, budget, printed in PAPER:
        values = samples[row]["regret_per_round"]
        mean, error = pooled([value / printed for value in values])
        rows.append(_derived(row, "over_paper", mean, error, len(values), budget))
    for line in lines():
        if line.budget_fraction == 1.0 or line.row == f"first, β = {line.budget_fraction:g}":
            continue
        values = samples[line.row]["regret_per_round"]
        base = samples[f"first, β = {line.budget_fraction:g}"]["regret_per_round"]
        mean, error = bootstrapped(ratio, [values, base])
        rows.append(
            _derived(line.row, "over_first", mean, error, len(values), line.budget_fraction)
        )
    return rows


def _derived(
    row: str, metric: str, value: float, se: float | None, seeds: int, budget: float | None
) -> Row:
    name = f"{row} / {metric.removeprefix('over_')}"
    return Row("regret", name, metric, value, se=se, seeds=seeds, budget_fraction=budget)


REGRET = StreamStudy(
    name="regret",
    title="Synthetic linear bandit regret against budget",
    claim="LLF has nearly the regret of full information, random querying ten times as much",
    cost="50 lines of 20,000 rounds per seed, about 2 s of one core",
    metrics=("regret_per_round", "final_regret"),
    seeds=10,
    trials=trials,
    measure=measure,
    derive=derive,
    table=layout,
    figures=figures,
)
