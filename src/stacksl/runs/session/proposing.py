"""Classes that a run proposes: rows that look alike and like none of its classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.features.retrieval import nearest
from stacksl.models.topics import NAMED, averaged, characteristic
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer

FEWEST, SHOWN = 15, 3  # rows of a group; groups, the largest first
LOOKED_AT, COMPARED = 20_000, 2_000  # rows without an answer; of these, for the words of a group


def proposed(game: Game, at_once: int, began: int) -> list[dict[str, Any]]:
    """Groups of rows that look alike and like no class: how many rows, and a name of their words.

    Such a row was answered with none of these, or has no answer and is nearer to one that was than
    to a row with a label or to the name of a class; HDBSCAN finds the groups. Answers of the audit
    are never used, and of the others as many as a multiple of `at_once`; nor is one whose nearest
    class by name was added after the first `began` ones.
    """
    from sklearn.cluster import HDBSCAN

    corpus, ledger, block, trainer = game.corpus, game.ledger, game.examples.block, game.trainer
    if not isinstance(block, SharedBlock) or not isinstance(trainer, LinearTrainer):
        return []
    names = np.zeros((0, block.dim)) if trainer.names is None else trainer.names[: block.classes]
    rows = [each for each in ledger.rows(only=("answered",)) if each.purpose == "train"]
    kept = [each for each in rows if not each.erased and each.labeler not in ledger.set_aside]
    answered = {str(each.item) for each in kept[: len(kept) // at_once * at_once]}
    label = {corpus.row[item]: ledger.label_of(item) for item in sorted(answered)}
    said = {corpus.row[str(each["item"])] for each in ledger.export() if each["said"] == "none"}
    none = [row for row, index in label.items() if index is None and row in said]
    none = [row for row in none if not len(names) or np.argmax(names @ block.h[row]) < began]
    rest = np.array(corpus.unbought(ledger.bought("train")), np.int64)
    rest = rest[:: 1 + len(rest) // LOOKED_AT]
    if not none or not len(rest):
        return []
    labelled = [row for row, index in label.items() if index is not None]
    known = np.concatenate([block.h[none], block.h[labelled], names]).astype(np.float32)
    near = nearest(np.asarray(block.h[rest], np.float32), known, 1)[:, 0]
    like = np.array([*none, *rest[near < len(none)]])
    if len(like) < FEWEST:
        return []
    how: dict[str, Any] = {"min_cluster_size": FEWEST, "min_samples": 1, "copy": True}
    smooth = averaged(np.asarray(block.h[like]))
    group = HDBSCAN(**how).fit_predict(smooth)
    if group.max() < 0:
        group = HDBSCAN(**how, allow_single_cluster=True).fit_predict(smooth)
    groups = sorted((like[group == n] for n in range(group.max() + 1)), key=len)[: -SHOWN - 1 : -1]
    groups.append(np.setdiff1d(rest, like)[:COMPARED])
    member = np.repeat(np.arange(len(groups)), [*map(len, groups)])
    words = characteristic([corpus.items[row].prompt for row in np.concatenate(groups)], member)
    found = zip(groups[:-1], words, strict=False)
    return [{"rows": len(rows), "name": ", ".join(some[:NAMED])} for rows, some in found if some]
