"""The annotators' test on the training rows of a run."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.ledger.events import Row
from stacksl.models.annotators import compare_annotators, doubt_of
from stacksl.report.quality import Differing
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.types import Decision

AT_ONCE = 25  # answers: what is shown of a run that goes on would else tell what each was for


def differing(game: Game, at_once: int) -> tuple[Differing, ...]:
    """The annotators who agree with the prediction far less than the others do.

    Nobody is tested whom the owner has judged before. Answers of the audit are never used, and of
    the others as many as a multiple of `at_once`.
    """
    standing, rows = game.ledger.standing, _answered(game)
    rows = sorted(
        rows[: len(rows) // at_once * at_once],
        key=lambda pair: (pair[0].round, str(pair[1].item), str(pair[1].labeler)),
    )
    names = sorted({str(row.labeler) for _, row in rows})
    against = [n for n, name in enumerate(names) if standing.get(name, "kept") == "kept"]
    tested = [n for n, name in enumerate(names) if name not in standing]
    if len(against) < 2 or not tested:
        return ()
    predicted, doubt = _predicted(game, rows)
    found = compare_annotators(
        np.array([names.index(str(row.labeler)) for _, row in rows]),
        predicted == np.array([row.label().index for _, row in rows]),
        np.where(np.isfinite(doubt), doubt, 0.0),
        tested,
        against,
    )
    return tuple(
        Differing(names[each.annotator], each.rows, each.agreed, each.expected, each.p)
        for each in found
        if each.differs
    )


def _answered(game: Game) -> list[tuple[Decision, Row]]:
    """The first answers of usable training rows that name a candidate, in the order of answering.

    Each comes with the decision that asked for it.
    """
    asking: dict[str | None, Row] = {}
    corpus, usable, found = game.corpus, game.corpus.usable, []
    for row in game.ledger.rows():
        if row.event == "round":
            asking[row.surrogate] = row
        elif row.event != "answered" or row.purpose != "train" or "index" not in row.payload:
            continue
        elif usable[corpus.row[str(row.item)]]:
            found.append((asking[row.surrogate].decision(), row))
    return found


def _predicted(game: Game, rows: list[tuple[Decision, Row]]) -> tuple[np.ndarray, np.ndarray]:
    """The prediction of each row by class names alone, else the model's before the label."""
    trainer, block = game.trainer, game.examples.block
    if isinstance(trainer, LinearTrainer) and trainer.names is not None:
        assert isinstance(block, SharedBlock)
        places = [game.corpus.row[str(row.item)] for _, row in rows]
        names = np.asarray(trainer.names[: block.classes], dtype=np.float64)
        return doubt_of(np.asarray(block.h[places], dtype=np.float64) @ names.T)
    choices, doubts = zip(*((made.choice, made.statistic) for made, _ in rows), strict=True)
    return np.array(choices), np.array(doubts)
