"""`clipping`: mean and largest loss with and without ρ, and what clipping does to the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.game.calibration import clip_at_median, clip_at_quantile
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Samples, Trial
from stacksl.studies.lab.worlds.heavy import heavy_world
from stacksl.studies.lab.worlds.playing import final_regret, play, regrets
from stacksl.studies.rows import Row, half_width, pooled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stacksl.game.engines import StreamResult
    from stacksl.game.inputs import Array
    from stacksl.studies.lab.worlds.streams import World

__all__ = ["CLIPPING"]

ROUNDS, QUICK_ROUNDS = 10_000, 300
SHARES = (0.0, 0.02, 0.1)
RATES = (0.3, 1.0)
CLIPS: Mapping[str, Mapping[str, Any]] = {
    "no ρ": {"clip": "none"},
    "ρ = 5, gradient 0 above it": {"clip": "literal", "clip_level": 5.0},
    "ρ = 5, gradient scaled": {"clip": "scale", "clip_level": 5.0},
    "ρ = 95 % quantile, gradient 0": {"clip": "literal"},
    "ρ = 95 % quantile, scaled": {"clip": "scale"},
    "ρ = 3 medians, gradient 0": {"clip": "literal", "clip_multiple": 3.0},
    "ρ = 3 medians, scaled": {"clip": "scale", "clip_multiple": 3.0},
}
PAPER = {
    "no ρ": {"mean_after": 1.37, "max_after": 23.5},
    "ρ = 5, gradient 0 above it": {"mean_after": 1.36, "max_after": 5.0},
}
"""Label tab:clipping, beside the stream in which 2 % of the labels are wrong, η = 1."""

WINDOW, ENOUGH, QUANTILE = 200, 20, 0.95  # as the scorer has them
HEADS: Mapping[str, str] = {
    "mean_after": "mean loss, cut at ρ",
    "max_after": "largest loss, cut at ρ",
    "mean_loss": "mean loss, not cut",
    "max_loss": "largest loss, not cut",
    "clipped": "share above ρ",
    "accuracy": "accuracy of the last θ",
    "final_regret": "regret of the last θ",
}


def lines(share: float) -> Iterator[Line]:
    """Every clip at both learning rates."""
    for rate in RATES:
        for name, clip in CLIPS.items():
            known = PAPER.get(name, {}) if (share, rate) == (0.02, 1.0) else {}
            settings = {"clip": dict(clip), "learning_rate": rate, "name": name}
            row = f"{share:.0%} wrong, η = {rate:g}, {name}"
            yield Line(row, settings, 1.0, known)


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each share of wrong labels."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [Trial({"rounds": rounds, "share": share}, tuple(lines(share))) for share in SHARES]


def measure(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """Losses and the last model of sgd with every label bought, for each line."""
    stream = heavy_world(seed, **world)
    return [clipped(stream, line, seed) for line in lines]


def clipped(stream: World, line: Line, seed: int) -> Numbers:
    """The numbers of one run without a KL term."""
    clip = line.settings["clip"]
    settings = {"track": "theta", "kl_weight": 0.0, **clip}
    settings["learning_rate"] = line.settings["learning_rate"]
    rounds = stream.horizon
    played = play(
        stream,
        {"name": "always"},
        rounds,
        scorer="sgd",
        settings=settings,
        seed=seed,
        marks=range(1, rounds + 1),
    )
    found = losses(stream, played)
    cut = np.minimum(found, levels(found, clip))
    best = stream.test_values.argmax(axis=1)
    choices = (stream.test_features @ played.theta).argmax(axis=1)
    return {
        "mean_after": float(cut.mean()),
        "max_after": float(cut.max()),
        "mean_loss": float(found.mean()),
        "max_loss": float(found.max()),
        "clipped": played.clipped / rounds,
        "accuracy": float((choices == best).mean()),
        "final_regret": final_regret(stream, played.theta),
        "regret_per_round": float(regrets(stream, played).mean()),
        "asked_fraction": 1.0,
    }


def losses(stream: World, played: StreamResult) -> Array:
    """The cross-entropy of each round's label under θ before the round, (T,), in nats."""
    before = [np.zeros(stream.features.shape[2]), *(mark.theta for mark in played.marks[:-1])]
    scores = np.einsum("tki,ti->tk", stream.features, np.array(before))
    top = scores.max(axis=1)
    gold = scores[np.arange(len(scores)), stream.labels]
    found: Array = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - gold
    return found


def levels(found: Array, clip: Mapping[str, Any]) -> Array:
    """ρ of each round, (T,), from the losses before it: infinite where nothing is cut."""
    if clip["clip"] == "none":
        return np.full(len(found), math.inf)
    if "clip_level" in clip:
        return np.full(len(found), float(clip["clip_level"]))
    rho = np.full(len(found), math.inf)
    for t in range(ENOUGH, len(found)):
        seen = found[max(0, t - WINDOW) : t]
        multiple = clip.get("clip_multiple")
        rho[t] = (
            clip_at_quantile(seen, QUANTILE)
            if multiple is None
            else clip_at_median(seen, float(multiple))
        )
    return rho


