"""The engines `blocked` and `stepwise`: delayed updates of V⁻¹, for more than some 64 dimensions.

`blocked` knows the features of the next rounds, so that the images of b rounds are one matrix
product with V⁻¹ as the block found it; what is learnt inside corrects them (`pending`), and one
update of V⁻¹ follows. `stepwise` has one product of K rows a round. The decisions are the loop's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.game.engines import deferred, judging
from stacksl.game.engines.deferred import Care, play_rounds
from stacksl.game.engines.inverses import Inverse, Precision, make_inverse
from stacksl.game.engines.pending import Pending, make_pending
from stacksl.game.engines.plans import (
    ALL,
    ASKED,
    NEWTON,
    RIDGE,
    THETA,
    Certificates,
    Memory,
    Plan,
    Space,
    make_space,
)
from stacksl.game.inputs import Array

__all__ = ["Blocks", "block_of", "make_blocks"]

_NOTHING = np.zeros((0, 0, 0))


def block_of(candidates: int, rows: int) -> int:
    """b, the rounds of a block, where a label brings `rows` rows: clip(256/K, 4, 64), at most.

    With K rows a label fewer, so that some 64 updates wait at the end of a block.
    """
    most = min(max(256 // candidates, 4), 64)
    return most if rows == 1 else max(1, min(most, 64 // rows))


@dataclass(slots=True, eq=False)
class Blocks:
    """A run in play: its memory, its V⁻¹, and the updates that wait.

    Attributes:
        ahead: b, the rounds whose images are taken at once.
        most: the updates that may wait at a block's end.
        switched: the round (from 0) from which on float64 was needed for good, or −1.
        rechecked: the rounds left to float64 because they lay near a tie.
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

    def play(self, phi: Array, labels: NDArray[np.int64], rewards: Array, start: int) -> int:
        """The rounds of a chunk; gives −1, or the round whose scores are no finite numbers."""
        at = 0
        while at < len(phi):
            stop = len(phi) if self._blind() else min(len(phi), at + self.ahead)
            inverse = None if self._blind() else self.inverse
            at = self._advance(phi, labels, rewards, start, at, stop, inverse)
            status = self.waits.status[0]
            if status == deferred.NOT_FINITE:
                return start + at
            if status == deferred.BLIND:
                at = self._advance(phi, labels, rewards, start, at, at + 1, self.inverse)
                status = self.waits.status[0]
            if status in (deferred.COARSE, deferred.CLOSE):
                at = self._refine(phi, labels, rewards, start, at, status)
        return -1

    def _advance(
        self,
        phi: Array,
        labels: NDArray[np.int64],
        rewards: Array,
        start: int,
        at: int,
        stop: int,
        inverse: Inverse | None,
    ) -> int:
        """Rounds `at` to `stop` under `inverse`, or without images; gives the next to be played."""
        images, care = _NOTHING, Care(0.0, 0.0)
        rows = phi[at:stop]
        if inverse is not None:
            images = self.images[: len(rows)]
            inverse.images(rows.reshape(-1, phi.shape[2]), images.reshape(-1, phi.shape[2]))
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
            labels[at:stop],
            rewards[at:stop],
            self.uniforms,
            start + at,
        )
        if self.waits.used[0] > self.most or self.waits.status[0] >= deferred.COARSE:
            self.flush()
        return at + int(played)

    def _refine(
        self,
        phi: Array,
        labels: NDArray[np.int64],
        rewards: Array,
        start: int,
        at: int,
        status: int,
    ) -> int:
        """Go on in float64: for good where float32 is too coarse, for a block near a tie."""
        better = self.inverse.better()
        if status == deferred.COARSE:
            self.inverse, self.switched = better, start + at
            return at
        self.rechecked += 1
        stop = min(len(phi), at + self.ahead)
        at = self._advance(phi, labels, rewards, start, at, stop, better)
        self.flush()
        return at

    def flush(self) -> None:
        """Take what waits into V⁻¹; θ of the ridge is then V⁻¹b anew."""
        if self.waits.used[0] == 0:
            return
        self.inverse.absorb(self.waits)
        self.waits.used[0] = 0
        if self.plan.scorer == RIDGE:
            self.inverse.estimate(self.memory.moment, self.memory.theta)

    def finish(self) -> Array | None:
        """V⁻¹ after the last round, (d, d); None where none is kept."""
        self.flush()
        return None if self.plan.track == THETA else self.inverse.full()

    def _blind(self) -> bool:
        """Whether the next rounds need images only where they learn."""
        plan = self.plan
        if plan.track == THETA:
            return True
        left = self.memory.counts[ASKED] < plan.budget
        by_gate = plan.gate in (judging.LLF, judging.CONTESTED, judging.ADPO) and left
        return not (plan.certificates or plan.ucb or by_gate or plan.track == ALL)


def make_blocks(
    plan: Plan,
    memory: Memory,
    out: Certificates,
    uniforms: Array,
    *,
    candidates: int,
    dim: int,
    by_label: bool,
    lookahead: bool,
    precision: Precision,
) -> Blocks:
    """A run before round 1: `by_label` where labels come and not rewards.

    `lookahead` makes it `blocked`, else it is `stepwise`.
    """
    whole = plan.scorer == NEWTON or (plan.scorer == RIDGE and by_label)
    rows = candidates if whole else 1
    ahead = block_of(candidates, rows) if lookahead else 1
    most = max(8, min(64, dim // 12))
    return Blocks(
        plan,
        memory,
        make_space(plan, candidates, dim),
        out,
        uniforms,
        make_pending(candidates, dim, most + ahead * rows),
        make_inverse(precision, memory.gram_inv),
        np.zeros((ahead, candidates, dim)),
        ahead,
        most,
    )
