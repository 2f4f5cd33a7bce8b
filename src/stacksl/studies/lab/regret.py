"""`regret`: the paper's table of regret against budget, baselines and readings beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stacksl.studies.lab.playing import final_regret, play, regrets
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Trial
from stacksl.studies.lab.worlds import make_world

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stacksl.studies.rows import Row

__all__ = ["REGRET"]

ROUNDS, QUICK_ROUNDS = 20_000, 1000

PAPER: Sequence[tuple[str, str, float, float]] = (
    ("LLF, β = 0.1", "llf", 0.10, 0.00244),
    ("Random, β = 0.1", "random", 0.10, 0.02284),
    ("LLF, β = 0.25", "llf", 0.25, 0.00243),
    ("LLF, β = 0.5", "llf", 0.50, 0.00209),
    ("Full", "always", 1.0, 0.00200),
)
"""The rows of the paper's table: gate, β and regret a round (label tab:theorem2)."""

UCB = {"action": "ucb"}


def _line(
    row: str, gate: str, budget: float, scorer: Mapping[str, Any] = UCB, **gate_settings: Any
) -> Line:
    settings = {"gate": gate, **gate_settings, "scorer_settings": dict(scorer)}
    paper = {name: value for name, _, _, value in PAPER}
    known = {"regret_per_round": paper[row]} if row in paper else {}
    return Line(row, settings, budget, known)


def lines() -> tuple[Line, ...]:
    """The paper's rows, the two baselines beside them, and the readings (D1, D2, D6, D7)."""
    found = [_line(row, gate, budget) for row, gate, budget, _ in PAPER]
    for budget in (0.1, 0.25, 0.5):
        found.append(_line(f"first, β = {budget:g}", "first", budget))
    found.append(_line("uniform, β = 0.1", "uniform", 0.1))
    found += [
        _line("LLF, β = 0.1, as printed (no ELSE)", "llf", 0.1, reading="literal"),
        _line("LLF, β = 0.1, V on all rounds", "llf", 0.1, {**UCB, "track": "all"}),
        _line("Random, β = 0.1, V on all rounds", "random", 0.1, {**UCB, "track": "all"}),
        _line("first, β = 0.1, greedy on skips", "first", 0.1, {"action": "asked"}),
        _line("Random, β = 0.1, greedy on skips", "random", 0.1, {"action": "asked"}),
        _line("first, β = 0.1, greedy always", "first", 0.1, {}),
        _line("Full, greedy always", "always", 1.0, {}),
    ]
    found += [
        _line(f"LLF, β = 0.1, c = {scale:g}", "llf", 0.1, gate_scale=scale)
        for scale in (0.1, 4.0, 8.0, 10.0, 12.0, 16.0, 50.0)
    ]
    return tuple(found)


def trials(quick: bool) -> Sequence[Trial]:
    """One stream a seed, that of the preset `paper-table`."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [Trial({"kind": "iid", "feedback": "scalar", "rounds": rounds, "dim": 20}, lines())]


def measure(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """Regret on the way and of the last estimate, for each line."""
    stream = make_world(**world, seed=seed)
    found: list[Numbers] = []
    for line in lines:
        gate = {k: v for k, v in line.settings.items() if k != "scorer_settings"}
        named = {"name": gate.pop("gate"), **gate}
        budget = int((line.budget_fraction or 0.0) * stream.horizon + 1e-9)
        settings = line.settings["scorer_settings"]
        played = play(stream, named, budget, settings=settings, seed=seed)
        found.append(
            {
                "regret_per_round": float(regrets(stream, played).mean()),
                "final_regret": final_regret(stream, played.theta),
                "asked_fraction": float(played.asked.mean()),
            }
        )
    return found


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Regret a round of every row, the paper's beside it."""
    from stacksl.studies.lab.figures import bars

    shown = [row for row in rows if row.metric == "regret_per_round"]
    return {"regret": bars(shown, "regret a round", log=True)}


REGRET = LabStudy(
    name="regret",
    title="Synthetic linear bandit regret against budget",
    claim="LLF's regret is close to that of full information, random querying's ten times worse",
    cost="23 lines of 20,000 rounds a seed, some 3 s of one core",
    metrics=("regret_per_round", "final_regret"),
    seeds=10,
    trials=trials,
    play=measure,
    figures=figures,
)
