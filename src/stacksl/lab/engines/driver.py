"""Calls of the compiled loop: its arguments, chunk by chunk."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import uniforms
from stacksl.lab.engines.arrays import Mark, Stream, StreamResult, expect_finite
from stacksl.lab.engines.fused import play_changing, play_plain
from stacksl.lab.engines.loop_state import (
    CLIPPED,
    LEARNT,
    Certificates,
    Memory,
    make_certificates,
    make_memory,
    make_space,
)
from stacksl.lab.engines.plan import THETA, Plan, Terms, make_plan
from stacksl.types import copied


def play(stream: Stream, terms: Terms) -> StreamResult:
    """The stream played by a compiled loop."""
    plan = make_plan(terms, stream.dim, stream.rounds)
    memory, space = make_memory(plan, terms.gate), make_space(plan, stream.candidates)
    out = make_certificates(stream.rounds, plan.present)
    drawn = uniforms(terms.seed, "gate", stream.rounds)
    loop = play_changing if plan.present or plan.guarded else play_plain
    golds, utilities = stream.labels, stream.utilities
    if len(utilities) and not plan.present:
        golds, utilities = utilities.argmax(axis=1), utilities[:0]
    marks = []
    for start, stop, rows in stream.chunks(terms.marks):
        given = (part[start:stop] for part in (golds, stream.rewards, utilities))
        expect_finite(rows, loop(plan, memory, space, out, rows, *given, drawn, start), start)
        if stop in terms.marks:
            learnt = int(memory.counts[LEARNT])
            marks.append(Mark(stop, memory.theta.copy(), _matrix(plan, memory), learnt))
    return _result(plan, memory, out, tuple(marks))


def _matrix(plan: Plan, memory: Memory) -> Array | None:
    """A copy of V⁻¹; None where none is kept."""
    return None if plan.track == THETA else memory.gram_inv.copy()


def _result(plan: Plan, memory: Memory, out: Certificates, marks: tuple[Mark, ...]) -> StreamResult:
    return copied(
        StreamResult,
        out,
        theta=memory.theta,
        gram_inv=_matrix(plan, memory),
        learnt=int(memory.counts[LEARNT]),
        clipped=int(memory.counts[CLIPPED]),
        engine="fused",
        marks=marks,
        presented=out.presented if plan.present else None,
        resets=np.flatnonzero(out.resets) + 1,
    )
