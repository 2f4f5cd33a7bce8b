"""The threshold below which the final model of a run abstains, from answers of none of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.heads.abstaining import FEWEST, Threshold, best_threshold, stands_for
from stacksl.core.heads.logistic import folds_of
from stacksl.core.rng import generator
from stacksl.core.scorers import Head, Scorer
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.loop.linear_trainer import LinearTrainer

FOLDS = 3
SAMPLE = 20_000  # items never asked that are scored at most
CHUNK = 4096  # items scored at a time


def unnamed(ledger: LedgerReader) -> list[str]:
    """Training items with an answer of none of these and no answer that names a candidate.

    Answers that are set aside do not count.
    """
    aside = ledger.set_aside
    answered = [
        row
        for row in ledger.export()
        if row["state"] == "answered" and row["purpose"] == "train" and row["labeler"] not in aside
    ]
    named = {row["item"] for row in answered if row["said"] == "label"}
    found = dict.fromkeys(str(row["item"]) for row in answered if row["said"] == "none")
    return [item for item in found if item not in named]


def train_threshold(trainer: LinearTrainer, untouched: Scorer) -> Threshold | None:
    """The threshold for the final model of `trainer`; None with too few labels or none-of-these.

    Every probability is from a model that was not fitted on the item: the bought labels are held
    out in three folds, and each other item is scored by one of the three models. Those have two
    thirds of the labels, so their probabilities are slightly lower than the final model's. The
    probabilities of items never asked give the weights of the bought ones (`stands_for`).

    Args:
        trainer: with the final head.
        untouched: a scorer in its initial state.
    """
    examples = trainer.examples
    rows = [examples.corpus.row[item] for item in unnamed(trainer.ledger)]
    none = np.array(rows, dtype=np.int64)
    none = none[examples.corpus.usable[none]]
    bought = np.array([row for row, _, _ in examples.bought], dtype=np.int64)
    if trainer.head is None or min(len(none), len(bought)) < FEWEST:
        return None
    rng = generator(trainer.seed, "abstain")
    rest, each = _rest(trainer, rng)
    parts = [rng.permutation(len(rows)) % FOLDS for rows in (none, rest)]
    labelled, others, unasked = [], [], []
    for number, (_, held) in enumerate(folds_of(len(bought), trainer.seed)):
        mine = rest[parts[1] == number]
        head = trainer.without(held, mine, untouched)
        if head is None:
            return None
        labelled.append(_largest(head, trainer, bought[held]))
        others.append(_largest(head, trainer, none[parts[0] == number]))
        unasked.append(_largest(head, trainer, mine))
    kinds = np.concatenate(labelled), np.concatenate(others)
    return best_threshold(*kinds, *stands_for(*kinds, np.concatenate(unasked), each))


def _rest(trainer: LinearTrainer, rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
    """A uniform sample of the rows never asked, and the number of rows that each represents."""
    corpus = trainer.examples.corpus
    asked = {corpus.row[item] for item in trainer.ledger.bought()}
    passed = np.array(sorted(asked | corpus.aside()), dtype=np.int64)
    rest = np.setdiff1d(np.arange(len(corpus.ids)), passed)
    drawn = rest if len(rest) <= SAMPLE else np.sort(rng.permutation(rest)[:SAMPLE])
    return drawn, len(rest) / max(1, len(drawn))


def _largest(head: Head, trainer: LinearTrainer, rows: NDArray[np.int64]) -> Array:
    parts = [rows[start : start + CHUNK].tolist() for start in range(0, len(rows), CHUNK)]
    blocks = (trainer.examples.block.take(part) for part in parts)
    found = [float(np.max(p)) for block in blocks for p in head.probabilities(block)]
    return np.array(found, dtype=np.float64)


def words_on_threshold(found: Threshold | None, none: int, *, possible: bool) -> str:
    """The report's sentence on abstention; empty where no answer was none of these.

    Args:
        found: the threshold.
        none: the training answers that said none of these and named no class.
        possible: whether the final model is a head that can be refitted on a part of its labels.
    """
    if not none:
        return ""
    if found is not None:
        return (
            f"The model abstains where its largest probability is below {found.value:.3f}."
            f" {found.none} answers of none of these and {found.labels} labels chose that, each"
            " judged by a model that had not seen it: the probability of a labelled item is the"
            f" larger in {found.auroc:.0%} of their pairs, and the mean of the share of labels it"
            f" keeps and of none-of-these it abstains on is {found.balanced_accuracy:.0%}. In both,"
            " each bought item has the weight of all items of a similar probability."
        )
    if not possible:
        return "The model never abstains: this kind of final model has no threshold for it."
    if none < FEWEST:
        return (
            f"The model never abstains: {none} items were answered with none of these, and a"
            f" threshold needs {FEWEST}, and as many labels."
        )
    return (
        f"The model never abstains: its probability does not separate the {none} items answered"
        " with none of these from those with a label, or there are too few labels."
    )
