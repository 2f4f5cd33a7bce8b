"""The sentences of the paper's parameter section, with the sweeps and effects that test them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stacksl_lab.streams.trial import Samples
from stacksl_lab.study.study import Line

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
        source: the stream.
        lines: the sweep.
        metric: what the table shows of each line.
        effect: what is measured of the sweep, and in which unit.
        effects: the same as numbers, one a seed, above 0 where the sentence is right.
        presence: whether the effect is a share of something that is there or not, never below 0.
    """

    key: str
    text: str
    source: Mapping[str, Any]
    lines: tuple[Line, ...]
    metric: str
    effect: str
    effects: Effects
    presence: bool = False


def sweep(
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


def names(lines: Sequence[Line]) -> list[str]:
    """The rows of the lines."""
    return [line.row for line in lines]


def sgd(**settings: Any) -> Callable[[Any], Mapping[str, Any]]:
    """Settings of `sgd` by a value, which those take that are None; no KL term, no clipping."""
    return lambda value: {
        "kl_weight": 0.0,
        "clip": "none",
        **{k: value if v is None else v for k, v in settings.items()},
    }


def ends(
    key: str,
    text: str,
    source: Mapping[str, Any],
    lines: tuple[Line, ...],
    metric: str,
    effect: str,
    *,
    rising: bool = False,
) -> Sentence:
    """The first value has more of `metric` than the last; the last more where it is `rising`."""
    first, last = names(lines)[:1], names(lines)[-1:]
    effects = contrast(metric, last, first) if rising else contrast(metric, first, last)
    return Sentence(key, text, source, lines, metric, effect, effects)


def sides(
    key: str,
    text: str,
    source: Mapping[str, Any],
    lines: tuple[Line, ...],
    within: tuple[float, float],
    metric: str = "final_regret",
    called: str = "regret of the last θ",
) -> list[Sentence]:
    """A recommended range, a sentence a side: values outside on it lose more than those inside."""
    low, high = within
    rows = {line.row: float(line.settings["value"]) for line in lines}
    inside = [row for row, value in rows.items() if low <= value <= high]
    outside = {
        "below": [row for row, value in rows.items() if value < low],
        "above": [row for row, value in rows.items() if value > high],
    }
    return [
        Sentence(
            f"{key}, {side}",
            text,
            source,
            lines,
            metric,
            f"{called}, {side} the range less inside",
            contrast(metric, those, inside),
        )
        for side, those in outside.items()
    ]


Effects: TypeAlias = Callable[[Samples], Sequence[float]]
"""From the numbers of all lines to one number a seed."""

SOME, MOST = 0.05, 0.95
CLOSE = 0.05
"""How far the labels asked for may be from B, in shares of B."""


def contrast(metric: str, more: Sequence[str], less: Sequence[str]) -> Effects:
    """By how much the mean of `metric` over the rows `more` is above that over `less`, by seed."""

    def difference(samples: Samples) -> Sequence[float]:
        high, low = (np.mean([samples[r][metric] for r in rows], axis=0) for rows in (more, less))
        return [float(x) for x in high - low]

    return difference


def shift_of_best(small: Sequence[str], large: Sequence[str]) -> Effects:
    """Steps of the sweep by which the best value is higher in the rows `small` than in `large`.

    The best has the least regret of the last θ under its seed; of equals the smallest.
    """

    def shift(samples: Samples) -> Sequence[float]:
        few, many = (
            np.argmin([samples[row]["final_regret"] for row in rows], axis=0)
            for rows in (small, large)
        )
        return [float(x) for x in few - many]

    return shift


def between(rows: Sequence[str]) -> Effects:
    """The share of the rows in which between 5 and 95% of the budget are asked for, by seed."""

    def share(samples: Samples) -> Sequence[float]:
        asked = np.array([samples[row]["demand"] for row in rows])
        return [float(x) for x in ((asked > SOME) & (asked < MOST)).mean(axis=0)]

    return share


def near_budget(row: str) -> Effects:
    """By how much |labels asked for / B − 1| on the stream itself is within 5%, by seed.

    What is asked for is counted up to 2 B, so that too many labels are seen as too few are.
    """
    return lambda samples: [CLOSE - abs(x - 1.0) for x in samples[row]["demand_uncut"]]


def negative(effects: Effects) -> Effects:
    """The same with the other sign."""
    return lambda samples: [-x for x in effects(samples)]


UCB: Mapping[str, Any] = {"action": "ucb"}
FIRST: Mapping[str, Any] = {"scorer": "sgd", "gate": {"name": "first"}}
SHUT: Mapping[str, Any] = {"gate": {"name": "llf"}, "kappa": 1.1}
"""c is 1.1 times what opens the gate at ridge 1."""

KAPPAS = sweep(
    "c of llf", "κ", (0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0), kappa=float,
    gate={"name": "llf"}, scorer_settings=UCB,
)  # fmt: skip
LEVELS = sweep(
    "c of adpo",
    "level",
    (0.1, 0.2, 0.4, 0.6, 0.8, 1.2),
    gate=lambda x: {"name": "adpo", "level": x},
)
SCALES = sweep(
    "c of width", "scale", (0.25, 0.5, 1.0, 2.0, 4.0), gate=lambda x: {"name": "width", "scale": x}
)


def _gates() -> list[Sentence]:
    """What c does to the number of labels, in `llf` and in gates of widths."""
    sweeps = {"c of llf": KAPPAS, "c of adpo": LEVELS, "c of width": SCALES}
    less = "larger c leads to fewer label queries"
    fall = "labels asked for / B, smallest less largest"
    some = "c sets how many labels are asked for"
    share = "share of the values at which some labels are asked for, but not all"
    falls = [ends(key, less, SCALAR, lines, "demand", fall) for key, lines in sweeps.items()]
    degrees = [
        Sentence(
            f"{key}, by degrees", some, SCALAR, lines, "demand", share, between(names(lines)),
            presence=True,
        )
        for key, lines in sweeps.items()
    ]  # fmt: skip
    return falls + degrees


def _by_budget(name: str, key: str, values: Sequence[float], more: bool) -> Sentence:
    """The best value of an option of `sgd` is larger (smaller) at β = 0.02 than at 0.5."""
    options = sgd(**{name: None})
    sweeps = [
        sweep(key, name, values, budget, **FIRST, scorer_settings=options)
        for budget in (0.02, 0.1, 0.5)
    ]
    shift = shift_of_best(names(sweeps[0]), names(sweeps[-1]))
    return Sentence(
        key,
        f"smaller budgets want a {'larger' if more else 'smaller'} {name}",
        SOFTMAX,
        tuple(line for lines in sweeps for line in lines),
        "final_regret",
        f"steps the best value is {'above' if more else 'below'} at β = 0.02, next to 0.5",
        shift if more else negative(shift),
    )


def _budgets() -> list[Sentence]:
    """The budget, and what is said to change with it."""
    sizes = tuple(
        line
        for budget in (0.02, 0.1, 0.25, 0.5, 1.0)
        for line in sweep("budget", "B/T", (budget,), budget, gate={"name": "first"})
    )
    most = "the largest feasible budget should be used"
    gain = "regret of the last θ, β = 0.02 less 1"
    rates = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    return [
        _by_budget("kl_weight", "KL weight", (0.0, 0.1, 0.3, 1.0, 3.0, 10.0), more=True),
        _by_budget("learning_rate", "learning rate", rates, more=False),
        ends("budget", most, SCALAR, sizes, "final_regret", gain),
    ]


def _openings() -> list[Sentence]:
    """What is said to open a gate that is shut."""
    ridges = sweep(
        "ridge", "ridge", (0.01, 0.1, 1.0, 10.0), scorer_settings=lambda x: {"ridge": x}, **SHUT
    )
    lengths = sweep("normalization", "‖φ‖", (0.25, 0.5, 1.0, 2.0), shrink=float, **SHUT)
    opens = "if the gate rarely opens, increase the ridge"
    tight = "if the gate rarely opens, tighten the normalization of features"
    gain = "labels asked for / B,"
    return [
        ends("ridge", opens, SCALAR, ridges, "demand", f"{gain} ridge 10 less 0.01", rising=True),
        ends("normalization", tight, SCALAR, lengths, "demand", f"{gain} norm 0.25 less 2"),
    ]


def _ranges() -> list[Sentence]:
    """The ranges that are recommended, each side of them against the values inside."""
    deltas = sweep(
        "δ", "δ", (0.001, 0.01, 0.05, 0.1, 0.3, 0.5), gate={"name": "llf", "gate_scale": 1.0},
        scorer_settings=lambda x: {"delta": x, **UCB},
    )  # fmt: skip
    decays = sweep(
        "EMA", "α", (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999), **FIRST,
        scorer_settings=sgd(reference="ema", ema_decay=None, kl_weight=0.5),
    )  # fmt: skip
    targets = sweep(
        "τ", "τ", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0), **FIRST,
        scorer_settings=sgd(kl_target=None, kl_weight=0.1, reference="previous", inner_steps=5),
    )  # fmt: skip
    stable = "for stability, an EMA reference with α in 0.9 to 0.999"
    near = "keep the observed KL near τ in 1e-4 to 1e-2"
    a_round = ("regret_per_round", "regret a round")
    return [
        *sides("κ", "κ in 0.5 to 1.5", SCALAR, KAPPAS, (0.5, 1.5), *a_round),
        *sides("δ", "δ is 0.05 or 0.1", SCALAR, deltas, (0.05, 0.1)),
        *sides("EMA", stable, SOFTMAX, decays, (0.9, 0.999)),
        *sides("τ", near, SOFTMAX, targets, (1e-4, 1e-2)),
    ]


