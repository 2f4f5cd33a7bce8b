"""New rows without answers compared with a run's rows: whether they are alike, and what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset, overlap
from stacksl.data.values import normal
from stacksl.errors import DataError
from stacksl.features.encoders import Vectors
from stacksl.features.hashing import unfitted
from stacksl.ledger.ledger import Ledger
from stacksl.models import watching
from stacksl.models.linear import Model, with_classes
from stacksl.models.topics import find_topics
from stacksl.runs.items.roles import corpus_of, give_roles
from stacksl.runs.loop.game import silent
from stacksl.runs.session.setup import features_of
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import shown_facts
from stacksl.types import Item

FEWEST = 50  # new rows that are compared, and rows held out that answers are compared with
MOST = 10_000  # rows of the run whose vectors are compared, and new rows: the first, the newest
GROUPS, EXAMPLES = 3, 3  # of rows where the run has few; of a group
SEED = 0  # of the order in which rows of the run are compared: the same at every look

Rows = NDArray[np.int64]


def watch(
    spec: RunSpec, ledger: Ledger, model: Any, dataset: Dataset, progress: Any
) -> dict[str, Any]:
    """What `Run.evaluate` gives of rows without answers, but for the run's name.

    Rows are compared with others that took no part in what is compared: the model's answers with
    those to rows held out, vectors with those of all rows, in the columns that no row took part in
    making. Where there are none, as in `hashing`, n-grams stand for vectors, and the confidence is
    not compared.
    Rows of the run itself, which have its ids and texts, are left out.

    Raises:
        DataError: there are too few rows.
    """
    run_items, old, held = _rows(spec, ledger)
    new = not_of(run_items, dataset)
    if min(len(new), len(old)) < FEWEST:
        raise DataError(
            f"expected {FEWEST} new rows without answers, and {FEWEST} rows of the run, to compare,"
            f" got {len(new)} and {len(old)}: give more rows that are not the run's own, or name a"
            " column of answers with --label-column"
        )
    items = with_classes(new, model.classes)
    encoder = getattr(getattr(model, "features", None), "encoder", None)
    fixed = getattr(encoder, "fixed", 0) if encoder is not None and encoder.state() else None
    block = stored = None
    if isinstance(model, Model):
        block = model.features.transform(items, progress)
        stored = features_of(spec, model.features, silent)
        policies = model.probabilities(block)
        held_policies = model.probabilities(stored.take(held.tolist())) if len(held) else []
    else:
        policies = list(model.policies(items, progress))
        held_policies = list(model.policies([run_items[row] for row in held]))
    (choices, sure), (held_choices, held_sure) = _top(policies), _top(held_policies)
    if isinstance(block, SharedBlock) and isinstance(stored, SharedBlock) and fixed != 0:
        vectors, before = block.h[:, :fixed], np.asarray(stored.h[old])[:, :fixed]
        first, newest = vectors[:MOST], vectors[-MOST:]
    else:
        parts = items[:MOST], items[-MOST:], [run_items[row] for row in old]
        first, newest, before = (unfitted([item.prompt for item in some]) for some in parts)
    rows = watching.unlike(newest, before)
    capitals, confidence, classes = [watching.vector_bets(before, first, SEED)], None, None
    if len(held) >= FEWEST and fixed != 0:
        capitals.append(watching.confidence_bets(held_sure, sure[:MOST], SEED))
        confidence = [float(held_sure.mean()), float(sure.mean())]
    if len(held) >= FEWEST and model.classes is not None:
        classes = watching.shifted_classes(held_choices, choices, model.classes)
    return {
        "n": len(items),
        "known": len(dataset.items) - len(items),
        "shared": overlap(run_items, items),
        "held_out": len(held),
        "told_after": watching.told_after(watching.together(capitals)),
        "confidence": confidence,
        "classes": classes,
        "unlike": len(rows),
        "groups": _groups(items[-MOST:], newest, rows) if len(rows) >= watching.FEWEST else [],
    }


def not_of(items: Sequence[Item], dataset: Dataset) -> list[Item]:
    """The items of a data set that are not among `items`, by id and text."""
    known = {(item.id, item.prompt) for item in items}
    return [item for item in dataset.items if (item.id, item.prompt) not in known]


def _rows(spec: RunSpec, ledger: Ledger) -> tuple[Sequence[Item], Rows, Rows]:
    """The items of a run; rows that it began with, in random order; and those held out.

    The latter were drawn at random before the first purchase, and nothing was learned from them.
    """
    corpus, facts = corpus_of(spec), shown_facts(spec.folder)
    give_roles(spec, corpus, ledger)
    learned = facts is not None and facts.audit is not None and facts.audit.trained_on > 0
    drawn = [] if learned else corpus.drawn
    first = generator(SEED, "watching/rows").permutation(len(spec.sources.pool.items))[:MOST]
    held = np.array(sorted({*corpus.compared, *drawn}), dtype=np.int64)
    return corpus.items, first[corpus.usable[first]], held[corpus.usable[held]]


def _top(policies: Sequence[Array]) -> tuple[Rows, Array]:
    """A model's choice for each row, and its probability."""
    choice = np.array([int(np.argmax(policy)) for policy in policies], dtype=np.int64)
    return choice, np.array([float(np.max(policy)) for policy in policies])


def _groups(items: Sequence[Item], vectors: Vectors, rows: Rows) -> list[dict[str, Any]]:
    texts = [items[row].prompt for row in rows]
    groups = []
    for topic in find_topics(texts, vectors[rows], min(GROUPS, len(set(map(normal, texts))))):
        shown = [{"id": items[rows[n]].id, "text": texts[n]} for n in topic.examples[:EXAMPLES]]
        groups.append({"name": topic.name, "rows": len(topic.rows), "examples": shown})
    return groups
