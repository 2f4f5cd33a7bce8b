"""What a run tells its owner on the way: annotators who differ, and classes that may be missing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.core.nearest import nearest
from stacksl.ledger.events import Row
from stacksl.models.annotators import compare_annotators, doubt_of
from stacksl.models.topics import NAMED, averaged, characteristic
from stacksl.report.quality import Differing
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.types import copied

FEWEST, GROUPS, ALIKE = 15, 3, 3  # rows of a group; groups, the largest first; rows of a text
LOOKED_AT, COMPARED = 20_000, 2_000  # rows without an answer; of these, for the words of a group
AT_ONCE = 25  # answers: what is shown of a run that goes on would else tell what each was for


def differing(game: Game, at_once: int) -> tuple[Differing, ...]:
    """The annotators who agree with the prediction far less than the others do.

    Nobody is tested whom the owner has judged before. Answers of the audit are never used, and of
    the others as many as a multiple of `at_once`.
    """
    standing, rows = game.ledger.standing, _answered(game)
    rows = sorted(
        rows[: len(rows) // at_once * at_once],
        key=lambda pair: (pair[0].round or 0, str(pair[1].item), str(pair[1].labeler)),
    )
    names = sorted({str(row.labeler) for _, row in rows})
    peer_indices = [n for n, name in enumerate(names) if standing.get(name, "kept") == "kept"]
    tested_indices = [n for n, name in enumerate(names) if name not in standing]
    if len(peer_indices) < 2 or not tested_indices:
        return ()
    predicted, doubt = _predicted(game, rows)
    findings = compare_annotators(
        np.array([names.index(str(row.labeler)) for _, row in rows]),
        predicted == np.array([row.label().index for _, row in rows]),
        np.where(np.isfinite(doubt), doubt, 0.0),
        tested_indices,
        peer_indices,
    )
    return tuple(
        copied(Differing, finding, name=names[finding.annotator])
        for finding in findings
        if finding.differs
    )


def _answered(game: Game) -> list[tuple[Row, Row]]:
    """The first answers of usable training rows that name a candidate, in the order of answering.

    Each comes with the row of the decision that asked for it.
    """
    asking: dict[str | None, Row] = {}
    corpus, usable, pairs = game.corpus, game.corpus.usable, []
    for row in game.ledger.rows():
        if row.event == "round":
            asking[row.surrogate] = row
        elif row.event != "answered" or row.purpose != "train" or "index" not in row.payload:
            continue
        elif usable[corpus.row[str(row.item)]]:
            pairs.append((asking[row.surrogate], row))
    return pairs


def _predicted(game: Game, rows: list[tuple[Row, Row]]) -> tuple[np.ndarray, np.ndarray]:
    """The prediction of each row by class names alone, else the model's before the label."""
    trainer, block = game.trainer, game.examples.block
    if isinstance(trainer, LinearTrainer) and trainer.names is not None:
        assert isinstance(block, SharedBlock)
        positions = [game.corpus.row[str(row.item)] for _, row in rows]
        names = np.asarray(trainer.names[: block.classes], dtype=np.float64)
        return doubt_of(np.asarray(block.h[positions], dtype=np.float64) @ names.T)
    decisions = [asking.decision() for asking, _ in rows]
    choices = np.array([decision.choice for decision in decisions])
    return choices, np.array([decision.statistic for decision in decisions])


