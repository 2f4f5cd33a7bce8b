"""The training examples of a refit: bought labels and, if the settings say so, skipped items."""

from __future__ import annotations

import hashlib
from collections.abc import Set

from stacksl.core.blocks import PairBlock
from stacksl.core.followers import loss_set
from stacksl.ledger.queries import LedgerReader
from stacksl.lm import Lesson
from stacksl.runs.loop.examples import Examples
from stacksl.runs.spec import RunSpec


def training_examples(
    spec: RunSpec, examples: Examples, ledger: LedgerReader, base: PairBlock
) -> list[Lesson]:
    """The training examples of the next refit, in the order in which the labels were learnt.

    Args:
        spec: the run.
        examples: the labels learnt so far.
        ledger: records the skipped rounds.
        base: the features of epoch 0, whose offsets are the reference.
    """
    found = []
    for row, label, _ in examples.bought:
        item = spec.dataset.items[row]
        everything = tuple(range(len(item.candidates)))
        candidates = loss_set(examples.shown.get(row, everything), label, len(everything))
        found.append(Lesson(item, label, candidates, _reference(base, row)))
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


def _reference(base: PairBlock, row: int) -> tuple[float, ...]:
    offset = base[row].offset
    return () if offset is None else tuple(float(score) for score in offset)


def _skipped(examples: Examples, ledger: LedgerReader, forgotten: Set[int]) -> list[int]:
    """The rows skipped since the last refit while labels were left, without `forgotten` ones."""
    rows: list[int] = []
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
            rows.clear()
        elif row.event == "round":
            decision = row.decision()
            if decision.status == "skipped" and decision.reason != "spent":
                rows.append(examples.corpus.row[decision.item])
    return [row for row in rows if row not in forgotten]
