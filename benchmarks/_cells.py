"""What `preset_differences.py` measures: studies, each a list of cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stacksl.core.gates.registry import ONE_HOT_PACE


@dataclass(frozen=True)
class Cell:
    """One row of a study: a world, a learner, and which numbers are taken.

    `settings` are the scorer's (S is ‖θ*‖ unless given), `gate` a name with `parameters`; `preset`
    takes the learner of `stacksl run` instead. `labels` is B, or a share of T below 1.
    """

    row: str
    world: str
    scorer: str = "newton"
    gate: str = "first"
    labels: float = 0.1
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    kl_on_skips: bool = False
    preset: dict[str, Any] | None = None
    metrics: tuple[str, ...] = ("regret",)


def gate_cells(world: str, scorer: str, metrics: tuple[str, ...], **margin: Any) -> list[Cell]:
    """Every gate at one budget, and `contested` with less room to run ahead."""
    parameters = {"margin": margin, "contested, f = 0.3": {"reserve": 0.3}}
    names = (
        *("first", "llf", "random", "uniform"),
        *("contested", "contested, f = 0.3", "information", "margin"),
    )
    return [
        Cell(n, world, scorer, n.split(",")[0], parameters=parameters.get(n, {}), metrics=metrics)
        for n in names
    ]


def kl_cell(row: str, skips: bool, gate: str = "random", **settings: Any) -> Cell:
    settings = {"learning_rate": 0.1, "kl_weight": 0.5, **settings}
    metrics = ("regret", "accuracy", "moved") if gate == "random" else ("regret", "accuracy")
    return Cell(row, "labels", "sgd", gate, settings=settings, kl_on_skips=skips, metrics=metrics)


def sgd(rate: float, **settings: Any) -> dict[str, Any]:
    return {"learning_rate": rate, "kl_weight": 0.0, "clip": "none", **settings}


CLIPS = {
    "scale, 95% quantile": {"clip": "scale"},
    "scale, ρ = 5": {"clip": "scale", "clip_level": 5.0},
    "literal, ρ = 5": {"clip": "literal", "clip_level": 5.0},
    "literal, 95% quantile": {"clip": "literal"},
    "none": {"clip": "none"},
}


def clip_cells(world: str, names: Iterable[str]) -> list[Cell]:
    """Every label learned by large steps under some of `CLIPS`."""
    metrics = ("regret", "accuracy", "clipped")
    return [
        Cell(n, world, "sgd", labels=1.0, settings={**sgd(0.3), **CLIPS[n]}, metrics=metrics)
        for n in names
    ]


SMALL = {
    "gate.name": "llf",
    "scorer.name": "sgd",
    "gate.kappa": 1.5,
    "update.kl_weight": 1.0,
    "update.learning_rate": 0.03,
}
"""The paper's recipe for budgets of up to a tenth; its directions are the paper's."""

UCB = {"noise": 0.3, "action": "ucb"}
GREEDY = {"noise": 0.3}
ON = ("regret", "refit")

STUDIES: dict[str, list[Cell]] = {
    "scorer": [
        Cell("newton", "labels", labels=0.25, metrics=("regret", "coverage", "accuracy", "refit")),
        *(
            Cell(
                f"sgd, η = {rate}",
                "labels",
                "sgd",
                labels=0.25,
                settings=sgd(rate),
                metrics=("regret", "coverage", "accuracy", "refit"),
            )
            for rate in (0.03, 0.1, 0.3, 1.0)
        ),
        Cell("ridge", "labels", "ridge", labels=0.25, metrics=("regret", "accuracy", "refit")),
    ],
    "scorer on classes": [
        Cell(
            "ridge",
            "classes",
            "ridge",
            "margin",
            parameters=ONE_HOT_PACE,
            metrics=("regret", "accuracy", "refit"),
        ),
        Cell("newton", "classes", "newton", "margin", metrics=("regret", "accuracy", "refit")),
        Cell(
            "sgd, η = 0.1",
            "classes",
            "sgd",
            "margin",
            settings=sgd(0.1),
            metrics=("regret", "accuracy", "refit"),
        ),
        Cell(
            "sgd, η = 1",
            "classes",
            "sgd",
            "margin",
            settings=sgd(1.0),
            metrics=("regret", "accuracy", "refit"),
        ),
    ],
    "learning rate": [
        Cell(
            f"η = {rate}, {int(100 * share)}% of the labels",
            "labels",
            "sgd",
            labels=share,
            settings=sgd(rate),
        )
        for share in (0.05, 0.25, 1.0)
        for rate in (0.1, 0.03, 0.3, 1.0)
    ],
    "action": [
        Cell("labels, 10%: greedy", "labels"),
        Cell("labels, 10%: UCB", "labels", settings={"action": "ucb"}),
    ],
    "action, all labels": [
        Cell("labels, all: greedy", "labels", labels=1.0),
        Cell("labels, all: UCB", "labels", labels=1.0, settings={"action": "ucb"}),
    ],
    "action, rewards": [
        Cell("rewards, first: UCB", "rewards", "ridge", settings=UCB),
        Cell("rewards, first: greedy", "rewards", "ridge", settings=GREEDY),
        Cell("rewards, random: UCB", "rewards", "ridge", "random", settings=UCB),
        Cell("rewards, random: greedy", "rewards", "ridge", "random", settings=GREEDY),
    ],
    "gate": gate_cells("labels", "newton", ("regret", "refit", "asked")),
    "gate under shift": gate_cells("shift", "newton", ("regret", "refit", "asked")),
    "gate near ties": gate_cells("ties", "newton", ("regret", "refit", "asked")),
    "gate on classes": gate_cells("classes", "ridge", ON, **ONE_HOT_PACE),
    "gate on rare classes": gate_cells("rare", "ridge", ON, **ONE_HOT_PACE),
    "llf": [
        Cell("first", "rewards", "ridge", settings=UCB, metrics=("asked", "late", "regret")),
        *(
            Cell(
                row,
                "rewards",
                "ridge",
                "llf",
                settings=UCB,
                parameters=parameters,
                metrics=("asked", "late", "regret"),
            )
            for row, parameters in {
                "κ = 0.5, capped": {"kappa": 0.5},
                "κ = 1, capped": {"kappa": 1.0},
                "κ = 1.5, capped": {"kappa": 1.5},
                "c = 1.2 × median, no cap": {"medians": 1.2},
                "c = 1.5 × median, no cap": {"medians": 1.5},
                "as printed (literal), κ = 1": {"reading": "literal"},
                "as printed (literal), c = 50": {"reading": "literal", "gate_scale": 50.0},
                "as printed (literal), c = 500": {"reading": "literal", "gate_scale": 500.0},
            }.items()
        ),
    ],
    "track": [
        Cell(
            f"{track}, {int(100 * share)}%",
            "rewards",
            "ridge",
            labels=share,
            settings={**UCB, "track": track},
            metrics=("coverage", "regret"),
        )
        for share in (0.1, 0.25, 0.5)
        for track in ("labeled", "all")
    ],
    "radius": [
        Cell(
            count,
            "rewards",
            "ridge",
            settings={**UCB, "radius_counts": count},
            metrics=("radius", "coverage", "regret"),
        )
        for count in ("learned", "rounds")
    ],
    "reference": [
        kl_cell("no KL term", False, kl_weight=0.0),
        kl_cell("frozen", False),
        kl_cell("frozen, KL-only steps", True),
        kl_cell("previous", False, reference="previous"),
        kl_cell("previous, KL-only steps", True, reference="previous"),
        kl_cell(
            "previous, 5 inner steps",
            False,
            reference="previous",
            inner_steps=5,
            learning_rate=0.02,
        ),
        kl_cell("ema, KL-only steps", True, reference="ema"),
    ],
    "KL weight": [
        kl_cell(f"λ = {weight}", False, "first", kl_weight=weight)
        for weight in (0.1, 0.0, 0.5, 1.0)
    ],
    "KL-only under llf": [
        kl_cell("llf", False, "llf"),
        kl_cell("llf, KL-only steps", True, "llf"),
    ],
    "clip": clip_cells("labels", CLIPS),
    "clip at K = 200": clip_cells("K = 200", [name for name in CLIPS if "literal, 95" not in name]),
    "final model": [
        Cell("newton, labels", "labels", metrics=("accuracy", "refit")),
        Cell("sgd, labels", "labels", "sgd", settings=sgd(0.1), metrics=("accuracy", "refit")),
        Cell(
            "ridge, classes",
            "classes",
            "ridge",
            "margin",
            parameters=ONE_HOT_PACE,
            metrics=("accuracy", "refit"),
        ),
        Cell(
            "sgd, classes",
            "classes",
            "sgd",
            "margin",
            settings=sgd(0.1),
            metrics=("accuracy", "refit"),
        ),
    ],
    "order": [
        Cell(
            f"{world}: {gate}",
            world.replace("shuffled", "classes"),
            "ridge",
            gate,
            parameters=ONE_HOT_PACE if gate == "margin" else {},
            metrics=("refit",),
        )
        for world in ("shuffled", "sorted")
        for gate in ("first", "margin")
    ],
    "presets on labels": [
        Cell("default", "labels", preset={}, metrics=("regret", "final")),
        Cell("information", "labels", preset={"gate": "information"}, metrics=("regret", "final")),
        Cell("paper", "labels", preset={"preset": "paper"}, metrics=("regret", "final")),
        Cell("small", "labels", preset=SMALL, metrics=("regret", "final")),
    ],
    "presets on labels, all": [
        Cell("default", "labels", labels=1.0, preset={}, metrics=("regret", "final")),
        Cell(
            "paper-stacksl",
            "labels",
            labels=1.0,
            preset={"preset": "paper-stacksl"},
            metrics=("regret", "final"),
        ),
    ],
    "presets on classes": [
        Cell("default", "classes", preset={}, metrics=("regret", "final")),
        Cell("information", "classes", preset={"gate": "information"}, metrics=("regret", "final")),
        Cell("paper", "classes", preset={"preset": "paper"}, metrics=("regret", "final")),
        Cell("small", "classes", preset=SMALL, metrics=("regret", "final")),
    ],
    "paper's table": [
        Cell(
            f"{name} {share}",
            "rewards, T = 20,000",
            "ridge",
            gate,
            labels=share,
            settings={**UCB, "radius_counts": "rounds"},
            parameters={"gate_scale": 1.0} if gate == "llf" else {},
            metrics=("regret", "asked"),
        )
        for name, gate, share in (
            ("llf", "llf", 0.1),
            ("random", "random", 0.1),
            ("llf", "llf", 0.25),
            ("llf", "llf", 0.5),
            ("full", "always", 1.0),
        )
    ],
    "rate": [
        Cell(
            f"T = {n}",
            f"hard, T = {n}",
            "ridge",
            labels=100,
            settings={"noise": 0.5},
            metrics=("total",),
        )
        for n in (500, 1000, 2000, 4000)
    ],
}
"""The first row of a study is what the others are compared with."""