def derive(samples: Samples) -> list[Row]:
    """What each clip changes against no ρ on the same stream, paired by seed."""
    rows = []
    for share in SHARES:
        for rate in RATES:
            start = f"{share:.0%} wrong, η = {rate:g}, "
            without = samples[f"{start}no ρ"]
            for name in list(CLIPS)[1:]:
                mine = samples[start + name]
                for metric in ("mean_loss", "max_loss", "accuracy", "final_regret"):
                    pairs = zip(mine[metric], without[metric], strict=True)
                    gains = [a - b for a, b in pairs]
                    value, error = pooled(gains)
                    settings = {"share": share, "learning_rate": rate, "name": name, "marks": []}
                    rows.append(
                        Row(
                            "clipping", start + name, f"{metric}_change", value, error,
                            len(gains), 1.0, 1.0, None, settings,
                        )
                    )  # fmt: skip
    return rows


def layout(rows: Sequence[Row]) -> str:
    """A table for each share of wrong labels, the paper's numbers in their cells, then changes."""
    parts = []
    for share in dict.fromkeys(row.settings["share"] for row in rows):
        mine = [row for row in rows if row.settings["share"] == share]
        parts.append(f"**{share:.0%} of the labels wrong**\n\n" + _table(mine, HEADS))
        changes = {f"{m}_change": f"{HEADS[m]}, change" for m in HEADS if m not in _CUT}
        parts.append(_table([row for row in mine if row.metric in changes], changes))
    return "\n\n".join([*parts, _verdict(rows)])


_CUT = ("mean_after", "max_after", "clipped")


def _table(rows: Sequence[Row], heads: Mapping[str, str]) -> str:
    lines = ["| η | | " + " | ".join(heads.values()) + " |", "|" + "---|" * (len(heads) + 2)]
    for name in dict.fromkeys(row.row for row in rows):
        mine = {row.metric: row for row in rows if row.row == name}
        known = next(iter(mine.values())).settings
        cells = [_cell(mine.get(metric)) for metric in heads]
        lines.append(f"| {known['learning_rate']:g} | {known['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None or row.value is None:
        return ""
    half = half_width(row)
    paper = "" if row.paper is None else f" (paper {row.paper:g})"
    return f"{row.value:.4g}" + ("" if half is None else f" ± {half:.2g}") + paper


def _verdict(rows: Sequence[Row]) -> str:
    """At how many settings the intervals of the paired changes lie on either side of 0."""
    said = []
    for metric in ("max_loss_change", "accuracy_change", "final_regret_change"):
        mine = [row for row in rows if row.metric == metric and row.value is not None]
        signs = [_side(row) for row in mine]
        counts = f"raises it in {signs.count(1)}, lowers it in {signs.count(-1)}"
        head = HEADS[metric.removesuffix("_change")]
        said.append(f"- {head}: clipping {counts}, no effect seen in {signs.count(0)} of "
                    f"{len(signs)} settings.")  # fmt: skip
    rule = "An effect is seen where the 95 % interval of the change, paired by seed, leaves out 0."
    return "\n".join([rule, "", *said])


def _side(row: Row) -> int:
    half = half_width(row)
    if half is None or abs(row.value or 0.0) <= half:
        return 0
    return 1 if (row.value or 0.0) > 0 else -1


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Largest loss, and regret of the last θ, by clip: a panel each, a colour a learning rate."""
    from stacksl.studies.lab.drawing.style import COLOURS, MARKERS, canvas, styled

    shown = [row for row in rows if row.settings["share"] == 0.02]
    panels = {m: HEADS[m] for m in ("max_after", "max_loss", "final_regret")}
    with styled():
        drawn, axes = canvas(1, len(panels), width=9.0, height=3.2)
        for ax, (metric, head) in zip(axes[0], panels.items(), strict=True):
            for number, rate in enumerate(RATES):
                mine = [
                    r for r in shown
                    if r.metric == metric and r.settings["learning_rate"] == rate
                ]  # fmt: skip
                ax.errorbar(
                    [row.value for row in mine],
                    [place + 0.16 * (number - 0.5) for place in range(len(mine))],
                    xerr=[half_width(row) or 0.0 for row in mine],
                    fmt=MARKERS[number],
                    color=COLOURS[number],
                    label=f"η = {rate:g}",
                    ms=4,
                    capsize=2,
                )
            ax.set_yticks(range(len(CLIPS)), list(CLIPS) if metric == "max_after" else [""] * 7)
            ax.set_ylim(len(CLIPS) - 0.5, -0.5)
            ax.set_xlabel(f"{head} (nats)" if "loss" in head else head)
        names = axes[0, 0].get_legend_handles_labels()
        title = "2 % of the labels wrong; means with 95 % intervals over seeds"
        drawn.legend(*names, loc="outside upper center", ncols=2, title=title)
    return {"clipping": drawn}


CLIPPING = LabStudy(
    name="clipping",
    title="Clipping ρ on a stream with heavy-tailed losses",
    claim="clipping at 5 nats cuts the largest losses, leaves the mean, and stabilises learning",
    cost="42 lines of 10,000 rounds a seed, some 25 s of one core",
    metrics=(*HEADS, "regret_per_round"),
    seeds=20,
    trials=trials,
    play=measure,
    derive=derive,
    layout=layout,
    figures=figures,
)
