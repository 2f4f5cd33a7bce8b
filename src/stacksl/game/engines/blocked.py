"""The engines `blocked` and `stepwise`: delayed updates of V⁻¹, for more than some 64 dimensions.

`blocked` knows the features of the next rounds, so that the images of b rounds are one matrix
product with V⁻¹ as the block found it; what is learnt inside corrects them (`pending`), and one
update of V⁻¹ follows. `stepwise` has one product of K rows a round. The decisions are the loop's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines import stops
from stacksl.game.engines.arrays import Stream
from stacksl.game.engines.choosing import Precision
from stacksl.game.engines.deferred import play_rounds
from stacksl.game.engines.inverses import Inverse, make_inverse
from stacksl.game.engines.pending import Pending, make_pending
from stacksl.game.engines.plans import ALL, NEWTON, RIDGE, THETA, Plan
from stacksl.game.engines.rooms import ASKED, Certificates, Memory, Space, make_space
from stacksl.game.engines.stops import Care
from stacksl.game.engines.terms import Terms
from stacksl.game.inputs import Array

__all__ = ["Blocks", "Feedback", "block_of", "deferred_rounds"]

_NOTHING = np.zeros((0, 0, 0))


def block_of(candidates: int, rows: int) -> int:
    """b, the rounds of a block, where a label brings `rows` rows: clip(256/K, 4, 64), at most.

    With K rows a label fewer, so that some 64 updates wait at the end of a block.
    """
    most = min(max(256 // candidates, 4), 64)
    return most if rows == 1 else max(1, min(most, 64 // rows))


class Feedback(NamedTuple):
    """What may be learnt in each round of a chunk; two of the three are empty."""

    labels: NDArray[np.int64]
    rewards: Array
    utilities: Array

    def part(self, start: int, stop: int) -> Feedback:
        """That of the rounds `start` to `stop`."""
        return Feedback._make(column[start:stop] for column in self)


@dataclass(slots=True, eq=False)
class Blocks:
    """A run in play: its memory, its V⁻¹, and the updates that wait.

    Attributes:
        ahead: b, the rounds whose images are taken at once.
        most: the updates that may wait at a block's end.
        switched: the round (from 0) from which on float64 was needed for good, or −1.
        rechecked: how often a decision near a tie was left to float64.
    """

    plan: Plan
    memory: Memory
    space: Space
    out: Certificates
    uniforms: Array
    waits: Pending
    inverse: Inverse
    images: Array
    ahead: int
    most: int
    switched: int = -1
    rechecked: int = 0

    def play(self, phi: Array, feedback: Feedback, start: int) -> int:
        """The rounds of a chunk; gives −1, or the round whose scores are no finite numbers."""
        at, ahead = 0, _even(len(phi), self.ahead)
        while at < len(phi):
            blind = self._blind()
            stop = len(phi) if blind else min(len(phi), at + ahead)
            at = self._advance(phi, feedback, start, at, stop, None if blind else self.inverse)
            status = self.waits.status[0]
            if status == stops.NOT_FINITE:
                return start + at
            if status == stops.BLIND:
                at = self._advance(phi, feedback, start, at, at + 1, self.inverse)
                status = self.waits.status[0]
            if status == stops.COARSE:
                self.inverse, self.switched = self.inverse.better(), start + at
            elif status == stops.CLOSE:
                self.rechecked += 1
                stop = min(len(phi), at + ahead)
                at = self._advance(phi, feedback, start, at, stop, self.inverse.better())
                self.flush()
        return -1

    def _advance(
        self,
        phi: Array,
        feedback: Feedback,
        start: int,
        at: int,
        stop: int,
        inverse: Inverse | None,
    ) -> int:
        """Rounds `at` to `stop` under `inverse`, or without images; gives the next to be played."""
        rows, images, care = phi[at:stop], _NOTHING, Care(0.0, 0.0)
        if inverse is not None:
            shown = self.space.rows[None] if self.plan.present else rows
            images = self.images[: len(rows)]
            inverse.images(shown.reshape(-1, phi.shape[2]), images.reshape(-1, phi.shape[2]))
            care = Care(inverse.least, inverse.close)
        played = play_rounds(
            self.plan,
            self.memory,
            self.space,
            self.waits,
            care,
            self.out,
            rows,
            images,
            *feedback.part(at, stop),
            self.uniforms,
            start + at,
        )
        if self.waits.used[0] > self.most or self.waits.status[0] >= stops.COARSE:
            self.flush()
        return at + int(played)

    def flush(self) -> None:
        """Take what waits into V⁻¹; θ of the ridge is then V⁻¹b anew."""
        if self.waits.used[0] == 0:
            return
        self.inverse.absorb(self.waits)
        self.waits.used[0] = 0
        if self.plan.scorer == RIDGE:
            self.inverse.estimate(self.memory.moment, self.memory.theta)

    def finish(self) -> None:
        """Bring the memory up to date: θ and V⁻¹ as they are after the last round played."""
        self.flush()
        if self.plan.track == THETA:
            return
        whole = self.inverse.full()
        if whole is not self.memory.gram_inv:
            self.memory.gram_inv[:] = whole

    def _blind(self) -> bool:
        """Whether images are needed only where a round learns, or wait for the follower."""
        plan = self.plan
        if plan.track == THETA or plan.present:
            return True
        left = self.memory.counts[ASKED] < plan.budget
        by_gate = plan.by_widths and left
        return not (plan.certificates or plan.ucb or by_gate or plan.track == ALL)


def _even(rounds: int, most: int) -> int:
    """The length of blocks of at most `most` that fill `rounds` evenly."""
    return math.ceil(rounds / math.ceil(rounds / most))


def deferred_rounds(
    stream: Stream,
    terms: Terms,
    plan: Plan,
    memory: Memory,
    out: Certificates,
    uniforms: Array,
    *,
    lookahead: bool,
    precision: Precision,
) -> Callable[[int, int, Array], int]:
    """What plays the rounds start + 1 to stop; `lookahead` makes it `blocked`, else `stepwise`.

    It gives where it stopped for scores that are no finite numbers, or −1.
    """
    golds, utilities = stream.labels, stream.utilities
    if len(utilities) and not plan.present:
        golds, utilities = utilities.argmax(axis=1), utilities[:0]
    feedback = Feedback(golds, stream.rewards, utilities)
    blocks = _blocks(stream, terms, plan, memory, out, uniforms, lookahead, precision)

    def rounds(start: int, stop: int, rows: Array) -> int:
        stopped = blocks.play(rows, feedback.part(start, stop), start)
        if stop in terms.marks or stop == stream.rounds:
            blocks.finish()
        return stopped

    return rounds


def _blocks(
    stream: Stream,
    terms: Terms,
    plan: Plan,
    memory: Memory,
    out: Certificates,
    uniforms: Array,
    lookahead: bool,
    precision: Precision,
) -> Blocks:
    """A run before round 1."""
    shown, dim = plan.present or stream.candidates, stream.dim
    whole = plan.scorer == NEWTON or (plan.scorer == RIDGE and not len(stream.rewards))
    rows = shown if whole else 1
    ahead = block_of(shown, rows) if lookahead else 1
    most = max(8, min(64, dim // 12))
    return Blocks(
        plan,
        memory,
        make_space(plan, stream.candidates),
        out,
        uniforms,
        make_pending(shown, dim, most + ahead * rows),
        make_inverse(precision, memory.gram_inv, lookahead),
        np.zeros((ahead, shown, dim)),
        ahead,
        most,
    )
