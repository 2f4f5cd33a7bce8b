"""The sentences of the paper's parameter section, each with the lines that test it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacksl.studies.lab.measures.effects import (
    Effects,
    between,
    contrast,
    negative,
    rooted,
    shift_of_best,
)
from stacksl.studies.lab.trial import Line

__all__ = ["SENTENCES", "Sentence"]

SCALAR: Mapping[str, Any] = {"kind": "iid", "feedback": "scalar", "dim": 20}
SOFTMAX: Mapping[str, Any] = {"kind": "iid", "feedback": "softmax", "dim": 20}
MANY: Mapping[str, Any] = {**SOFTMAX, "candidates": 64}
HEAVY: Mapping[str, Any] = {"kind": "heavy", "share": 0.02, "dim": 20}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of advice, what is swept to test it, and what is measured of the sweep.

    Attributes:
        key: its name, with which its lines begin.
        text: what the paper says.
        world: the stream.
        lines: the sweep.
        metric: what the table shows of each line.
        effect: what is measured of the sweep, and in which unit.
        effects: the same as numbers, one a seed, above 0 where the sentence is right.
        presence: whether the effect is a share of something that is there or not, never below 0.
    """

    key: str
    text: str
    world: Mapping[str, Any]
    lines: tuple[Line, ...]
    metric: str
    effect: str
    effects: Effects
    presence: bool = False


def _sweep(
    key: str, name: str, values: Sequence[Any], budget: float = 0.1, **settings: Any
) -> tuple[Line, ...]:
    """A line a value; a callable among the settings is given the value."""
    return tuple(
        Line(
            f"{key}: {name} = {value:g}, β = {budget:g}",
            {
                "advice": key,
                "value": value,
                **{k: v(value) if callable(v) else v for k, v in settings.items()},
            },
            budget,
        )
        for value in values
    )


def _rows(lines: Sequence[Line]) -> list[str]:
    return [line.row for line in lines]


def _inside(lines: Sequence[Line], low: float, high: float) -> tuple[list[str], list[str]]:
    """Rows whose value is in [low, high], and the others."""
    mine = [line.row for line in lines if low <= line.settings["value"] <= high]
    return mine, [line.row for line in lines if line.row not in mine]


def _range(key: str, text: str, lines: tuple[Line, ...], low: float, high: float) -> Sentence:
    """A recommended range: the values inside lose less than those outside."""
    inside, outside = _inside(lines, low, high)
    return Sentence(
        key,
        text,
        SCALAR if "scorer" not in lines[0].settings else SOFTMAX,
        lines,
        "final_regret",
        "regret of the last θ, outside less inside",
        contrast("final_regret", outside, inside),
    )


def _sgd(**settings: Any) -> Callable[[Any], Mapping[str, Any]]:
    return lambda value: {
        "kl_weight": 0.0,
        "clip": "none",
        **{k: value if v is None else v for k, v in settings.items()},
    }


def _gates() -> list[Sentence]:
    ucb = {"action": "ucb"}
    kappas = _sweep(
        "c of llf", "κ", (0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5), kappa=float,
        gate={"name": "llf"}, scorer_settings=ucb,
    )  # fmt: skip
    levels = _sweep(
        "c of adpo", "level", (0.1, 0.2, 0.4, 0.6, 0.8, 1.2),
        gate=lambda x: {"name": "adpo", "level": x},
    )  # fmt: skip
    scales = _sweep(
        "c of width", "scale", (0.25, 0.5, 1.0, 2.0, 4.0),
        gate=lambda x: {"name": "width", "scale": x},
    )  # fmt: skip
    less = "larger c leads to fewer label queries"
    demand = "labels asked for / B"
    found = [
        Sentence(
            name, less, SCALAR, lines, "demand", f"{demand}, smallest less largest",
            contrast("demand", _rows(lines)[:1], _rows(lines)[-1:]),
        )
        for name, lines in (("c of llf", kappas), ("c of adpo", levels), ("c of width", scales))
    ]  # fmt: skip
    for name, lines in (("c of llf", kappas), ("c of adpo", levels), ("c of width", scales)):
        text = "c sets how many labels are asked for"
        share = "share of the values at which some labels are asked for, but not all"
        rows = _rows(lines)
        found.append(
            Sentence(
                f"{name}, by degrees", text, SCALAR, lines, "demand", share, between(rows),
                presence=True,
            )
        )  # fmt: skip
    text = "κ in 0.5 to 1.5"
    inside, outside = _inside(kappas, 0.5, 1.5)
    found.append(
        Sentence(
            "κ", text, SCALAR, kappas, "regret_per_round", "regret a round, outside less inside",
            contrast("regret_per_round", outside, inside),
        )
    )  # fmt: skip
    return found


