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
    run_items, old_rows, held_out = _rows(spec, ledger)
    new_items = not_of(run_items, dataset)
    if min(len(new_items), len(old_rows)) < FEWEST:
        raise DataError(
            f"expected {FEWEST} new rows without answers, and {FEWEST} rows of the run, to compare,"
            f" got {len(new_items)} and {len(old_rows)}: give more rows that are not the run's own,"
            " or name a column of answers with --label-column"
        )
    items = with_classes(new_items, model.classes)
    encoder = getattr(getattr(model, "features", None), "encoder", None)
    fixed = getattr(encoder, "fixed", 0) if encoder is not None and encoder.state() else None
    block = stored = None
    if isinstance(model, Model):
        block = model.features.transform(items, progress)
        stored = features_of(spec, model.features, silent)
        policies = model.probabilities(block)
        held_policies = model.probabilities(stored.take(held_out.tolist())) if len(held_out) else []
    else:
        policies = list(model.policies(items, progress))
        held_policies = list(model.policies([run_items[row] for row in held_out]))
    (choices, largest), (held_choices, held_largest) = _top(policies), _top(held_policies)
    if isinstance(block, SharedBlock) and isinstance(stored, SharedBlock) and fixed != 0:
        vectors, earlier = block.h[:, :fixed], np.asarray(stored.h[old_rows])[:, :fixed]
        oldest, newest = vectors[:MOST], vectors[-MOST:]
    else:
        parts = items[:MOST], items[-MOST:], [run_items[row] for row in old_rows]
        oldest, newest, earlier = (unfitted([item.prompt for item in part]) for part in parts)
    strange, groups = watching.unlike(newest, earlier), list[dict[str, Any]]()
    if len(strange) >= watching.FEWEST:
        groups = _groups(items[-MOST:], newest, strange)
    capitals, confidence, classes = [watching.vector_bets(earlier, oldest, SEED)], None, None
    if len(held_out) >= FEWEST and fixed != 0:
        capitals.append(watching.confidence_bets(held_largest, largest[:MOST], SEED))
        confidence = [float(held_largest.mean()), float(largest.mean())]
    if len(held_out) >= FEWEST and model.classes is not None:
        classes = watching.shifted_classes(held_choices, choices, model.classes)
    return {
        "n": len(items),
        "known": len(dataset.items) - len(items),
        "shared": overlap(run_items, items),
        "held_out": len(held_out),
        "told_after": watching.told_after(watching.together(capitals)),
        "confidence": confidence,
        "classes": classes,
        "unlike": len(strange),
        "groups": groups,
    }


def not_of(items: Sequence[Item], dataset: Dataset) -> list[Item]:
    """The items of a data set that are not among `items`, by id and text."""
    pairs = {(item.id, item.prompt) for item in items}
    return [item for item in dataset.items if (item.id, item.prompt) not in pairs]


def _rows(spec: RunSpec, ledger: Ledger) -> tuple[Sequence[Item], Rows, Rows]:
    """The items of a run; rows that it began with, in random order; and those held out.

    The latter were drawn at random before the first purchase, and nothing was learned from them.
    """
    corpus, facts = corpus_of(spec), shown_facts(spec.folder)
    give_roles(spec, corpus, ledger)
    learned = facts is not None and facts.audit is not None and facts.audit.trained_on > 0
    drawn = [] if learned else corpus.drawn
    sampled = generator(SEED, "watching/rows").permutation(len(spec.sources.pool.items))[:MOST]
    held_out = np.array(sorted({*corpus.reference_rows, *drawn}), dtype=np.int64)
    return corpus.items, sampled[corpus.usable[sampled]], held_out[corpus.usable[held_out]]


def _top(policies: Sequence[Array]) -> tuple[Rows, Array]:
    """A model's choice for each row, and its probability."""
    choice = np.array([int(np.argmax(policy)) for policy in policies], dtype=np.int64)
    return choice, np.array([float(np.max(policy)) for policy in policies])


def _groups(items: Sequence[Item], vectors: Vectors, rows: Rows) -> list[dict[str, Any]]:
    texts = [items[row].prompt for row in rows]
    groups = []
    for topic in find_topics(texts, vectors[rows], min(GROUPS, len(set(map(normal, texts))))):
        examples = [{"id": items[rows[n]].id, "text": texts[n]} for n in topic.examples[:EXAMPLES]]
        groups.append({"name": topic.name, "rows": len(topic.rows), "examples": examples})
    return groups
