"""The annotators' test on the training rows of a run, and the rows it holds back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.ledger.events import Row
from stacksl.ledger.queries import LedgerReader
from stacksl.models.annotators import compare_annotators, doubt_of
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer


class Answered(NamedTuple):
    """A label of a training row, with the certificate that asked for it."""

    round: int
    item: str | None
    annotator: str
    label: int
    choice: int
    doubt: float


def hold_back(game: Game) -> frozenset[str]:
    """Hold the answers of annotators who agree far less than the others; their names.

    Nobody is tested whom the owner has judged before, and answers of the audit are never used.
    """
    standing = {name: row.event for name, row in game.ledger.standing().items()}
    rows = _answered(game.ledger)
    names = sorted({row.annotator for row in rows})
    against = [n for n, name in enumerate(names) if standing.get(name, "kept") == "kept"]
    tested = [n for n, name in enumerate(names) if name not in standing]
    if len(against) < 2 or not tested:
        return frozenset()
    predicted, doubt = _predicted(game, rows)
    found = compare_annotators(
        np.array([names.index(row.annotator) for row in rows]),
        predicted == np.array([row.label for row in rows]),
        np.where(np.isfinite(doubt), doubt, 0.0),
        tested,
        against,
    )
    held = [each for each in found if each.differs]
    for each in held:
        detail = {"rows": each.rows, "agreed": each.agreed, "expected": each.expected, "p": each.p}
        game.ledger.stand("held", names[each.annotator], detail)
    return frozenset(names[each.annotator] for each in held)


def _answered(ledger: LedgerReader) -> list[Answered]:
    """The first answers of the training rows that name a candidate, in the order of rounds."""
    certificates: dict[str | None, Row] = {}  # of the last round: a pool may pass an item over
    found = []
    for row in ledger.rows():
        if row.event == "round":
            certificates[row.surrogate] = row
        elif row.forgotten or row.event != "answered" or row.purpose != "train":
            continue
        elif "index" in row.payload:
            made = certificates[row.surrogate].decision()
            label = row.label().index
            found.append(
                Answered(made.round, row.item, str(row.labeler), label, made.choice, made.statistic)
            )
    return sorted(found)


def _predicted(game: Game, rows: list[Answered]) -> tuple[np.ndarray, np.ndarray]:
    """The prediction of each row by class names alone, else the model's before the label."""
    trainer, block = game.trainer, game.examples.block
    if isinstance(trainer, LinearTrainer) and trainer.names is not None:
        assert isinstance(block, SharedBlock)
        places = [game.corpus.row[str(row.item)] for row in rows]
        names = np.asarray(trainer.names[: block.classes], dtype=np.float64)
        return doubt_of(np.asarray(block.h[places], dtype=np.float64) @ names.T)
    return np.array([row.choice for row in rows]), np.array([row.doubt for row in rows])
