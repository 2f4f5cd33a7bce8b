"""New rows without answers compared with a run's rows: whether they are alike, and what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset
from stacksl.data.values import normal
from stacksl.errors import RunError
from stacksl.features.encoders import Vectors
from stacksl.features.hashing import unfitted
from stacksl.ledger.ledger import Ledger
from stacksl.models import watching
from stacksl.models.linear import Model, with_classes
from stacksl.models.metrics import wilson
from stacksl.models.topics import find_topics
from stacksl.report.quality import AuditResult
from stacksl.runs.finish.promising import last_drawn
from stacksl.runs.items.roles import corpus_of, give_roles
from stacksl.runs.loop.progress import silent
from stacksl.runs.session.setup import features_of
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder, shown_facts
from stacksl.types import Item

FEWEST = 50  # new rows that are compared, and rows held out that answers are compared with
MOST = 10_000  # rows of the run whose vectors are compared, and new rows: the first, the newest
GROUPS, EXAMPLES = 3, 3  # of rows where the run has few; of a group
ALIKE = 0.99  # of a column's labels that are a model's own; versions of a library differ in few
SEED = 0  # of the order in which rows of the run are compared: the same at every look

Rows = NDArray[np.int64]
Top = tuple[Rows, Array]  # a model's choice for each row, and its probability


def watch(
    spec: RunSpec, ledger: Ledger, model: Any, dataset: Dataset, progress: Any
) -> dict[str, Any]:
    """What `Run.evaluate` gives of rows without answers, but for the run's name.

    Rows are compared with others that took no part in what is compared: the model's answers with
    those to rows held out, vectors with those of all rows where no row took part in making them.
    Rows of the run itself, which have its ids and texts, are left out.
    Where they did, as in `hashing`, n-grams stand for vectors, and the confidence is not compared.
    """
    run_items, old, held = _rows(spec, ledger)
    new = not_of(run_items, dataset)
    items = with_classes(new, model.classes)
    result: dict[str, Any] = {
        "n": len(items),
        "known": len(dataset.items) - len(items),
        "held_out": len(held),
        **dict.fromkeys(("verdict", "told_after", "confidence", "classes", "unlike")),
        "groups": [],
    }
    if min(len(items), len(old)) < FEWEST:
        return {**result, "verdict": "too few rows"}
    (choice, sure), (expected, usual), blocks = _answers(spec, model, items, held, progress)
    encoder = getattr(getattr(model, "features", None), "encoder", None)
    fitted = encoder is not None and bool(encoder.state())
    if blocks and not fitted:
        first, last, before = blocks[0][:MOST], blocks[0][-MOST:], np.asarray(blocks[1][old])
    else:
        parts = items[:MOST], items[-MOST:], [run_items[row] for row in old]
        first, last, before = (unfitted([item.prompt for item in some]) for some in parts)
    capitals = [watching.vector_bets(before, first, SEED)]
    rows = watching.unlike(last, before)
    result["unlike"] = len(rows)
    if len(rows) >= watching.FEWEST:
        result["groups"] = _groups(items[-MOST:], last, rows)
    if len(held) >= FEWEST:
        if not fitted:
            capitals.append(watching.confidence_bets(usual, sure, SEED))
            result["confidence"] = [float(usual.mean()), float(sure.mean())]
        if model.classes is not None:
            result["classes"] = watching.shifted_classes(expected, choice, model.classes)
    told = watching.told_after(watching.together(capitals))
    return {**result, "told_after": told, "verdict": "alike" if told is None else "different"}


def stated(
    folder: RunFolder, now: tuple[int, int] | int, *, column: bool = False
) -> dict[str, Any] | None:
    """How many rows of the run's audit were right, to compare with new rows; None without an audit.

    `now` is how many new rows were right, and of how many: `p` is that of a fall. Where it is how
    many rows are to be audited, `found` is the probability that this finds a fall of ten points.
    With `column` the labels that the run's table had are meant, not its model's. Looks of a promise
    are no such audit: their rows are those left after the doubtful ones were bought.
    """
    facts = shown_facts(folder)
    audit = facts.audit if facts else None
    if column:
        audit = facts.column.audit if facts and facts.column else None
    with Ledger.open(folder.database, readonly=True) as ledger:
        easier = last_drawn(ledger) is not None
    if easier or audit is None or (before := _right_of(audit)) is None:
        return None
    also = "the model's probabilities of other rows" if audit.reference else None
    if audit.second is not None and audit.measures == "accuracy":
        also = "the second look, where a row without two people who agree counts half"
    about = {"correct": before[0], "n": before[1], "accuracy": audit.accuracy, "also": also}
    if isinstance(now, tuple):
        return {**about, "p": float(watching.fall_p(before, now))}
    return {**about, "found": watching.fall_found(before[0] / before[1], before[1], now)}


def not_of(items: Sequence[Item], dataset: Dataset) -> list[Item]:
    """The items of a data set that are not among `items`, by id and text."""
    known = {(item.id, item.prompt) for item in items}
    return [item for item in dataset.items if (item.id, item.prompt) not in known]


def audited_since(folder: RunFolder, later: RunFolder, model: Any) -> dict[str, Any]:
    """What the audit of a `later` run says of its labels: of the `model` of `folder`, or a column.

    Labels that are not the model's are compared with those that the table of `folder` had.

    Raises:
        RunError: it has no audit of labels, or these are neither.
    """
    facts = shown_facts(later)
    now = _right_of(facts.column.audit if facts and facts.column else None)
    if now is None:
        raise RunError(
            f"expected a finished run whose audit judged a column of labels, got {later.path}:"
            f" `stacksl evaluate {folder.path} FILE --audit 60` begins one over new rows"
        )
    right, n = now
    about = {"n": n, "correct": right, "accuracy": right / n, "interval": [*wilson(right, n)]}
    column = not _is_of(model, RunSpec.open(later))
    if column and RunSpec.open(folder).settings.column is None:
        raise RunError(
            f"the labels that {later.path} judged are not those of the model of {folder.path}:"
            f" `stacksl evaluate {folder.path} FILE --audit 60` audits its labels of new rows"
        )
    before = stated(folder, now, column=column)
    return {"later": str(later.path), **about, "column": column, "stated": before}


def _is_of(model: Any, later: RunSpec) -> bool:
    """Whether the labels that a run judged are those that a model gives its items."""
    names, said = later.dataset.classes or (), later.sources.said
    rows = [row for row, label in enumerate(said) if label >= 0]
    if not (classes := model.classes) or not rows:
        return False
    pool = later.sources.pool.items
    items = [Item(pool[row].id, pool[row].prompt, classes) for row in rows]
    given = [classes[int(np.argmax(policy))] for policy in model.policies(items)]
    return bool(
        np.mean([names[said[row]] == g for row, g in zip(rows, given, strict=True)]) >= ALIKE
    )


def _right_of(audit: AuditResult | None) -> tuple[int, int] | None:
    """How many rows of an audit were right, of those with a clear answer; None where none has."""
    known = audit.n - audit.unknown if audit else 0
    return (audit.correct, known) if audit and known else None


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


def _answers(
    spec: RunSpec, model: Any, items: Sequence[Item], held: Rows, progress: Any
) -> tuple[Top, Top, tuple[Vectors, Vectors] | None]:
    """What a model says of new items and of those held out; vectors of new and of the run's items.

    There are no vectors where an item has several, or where it is a language model.
    """
    if not isinstance(model, Model):
        held_items = [spec.dataset.items[row] for row in held]
        return _top(model.policies(items, progress)), _top(model.policies(held_items)), None
    block = model.features.transform(items, progress)
    stored = features_of(spec, model.features, silent)
    known = _top(model.probabilities(stored.take(held.tolist())) if len(held) else [])
    vectors = None
    if isinstance(block, SharedBlock) and isinstance(stored, SharedBlock):
        vectors = block.h, stored.h
    return _top(model.probabilities(block)), known, vectors


def _top(policies: Sequence[Array]) -> Top:
    choice = np.array([int(np.argmax(policy)) for policy in policies], dtype=np.int64)
    return choice, np.array([float(np.max(policy)) for policy in policies])


def _groups(items: Sequence[Item], vectors: Vectors, rows: Rows) -> list[dict[str, Any]]:
    texts = [items[row].prompt for row in rows]
    groups = []
    for topic in find_topics(texts, vectors[rows], min(GROUPS, len(set(map(normal, texts))))):
        shown = [{"id": items[rows[n]].id, "text": texts[n]} for n in topic.examples[:EXAMPLES]]
        groups.append({"name": topic.name, "rows": len(topic.rows), "examples": shown})
    return groups