def _budgets() -> list[Sentence]:
    """What is said to change with the budget."""
    found = []
    for key, name, values, more in (
        ("KL weight", "kl_weight", (0.0, 0.1, 0.3, 1.0, 3.0, 10.0), True),
        ("learning rate", "learning_rate", (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), False),
    ):
        settings = _sgd(**{name: None})
        sweeps = [
            _sweep(
                key, name, values, budget, scorer="sgd", gate={"name": "first"},
                scorer_settings=settings,
            )
            for budget in (0.02, 0.1, 0.5)
        ]  # fmt: skip
        shift = shift_of_best(_rows(sweeps[0]), _rows(sweeps[-1]))
        found.append(
            Sentence(
                key,
                f"smaller budgets want a {'larger' if more else 'smaller'} {name}",
                SOFTMAX,
                tuple(line for sweep in sweeps for line in sweep),
                "final_regret",
                f"steps the best value is {'above' if more else 'below'} at β = 0.02, beside 0.5",
                shift if more else negative(shift),
            )
        )
    sizes = tuple(
        line
        for budget in (0.02, 0.1, 0.25, 0.5, 1.0)
        for line in _sweep("budget", "B/T", (budget,), budget, gate={"name": "first"})
    )
    few, most = _rows(sizes)[:1], _rows(sizes)[-1:]
    found.append(
        Sentence(
            "budget", "the largest feasible budget should be used", SCALAR, sizes, "final_regret",
            "regret of the last θ, β = 0.02 less 1", contrast("final_regret", few, most),
        )
    )  # fmt: skip
    return found


def _openings() -> list[Sentence]:
    """What is said to open a gate that is shut: c is 1.1 times what opens it at ridge 1."""
    shut: dict[str, Any] = {"gate": {"name": "llf"}, "kappa": 1.1}
    ridges = _sweep(
        "ridge", "ridge", (0.01, 0.1, 1.0, 10.0), scorer_settings=lambda x: {"ridge": x}, **shut
    )
    lengths = _sweep("normalization", "‖φ‖", (0.25, 0.5, 1.0, 2.0), shrink=float, **shut)
    opens = "if the gate rarely opens, increase the ridge"
    tight = "if the gate rarely opens, tighten the normalization of features"
    return [
        Sentence(
            "ridge", opens, SCALAR, ridges, "demand", "labels asked for / B, ridge 10 less 0.01",
            contrast("demand", _rows(ridges)[-1:], _rows(ridges)[:1]),
        ),
        Sentence(
            "normalization", tight, SCALAR, lengths, "demand",
            "labels asked for / B, norm 0.25 less 2",
            contrast("demand", _rows(lengths)[:1], _rows(lengths)[-1:]),
        ),
    ]  # fmt: skip


def _ranges() -> list[Sentence]:
    deltas = _sweep(
        "δ", "δ", (0.001, 0.01, 0.05, 0.1, 0.3), gate={"name": "llf", "gate_scale": 1.0},
        scorer_settings=lambda x: {"delta": x, "action": "ucb"},
    )  # fmt: skip
    first: dict[str, Any] = {"scorer": "sgd", "gate": {"name": "first"}}
    decays = _sweep(
        "EMA", "α", (0.0, 0.5, 0.9, 0.99, 0.999), **first,
        scorer_settings=_sgd(reference="ema", ema_decay=None, kl_weight=0.5),
    )  # fmt: skip
    targets = _sweep(
        "τ", "τ", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1), **first,
        scorer_settings=_sgd(kl_target=None, kl_weight=0.1, reference="previous", inner_steps=5),
    )  # fmt: skip
    return [
        _range("δ", "δ is 0.05 or 0.1", deltas, 0.05, 0.1),
        _range("EMA", "for stability, an EMA reference with α in 0.9 to 0.999", decays, 0.9, 0.999),
        _range("τ", "keep the observed KL near τ in 1e-4 to 1e-2", targets, 1e-4, 1e-2),
    ]


def _others() -> list[Sentence]:
    sets = _sweep(
        "candidates", "K", (2, 4, 16, 64), present=int, scorer="newton", gate={"name": "first"}
    )
    clips = (("none", 0), ("median", 3.0), ("quantile", 0.95))
    rhos = tuple(
        Line(
            f"ρ: {name}",
            {
                "advice": "ρ", "value": value, "scorer": "sgd", "gate": {"name": "always"},
                "scorer_settings": {
                    "kl_weight": 0.0, "learning_rate": 1.0,
                    "clip": "none" if name == "none" else "literal",
                    **({"clip_multiple": value} if name == "median" else {}),
                },
            },
            1.0,
        )
        for name, value in clips
    )  # fmt: skip
    gain = "regret of the last θ, without ρ less with"
    smaller = "regret of the last θ among 64, 2 presented less 64"
    return [
        Sentence(
            "candidates", "larger candidate sets improve discrimination", MANY, sets,
            "final_regret", smaller,
            contrast("final_regret", _rows(sets)[:1], _rows(sets)[-1:]),
        ),
        Sentence(
            "ρ", "ρ at the 95th percentile of a window, or a small multiple of the median", HEAVY,
            rhos, "final_regret", gain, contrast("final_regret", ["ρ: none"], _rows(rhos)[1:]),
        ),
    ]  # fmt: skip


def _bisections() -> list[Sentence]:
    found = []
    for gate in ("adpo", "width", "lucb", "llf"):
        key = f"bisection, {gate}"
        lines = _sweep(key, "B/T", (0.1,), bisect=gate)
        text = f"bisection of the level of {gate} brings the labels to a target"
        effect = "share of seeds in which labels asked for / B fall by at most 0.05 there"
        has = rooted(_rows(lines)[0])
        found.append(Sentence(key, text, SCALAR, lines, "jump", effect, has, presence=True))
    return found


SENTENCES: tuple[Sentence, ...] = (
    *_gates(), *_budgets(), *_openings(), *_ranges(), *_others(), *_bisections()
)  # fmt: skip
"""In the order of the table. Some share a sweep."""
