"""The capacity of a corpus: the most that labels of known items can add to log det V.

`reserve` holds labels by it. The bound and its proof are in `docs/theory.md`, section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stacksl.core.blocks import Array, Block, SharedBlock
from stacksl.core.scorers import Scorer
from stacksl.errors import SettingsError
from stacksl_lab.baselines.reserve import Reserve

STEPS = 40
"""The matrices V₀ that are tried; on Banking77 a hundred lower the bound by another 0.1%."""

_ROUNDING = 1e-9  # of the bound, added to it


def corpus_capacity(
    rows: Array, labels: int, ridge: float, *, together: bool = False, steps: int = STEPS
) -> float:
    """A bound on log det(V/λI) over every choice of `labels` items, each at most once (nats).

    log det is concave, so that for any V₀ it is at most log det(V₀/λ) − d + λ tr V₀⁻¹ plus the
    `labels` largest gᵢ, gᵢ = tr(V₀⁻¹Mᵢ) for the matrix Mᵢ that item i adds. The smallest of `steps`
    such bounds is returned. The first V₀ is a multiple of I and gives d log(1 + S/(λd)), S being
    the `labels` largest tr Mᵢ, so that no result is above the bound that knows no corpus. Each next
    one moves toward the matrix that the largest gᵢ make (the steps of Frank and Wolfe).

    Args:
        rows: (n, d), one row φᵢ an item, Mᵢ = φᵢφᵢᵀ; or (n, m, d), m rows an item.
        labels: B, with the labels that are owned from the start.
        ridge: λ > 0.
        together: whether all m rows of an item enter with its label, Mᵢ being their sum; else one
            of them does, or a mean of their φφᵀ, and gᵢ is the largest.
        steps: how many V₀ are tried, at least 1.

    Raises:
        SettingsError: an argument is outside its range.

    >>> round(corpus_capacity(np.eye(2), 2, 1.0), 4), round(2 * math.log(2.0), 4)
    (1.3863, 1.3863)
    """
    if rows.ndim not in (2, 3) or labels < 0 or not 0.0 < ridge < math.inf or steps < 1:
        raise SettingsError(
            "the capacity of a corpus needs rows of shape (n, d) or (n, m, d), labels of at least "
            f"0, a ridge above 0 and at least one step, got {rows.shape}, {labels}, {ridge} and "
            f"{steps}: give one row, or m rows, an item"
        )
    held = rows[:, None, :] if rows.ndim == 2 else rows
    count, dim = min(labels, len(held)), held.shape[2]
    if count == 0:
        return 0.0
    prior = ridge * np.eye(dim)
    matrix, best = prior, math.inf
    for step in range(steps + 1):
        inverse = np.linalg.inv(matrix)
        squares = np.einsum("nmd,nmd->nm", held @ inverse, held)
        gains = squares.sum(axis=1) if together else squares.max(axis=1)
        top = np.argpartition(-gains, count - 1)[:count]
        if step == 0:  # at V₀ = λI the gains are tr Mᵢ/λ
            matrix = (1.0 + float(gains[top].sum()) / dim) * prior
            continue
        constant = np.linalg.slogdet(matrix / ridge)[1] - dim + ridge * float(np.trace(inverse))
        best = min(best, float(constant + gains[top].sum()))
        chosen = held[top] if together else held[top, squares[top].argmax(axis=1)]
        chosen = chosen.reshape(-1, dim)
        share = 2.0 / (step + 1.0)
        matrix = (1.0 - share) * matrix + share * (prior + chosen.T @ chosen)
    return best * (1.0 + _ROUNDING)


def with_corpus_capacity(gate: Reserve, block: Block, labels: int, scorer: Scorer) -> Reserve:
    """The gate `reserve` where the items that can be asked about are those of a block of classes.

    Args:
        gate: its other parameters stay.
        block: the features h of all items, each asked about at most once.
        labels: B, with the labels that are owned from the start.
        scorer: `ridge`, whose matrix a label adds hhᵀ to, or `newton` with ½hhᵀ.

    Raises:
        SettingsError: features of pairs, or a scorer whose labels enter in another way.
    """
    if not isinstance(block, SharedBlock) or scorer.name not in ("ridge", "newton"):
        raise SettingsError(
            "the capacity of a corpus is known for classes and the scorers 'ridge' and 'newton', "
            f"got '{scorer.name}' on {type(block).__name__}: leave the gate as it is"
        )
    rows = np.asarray([block[row].h for row in range(len(block))], dtype=np.float64)
    longest = math.sqrt(2.0) * float(np.linalg.norm(rows, axis=1).max(initial=0.0))
    entering = rows if scorer.name == "ridge" else rows * math.sqrt(0.5)
    return replace(
        gate,
        capacity=corpus_capacity(entering, labels, scorer.settings.ridge),
        counted=max(1, labels),
        reach=longest,
    )