def _candidates() -> Sentence:
    sets = sweep(
        "candidates", "K", (2, 4, 16, 64), present=int, scorer="newton", gate={"name": "first"}
    )
    text = "larger candidate sets improve discrimination"
    gain = "regret of the last θ among 64, 2 presented less 64"
    return ends("candidates", text, MANY, sets, "final_regret", gain)


def _clips() -> Sentence:
    """ρ where some labels are wrong, every label bought."""
    common: dict[str, Any] = {"kl_weight": 0.0, "learning_rate": 1.0}
    options: Mapping[str, tuple[float, dict[str, Any]]] = {
        "none": (0, {"clip": "none"}),
        "median": (3.0, {"clip": "literal", "clip_multiple": 3.0}),
        "quantile": (0.95, {"clip": "literal"}),
    }
    base: dict[str, Any] = {"advice": "ρ", "scorer": "sgd", "gate": {"name": "always"}}
    lines = tuple(
        Line(f"ρ: {name}", {**base, "value": value, "scorer_settings": {**common, **clip}}, 1.0)
        for name, (value, clip) in options.items()
    )
    text = "ρ at the 95th percentile of a window, or a small multiple of the median"
    gain = "regret of the last θ, without ρ less with"
    effects = contrast("final_regret", names(lines)[:1], names(lines)[1:])
    return Sentence("ρ", text, HEAVY, lines, "final_regret", gain, effects)


def _bisection(gate: str) -> Sentence:
    """The level found is played on the stream itself, where more than B may be asked for."""
    key = f"bisection, {gate}"
    lines = sweep(key, "B/T", (0.1,), bisect=gate)
    text = f"bisection of the level of {gate} brings the labels to a target"
    effect = f"{CLOSE:g} less the distance of labels asked for / B from 1"
    effects = near_budget(names(lines)[0])
    return Sentence(key, text, SCALAR, lines, "demand_uncut", effect, effects)


SENTENCES: tuple[Sentence, ...] = (
    *_gates(), *_budgets(), *_openings(), *_ranges(), _candidates(), _clips(),
    *(_bisection(gate) for gate in ("adpo", "width", "lucb", "llf")),
)  # fmt: skip
"""In the order of the table. Some share a sweep."""
