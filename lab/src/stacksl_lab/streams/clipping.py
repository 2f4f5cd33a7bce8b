"""`clipping`: mean and largest loss with and without ρ, and the effect on the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.core.calibration import WINDOW, clip_at_quantile
from stacksl_lab.figures.clipping import CHANGING, HEADS, figures, layout
from stacksl_lab.gradient import clip_at_median
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row, pooled
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import final_regret, play, regrets
from stacksl_lab.synthetic.streams import heavy_stream

if TYPE_CHECKING:
    from stacksl.core.blocks import Array
    from stacksl_lab.engines import StreamResult
    from stacksl_lab.synthetic.streams import SyntheticStream


ROUNDS, QUICK_ROUNDS = 10_000, 300
SHARES = (0.0, 0.02, 0.1)
RATES = (0.3, 1.0)
CLIPS: Mapping[str, Mapping[str, Any]] = {
    "no ρ": {"clip": "none"},
    "ρ = 5, gradient 0 above it": {"clip": "literal", "clip_level": 5.0},
    "ρ = 5, gradient scaled": {"clip": "scale", "clip_level": 5.0},
    "ρ = 95% quantile, gradient 0": {"clip": "literal"},
    "ρ = 95% quantile, scaled": {"clip": "scale"},
    "ρ = 3 medians, gradient 0": {"clip": "literal", "clip_multiple": 3.0},
    "ρ = 3 medians, scaled": {"clip": "scale", "clip_multiple": 3.0},
}
ENOUGH, QUANTILE = 20, 0.95  # as the scorer has them


def lines(share: float) -> Iterator[Line]:
    """Every clip at both learning rates."""
    for rate in RATES:
        for name, clip in CLIPS.items():
            settings = {"clip": dict(clip), "learning_rate": rate, "name": name}
            yield Line(f"{_setting(share, rate)}, {name}", settings, 1.0)


def _setting(share: float, rate: float) -> str:
    return f"{share:.0%} wrong, η = {rate:g}"


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each share of wrong labels."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [Trial({"rounds": rounds, "share": share}, tuple(lines(share))) for share in SHARES]


def clipped(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Losses and the last model of `sgd` without a KL term, every label bought."""
    clip = line.settings["clip"]
    played = _trained(stream, clip, line.settings["learning_rate"], seed)
    values = losses(stream, played)
    cut = np.minimum(values, levels(values, clip))
    choices = (stream.test_features @ played.theta).argmax(axis=1)
    return {
        "mean_after": float(cut.mean()),
        "max_after": float(cut.max()),
        "mean_loss": float(values.mean()),
        "max_loss": float(values.max()),
        "clipped": played.clipped / stream.horizon,
        "accuracy": float((choices == stream.test_values.argmax(axis=1)).mean()),
        "final_regret": final_regret(stream, played.theta),
        "regret_per_round": float(regrets(stream, played).mean()),
        "asked_fraction": 1.0,
    }


def _trained(
    stream: SyntheticStream, clip: Mapping[str, Any], rate: float, seed: int
) -> StreamResult:
    """`sgd` on every label of the stream, with θ kept after each."""
    return play(
        stream,
        {"name": "always"},
        stream.horizon,
        scorer="sgd",
        settings={"kl_weight": 0.0, "learning_rate": rate, **clip},
        seed=seed,
        marks=range(1, stream.horizon + 1),
    )


def losses(stream: SyntheticStream, played: StreamResult) -> Array:
    """The cross-entropy of each round's label under θ before the round, (T,), in nats."""
    before = [np.zeros(stream.features.shape[2]), *(mark.theta for mark in played.marks[:-1])]
    scores = np.einsum("tki,ti->tk", stream.features, np.array(before))
    top = scores.max(axis=1)
    gold = scores[np.arange(len(scores)), stream.labels]
    values: Array = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - gold
    return values


def levels(values: Array, clip: Mapping[str, Any]) -> Array:
    """ρ of each round, (T,), from the losses before it: infinite where nothing is cut."""
    if clip["clip"] == "none":
        return np.full(len(values), math.inf)
    if "clip_level" in clip:
        return np.full(len(values), float(clip["clip_level"]))
    rho = np.full(len(values), math.inf)
    for t in range(ENOUGH, len(values)):
        seen = values[max(0, t - WINDOW) : t]
        multiple = clip.get("clip_multiple")
        rho[t] = (
            clip_at_quantile(seen, QUANTILE)
            if multiple is None
            else clip_at_median(seen, float(multiple))
        )
    return rho


def derive(samples: Samples) -> list[Row]:
    """What each clip changes against no ρ on the same stream, paired by seed."""
    return [
        _change(samples, share, rate, name, metric)
        for share in SHARES
        for rate in RATES
        for name in list(CLIPS)[1:]
        for metric in CHANGING
    ]


def _change(samples: Samples, share: float, rate: float, name: str, metric: str) -> Row:
    start = _setting(share, rate)
    with_rho, without = samples[f"{start}, {name}"], samples[f"{start}, no ρ"]
    pairs = zip(with_rho[metric], without[metric], strict=True)
    changes = [a - b for a, b in pairs]
    value, error = pooled(changes)
    settings = {"share": share, "learning_rate": rate, "name": name, "marks": []}
    return Row(
        "clipping", f"{start}, {name}", f"{metric}_change", value, error, len(changes), 1.0, 1.0,
        settings=settings,
    )  # fmt: skip


CLIPPING = StreamStudy(
    name="clipping",
    title="Clipping ρ on a stream with heavy-tailed losses",
    claim="clipping at 5 nats cuts the largest losses, leaves the mean, and stabilizes learning",
    cost="42 lines of 10,000 rounds per seed, about 25 s of one core",
    metrics=(*HEADS, "regret_per_round"),
    seeds=20,
    trials=trials,
    measure=clipped,
    stream=heavy_stream,
    derive=derive,
    table=layout,
    figures=figures,
)