def proposed(game: Game, at_once: int, classes: int) -> list[dict[str, Any]]:
    """Classes that may be missing: texts that people wrote, and groups of rows that look alike.

    A text was `written` to so many rows, and a group has so many `rows` and a name of their words,
    or the text that most have. Its rows were answered with none of these, or have no answer and are
    nearer to one that was than to a row with a label or to the name of a class; HDBSCAN finds them.
    At least two rows of a group were answered so.
    Answers of the audit are never used, and of the others as many as a multiple of `at_once`; nor
    are in a group those whose nearest class by name was added after the first `classes` ones.
    """
    corpus, ledger, block, trainer = game.corpus, game.ledger, game.examples.block, game.trainer
    if not isinstance(block, SharedBlock) or not isinstance(trainer, LinearTrainer):
        return []
    said_none = {corpus.row[str(row["item"])] for row in ledger.export() if row["kind"] == "none"}
    if not said_none:
        return []
    names = np.zeros((0, block.dim)) if trainer.names is None else trainer.names[: block.classes]
    rows = [row for row in ledger.rows(only=("answered",)) if row.purpose == "train"]
    set_aside = ledger.set_aside
    usable_rows = [row for row in rows if not row.erased and row.labeler not in set_aside]
    answered = {str(row.item) for row in usable_rows[: len(usable_rows) // at_once * at_once]}
    labels = {corpus.row[item]: ledger.label_of(item) for item in sorted(answered)}
    unnamed = [row for row, index in labels.items() if index is None and row in said_none]
    texts = _written(game, unnamed)
    groups_by_name: dict[str, dict[str, Any]] = {}
    for name, n in Counter(texts.values()).most_common():
        groups_by_name[name] = {"rows": n, "name": name, "written": n}
    if len(names):
        unnamed = [row for row in unnamed if np.argmax(names @ block.h[row]) < classes]
    unanswered = np.array(corpus.unbought(ledger.bought("train")), np.int64)
    unanswered = unanswered[:: 1 + len(unanswered) // LOOKED_AT]
    if not unnamed or not len(unanswered):
        return [*groups_by_name.values()]
    labeled = [row for row, index in labels.items() if index is not None]
    references = np.concatenate([block.h[unnamed], block.h[labeled], names]).astype(np.float32)
    neighbors = nearest(np.asarray(block.h[unanswered], np.float32), references, 1)[0][:, 0]
    apart = np.array([*unnamed, *unanswered[neighbors < len(unnamed)]])
    if len(apart) < FEWEST:
        return [*groups_by_name.values()]
    from sklearn.cluster import HDBSCAN  # its import takes as long as all else here

    options: dict[str, Any] = {"min_cluster_size": FEWEST, "min_samples": 1, "copy": True}
    smooth = averaged(np.asarray(block.h[apart]))
    cluster = HDBSCAN(**options).fit_predict(smooth)
    if cluster.max() < 0:
        cluster = HDBSCAN(**options, allow_single_cluster=True).fit_predict(smooth)
    clusters = [apart[cluster == n] for n in range(cluster.max() + 1)]
    # one answer may be a mistake
    clusters = [group for group in clusters if np.isin(group, unnamed).sum() > 1]
    if not clusters:
        return [*groups_by_name.values()]
    groups = sorted(clusters, key=len)[: -GROUPS - 1 : -1]
    groups.append(np.setdiff1d(unanswered, apart)[:COMPARED])
    numbers = np.repeat(np.arange(len(groups)), [*map(len, groups)])
    words = characteristic([corpus.items[row].prompt for row in np.concatenate(groups)], numbers)
    for group, terms in zip(groups[:-1], words, strict=False):
        top_texts = Counter(texts[row] for row in group.tolist() if row in texts).most_common(1)
        if name := top_texts[0][0] if top_texts else ", ".join(terms[:NAMED]):
            groups_by_name.setdefault(name, {"name": name, "written": 0})["rows"] = len(group)
    return [*groups_by_name.values()]


def _written(game: Game, rows: list[int]) -> dict[int, str]:
    """What people wrote to those of the `rows` where `ALIKE` have the same, as the first wrote it.

    Case and spaces make no other text, and the name of a class is none.
    """
    spellings = {name.casefold(): "" for name in game.corpus.items[0].candidates}
    texts, row_set, set_aside = dict[int, str](), set(rows), game.ledger.set_aside
    for answer in game.ledger.texts():
        row, text = game.corpus.row.get(answer.item, -1), " ".join((answer.text or "").split())
        if row in row_set and answer.labeler not in set_aside:
            texts[row] = spellings.setdefault(text.casefold(), text)
    counts = Counter(texts.values())
    return {row: text for row, text in texts.items() if text and counts[text] >= ALIKE}
