"""Calls of the compiled engines: their arguments, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import uniforms
from stacksl.types import copied
from stacksl_lab.engines.arrays import Mark, Stream, StreamResult, expect_finite
from stacksl_lab.engines.loop_state import (
    CLIPPED,
    LEARNED,
    Certificates,
    Memory,
    make_certificates,
    make_heads,
    make_memory,
    make_space,
)
from stacksl_lab.engines.plan import Plan, Terms, make_plan

Rounds: TypeAlias = Callable[[int, int, Array], int]
"""Plays the rounds start + 1 to stop with these features; gives where it stopped, or −1."""


def play(stream: Stream, terms: Terms) -> StreamResult:
    """The stream played by a compiled loop."""
    plan = make_plan(terms, stream.dim, stream.rounds)
    memory = make_memory(plan, terms.gate, stream.classes)
    out = make_certificates(stream.rounds, plan.present)
    drawn = uniforms(terms.seed, "gate", stream.rounds)
    prepare = _pairs if stream.classes is None else _classes
    rounds = prepare(stream, plan, memory, out, drawn)
    marks = []
    for start, stop, rows in stream.chunks(terms.marks):
        expect_finite(rows, rounds(start, stop, rows), start)
        if stop in terms.marks:
            learned = int(memory.counts[LEARNED])
            marks.append(Mark(stop, memory.theta.copy(), _matrix(stream, memory), learned))
    return _result(stream, plan, memory, out, tuple(marks))


def _pairs(stream: Stream, plan: Plan, memory: Memory, out: Certificates, drawn: Array) -> Rounds:
    from stacksl_lab.engines.fused import play_changing, play_plain

    loop = play_changing if plan.present or plan.guarded else play_plain
    space = make_space(plan, stream.candidates)
    golds, utilities = stream.labels, stream.utilities
    if len(utilities) and not plan.present:
        golds, utilities = utilities.argmax(axis=1), utilities[:0]

    def rounds(start: int, stop: int, rows: Array) -> int:
        feedback = (part[start:stop] for part in (golds, stream.rewards, utilities))
        return int(loop(plan, memory, space, out, rows, *feedback, drawn, start))

    return rounds


def _classes(stream: Stream, plan: Plan, memory: Memory, out: Certificates, drawn: Array) -> Rounds:
    from stacksl_lab.engines.shared import play_classes

    heads = make_heads(stream.candidates, stream.dim)
    golds = stream.utilities.argmax(axis=1) if len(stream.utilities) else stream.labels

    def rounds(start: int, stop: int, rows: Array) -> int:
        return int(play_classes(plan, memory, heads, out, rows, golds[start:stop], drawn, start))

    return rounds


def _matrix(stream: Stream, memory: Memory) -> Array:
    """A copy of V⁻¹, whole."""
    if stream.classes is None:
        return memory.gram_inv.copy()
    from stacksl_lab.engines.shared import full

    return full(memory.gram_inv)


def _result(
    stream: Stream, plan: Plan, memory: Memory, out: Certificates, marks: tuple[Mark, ...]
) -> StreamResult:
    return copied(
        StreamResult,
        out,
        theta=memory.theta,
        gram_inv=_matrix(stream, memory),
        learned=int(memory.counts[LEARNED]),
        clipped=int(memory.counts[CLIPPED]),
        engine="fused",
        marks=marks,
        presented=out.presented if plan.present else None,
        resets=np.flatnonzero(out.resets) + 1,
    )
