"""The training examples of a refit: bought labels and, if the settings say so, skipped items."""

from __future__ import annotations

import hashlib
from collections.abc import Set

import numpy as np

from stacksl.core.blocks import Array, PairBlock
from stacksl.core.followers import Follower, loss_set
from stacksl.ledger.queries import LedgerReader
from stacksl.lm import Lesson
from stacksl.runs.loop.examples import Examples
from stacksl.runs.spec import RunSpec


def training_examples(
    spec: RunSpec, examples: Examples, ledger: LedgerReader, follower: Follower, base: PairBlock
) -> list[Lesson]:
    """The training examples of the next refit, in the order in which the labels were learnt.

    Args:
        spec: the run.
        examples: the labels learnt so far.
        ledger: records the skipped rounds.
        follower: decides which candidate the gold displaces from a loss set.
        base: the features of epoch 0, whose offsets are the reference, so that a loss set does
            not depend on the time of the refit.
    """
    found = []
    for row, label, _ in examples.bought:
        reference = _reference(base, row)
        candidates = loss_set_of(examples, follower, row, label, np.array(reference))
        found.append(Lesson(spec.dataset.items[row], label, candidates, reference))
    if spec.settings.kl_on_skips:
        for row in _skipped(examples, ledger, spec.sources.forgotten):
            item = spec.dataset.items[row]
            everything = tuple(range(len(item.candidates)))
            found.append(Lesson(item, None, everything, _reference(base, row)))
    return found


def labels_hash(examples: Examples) -> str:
    """A hash of the labels bought, in their order; a corrected one changes it."""
    text = repr([(row, label) for row, label, _ in examples.bought])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def loss_set_of(
    examples: Examples, follower: Follower, row: int, label: int, scores: Array
) -> tuple[int, ...]:
    """C_t ∪ {gold}; where the follower has it, the gold displaces the lowest by `scores`."""
    presented = examples.shown.get(row, tuple(range(examples.block[row].size)))
    return loss_set(presented, label, scores if follower.displaces else None)


def _reference(base: PairBlock, row: int) -> tuple[float, ...]:
    offset = base[row].offset
    return () if offset is None else tuple(float(score) for score in offset)


def _skipped(examples: Examples, ledger: LedgerReader, forgotten: Set[int]) -> list[int]:
    """The rows skipped since the last refit while labels were left, without `forgotten` ones."""
    rows: list[int] = []
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:
            rows.clear()
        elif row.event == "round":
            decision = row.decision()
            if decision.status == "skipped" and decision.reason != "spent":
                rows.append(examples.corpus.row[decision.item])
    return [row for row in rows if row not in forgotten]
