"""The training examples of a refit: bought labels and, if the settings say so, skipped items."""

from __future__ import annotations

import hashlib

from stacksl.core.blocks import PairBlock
from stacksl.core.followers import loss_set
from stacksl.core.learner import Learner
from stacksl.core.scorers.newton import PairNewton
from stacksl.ledger.queries import LedgerReader
from stacksl.lm import Lesson
from stacksl.runs.loop.game import Examples
from stacksl.runs.session.build_learner import fresh_scorer
from stacksl.runs.spec import RunSpec
from stacksl.types import Label


def training_examples(
    spec: RunSpec, examples: Examples, ledger: LedgerReader, base: PairBlock, scale: float
) -> list[Lesson]:
    """The training examples of the next refit, in the order in which the labels were learned.

    Args:
        spec: the run.
        examples: the labels learned so far.
        ledger: records the skipped rounds.
        base: the features of epoch 0, whose offsets are the reference.
        scale: the temperature, as a multiple of theirs.
    """
    lessons = []
    for row, label, _ in examples.bought:
        item = spec.dataset.items[row]
        everything = tuple(range(len(item.candidates)))
        candidates = loss_set(examples.shown.get(row, everything), label, len(everything))
        lessons.append(Lesson(item, label, candidates, _reference(base, row, scale)))
    if spec.settings.update.kl_on_skips:
        for row in _skipped(examples, ledger):
            item = spec.dataset.items[row]
            everything = tuple(range(len(item.candidates)))
            lessons.append(Lesson(item, None, everything, _reference(base, row, scale)))
    return lessons


def renewable(spec: RunSpec, examples: Examples, ledger: LedgerReader) -> list[int]:
    """The rows of all items that can still be asked or learned."""
    corpus = examples.corpus
    known = {row for row, _, _ in examples.bought}
    known |= {corpus.row[purchase.item] for purchase in ledger.open_purchases()}
    streamed = spec.settings.mode == "stream"  # a seen item is not asked any more
    rows = enumerate(corpus.ids if streamed else ())
    unavailable = {row for row, item in rows if ledger.has_decision(item)} | spec.sources.erased
    return [row for row in range(len(corpus.ids)) if row in known or row not in unavailable]


def relearn(spec: RunSpec, examples: Examples, learner: Learner) -> None:
    """Rebuild the scorer from the labels learned, with the current features."""
    scorer = learner.scorer
    assert isinstance(scorer, PairNewton)
    rounds = scorer.rounds
    scorer.restore(fresh_scorer(spec.settings, examples.block).state())
    for row, label, choice in examples.bought:
        inputs = examples.block[row]
        scorer.step(inputs, tuple(range(inputs.size)), choice, Label(label))
    scorer.rounds = rounds


def labels_hash(examples: Examples) -> str:
    """A hash of the labels bought, in their order; a corrected one changes it."""
    text = repr([(row, label) for row, label, _ in examples.bought])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _reference(base: PairBlock, row: int, scale: float) -> tuple[float, ...]:
    offset = base[row].offset
    return () if offset is None else tuple(float(score) / scale for score in offset)


def _skipped(examples: Examples, ledger: LedgerReader) -> list[int]:
    """The usable rows skipped since the last refit while labels were left."""
    rows: list[int] = []
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
            rows.clear()
        elif row.event == "round":
            decision = row.decision()
            if decision.status == "skipped" and decision.reason != "spent":
                rows.append(examples.corpus.row[decision.item])
    usable = examples.corpus.usable
    return [row for row in rows if usable[row]]
