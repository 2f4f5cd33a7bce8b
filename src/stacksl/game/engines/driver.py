"""The compiled engines from outside: what their loops are given, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from stacksl.game.engines import plans
from stacksl.game.engines.arrays import Stream, expect_finite
from stacksl.game.engines.choosing import Precision
from stacksl.game.engines.outcomes import Mark, StreamResult
from stacksl.game.engines.plans import Certificates, Memory, Plan
from stacksl.game.engines.terms import Terms
from stacksl.game.inputs import Array
from stacksl.game.randomness import uniforms

__all__ = ["play"]

Rounds: TypeAlias = Callable[[int, int, Array], int]
"""Plays the rounds start + 1 to stop with these features; gives where it stopped, or −1."""


def play(
    stream: Stream,
    terms: Terms,
    engine: Literal["fused", "blocked", "stepwise"],
    precision: Precision,
) -> StreamResult:
    """The stream played by a compiled loop."""
    plan = plans.make_plan(
        terms.scorer,
        terms.settings,
        terms.gate,
        dim=stream.dim,
        budget=terms.budget,
        horizon=stream.rounds,
        kl_on_skips=terms.kl_on_skips,
        width_scale=terms.width_scale,
        certificates=terms.certificates,
        present=terms.present,
        drift=terms.drift,
    )
    memory = plans.make_memory(plan, terms.gate, terms.settings, stream.dim, stream.classes)
    out = plans.make_certificates(stream.rounds, plan.present)
    drawn = uniforms(terms.seed, "gate", stream.rounds)
    if engine == "fused":
        kind = _pairs if stream.classes is None else _classes
        rounds = kind(stream, plan, memory, out, drawn)
    else:
        from stacksl.game.engines.blocked import deferred_rounds

        ahead = engine == "blocked"
        given = (stream, terms, plan, memory, out, drawn)
        rounds = deferred_rounds(*given, lookahead=ahead, precision=precision)
    marks = []
    for start, stop, rows in stream.chunks(terms.marks):
        expect_finite(rows, rounds(start, stop, rows), start)
        if stop in terms.marks:
            learnt = int(memory.counts[plans.LEARNT])
            marks.append(Mark(stop, memory.theta.copy(), _matrix(stream, plan, memory), learnt))
    return _result(stream, plan, memory, out, tuple(marks), engine)


def _pairs(stream: Stream, plan: Plan, memory: Memory, out: Certificates, drawn: Array) -> Rounds:
    from stacksl.game.engines.fused import play_pairs

    space = plans.make_space(plan, stream.candidates, stream.dim)
    golds, utilities = stream.labels, stream.utilities
    if len(utilities) and not plan.present:
        golds, utilities = utilities.argmax(axis=1), utilities[:0]

    def rounds(start: int, stop: int, rows: Array) -> int:
        given = (part[start:stop] for part in (golds, stream.rewards, utilities))
        return int(play_pairs(plan, memory, space, out, rows, *given, drawn, start))

    return rounds


def _classes(stream: Stream, plan: Plan, memory: Memory, out: Certificates, drawn: Array) -> Rounds:
    from stacksl.game.engines.shared import play_classes

    heads = plans.make_heads(stream.candidates, stream.dim)
    golds = stream.utilities.argmax(axis=1) if len(stream.utilities) else stream.labels

    def rounds(start: int, stop: int, rows: Array) -> int:
        return int(play_classes(plan, memory, heads, out, rows, golds[start:stop], drawn, start))

    return rounds


def _matrix(stream: Stream, plan: Plan, memory: Memory) -> Array | None:
    """A copy of V⁻¹, whole; None where none is kept."""
    if plan.track == plans.THETA:
        return None
    if stream.classes is None:
        return memory.gram_inv.copy()
    from stacksl.game.engines.triangle import full

    return full(memory.gram_inv)


def _result(
    stream: Stream,
    plan: Plan,
    memory: Memory,
    out: Certificates,
    marks: tuple[Mark, ...],
    engine: Literal["fused", "blocked", "stepwise"],
) -> StreamResult:
    return StreamResult(
        choices=out.choices,
        asked=out.asked,
        statistics=out.statistics,
        thresholds=out.thresholds,
        gate_scores=out.gate_scores,
        scores=out.scores,
        reaches=out.reaches,
        theta=memory.theta,
        gram_inv=_matrix(stream, plan, memory),
        learnt=int(memory.counts[plans.LEARNT]),
        clipped=int(memory.counts[plans.CLIPPED]),
        engine=engine,
        marks=marks,
        presented=out.presented if plan.present else None,
        resets=np.flatnonzero(out.resets) + 1,
    )
