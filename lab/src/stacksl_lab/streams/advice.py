"""`advice`: each sentence of the paper's parameter section, swept, with a verdict by a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.core.blocks import PairFeatures
from stacksl.core.calibration import warmup_length, warmup_spreads
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl_lab.figures.advice import figures, layout
from stacksl_lab.streams.bisections import bisected, voluntary
from stacksl_lab.streams.sentences import SENTENCES
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row, pooled
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import outcome, play
from stacksl_lab.synthetic.streams import SyntheticStream, heavy_stream, make_stream

if TYPE_CHECKING:
    from stacksl_lab.streams.sentences import Sentence


ROUNDS, QUICK_ROUNDS = 4000, 200


def trials(quick: bool) -> Sequence[Trial]:
    """One trial a stream, with the lines of every sentence that is tested on it."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    sources: dict[str, tuple[Mapping[str, Any], dict[str, Line]]] = {}
    for sentence in SENTENCES:
        source = {**sentence.source, "rounds": rounds}
        _, lines = sources.setdefault(repr(source), (source, {}))
        lines |= {line.row: line for line in sentence.lines}
    return [Trial(source, tuple(lines.values())) for source, lines in sources.values()]


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """What a line asked for of its own accord, over B (`demand`), and lost."""
    options = line.settings
    if "bisect" in options:
        return bisected(stream, line, seed)
    shown = _presented(_shrunk(stream, options.get("shrink", 1.0)), options.get("present"))
    settings = options.get("scorer_settings", {})
    gate = dict(options["gate"])
    if "kappa" in options:
        gate["gate_scale"] = options["kappa"] * _median_spread(stream)
    budget = line.budget(stream.horizon)
    played = play(shown, gate, budget, scorer=options.get("scorer"), settings=settings, seed=seed)
    return {"demand": voluntary(played) / budget, **outcome(shown, played)}


def stream_of(kind: Any, seed: int, **source: Any) -> SyntheticStream:
    """The stream of a sentence."""
    if kind == "heavy":
        return heavy_stream(seed, **source)
    return make_stream(kind, **source, seed=seed, purpose="advice")


def _shrunk(stream: SyntheticStream, factor: float) -> SyntheticStream:
    """Features `factor` times as long; the learner knows neither, answers stay what they were."""
    if factor == 1.0:
        return stream
    return replace(
        stream,
        features=factor * stream.features,
        test_features=factor * stream.test_features,
        truth=stream.truth / factor,
    )


def _presented(stream: SyntheticStream, count: int | None) -> SyntheticStream:
    """The first `count` candidates of each round; the test keeps them all."""
    if count is None:
        return stream
    assert stream.utilities is not None
    return replace(
        stream,
        features=stream.features[:, :count],
        values=stream.values[:, :count],
        utilities=stream.utilities[:, :count],
        present=count,
    )


def _median_spread(stream: SyntheticStream) -> float:
    """The median of the spreads of the warm-up at the standard ridge and length of features."""
    count = warmup_length(stream.horizon)
    settings = ScorerSettings(noise=stream.noise, norm_bound=stream.norm_bound)
    scorer = make_scorer("ridge", dim=stream.features.shape[2], classes=None, settings=settings)
    block = [PairFeatures(rows) for rows in stream.features[:count]]
    everyone = tuple(range(stream.features.shape[1]))
    spreads = warmup_spreads(scorer, block, [everyone] * count)
    return float(np.median(spreads))


def derive(samples: Samples) -> list[Row]:
    """The effect of each sentence, above 0 where the paper is right, with its error over seeds."""
    return [_effect(sentence, samples) for sentence in SENTENCES]


def _effect(sentence: Sentence, samples: Samples) -> Row:
    effects = list(sentence.effects(samples))
    value, error = pooled(effects)
    settings = {
        "text": sentence.text,
        "effect": sentence.effect,
        "metric": sentence.metric,
        "presence": sentence.presence,
        "lines": [line.row for line in sentence.lines],
        "marks": [],
    }
    return Row("advice", sentence.key, "effect", value, error, len(effects), settings=settings)


ADVICE = StreamStudy(
    name="advice",
    title="The parameter section, sentence by sentence",
    claim="how c, the KL weight, η, the ridge, κ, δ, α, K, τ and ρ should be set",
    cost="100 lines of 4,000 rounds per seed, and four bisections; about 2 s of one core",
    metrics=(
        "demand",
        "regret_per_round",
        "final_regret",
        "jump",
        "level",
        "level_above",
        "demand_uncut",
        "demand_uncut_above",
    ),
    seeds=40,
    trials=trials,
    measure=measure,
    stream=stream_of,
    derive=derive,
    table=layout,
    figures=figures,
)
