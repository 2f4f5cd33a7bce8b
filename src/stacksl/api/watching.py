"""New rows without answers beside those of a run: whether they are alike, and what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset
from stacksl.errors import RunError
from stacksl.features import TextMap
from stacksl.features.encoders import Vectors
from stacksl.features.hashing import unfitted
from stacksl.ledger.ledger import Ledger
from stacksl.models import watching
from stacksl.models.linear import Model, with_classes
from stacksl.models.metrics import wilson
from stacksl.models.topics import find_groups
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.items.roles import corpus_of, give_roles
from stacksl.runs.loop.progress import silent
from stacksl.runs.session.setup import features_of
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder, shown_facts
from stacksl.types import Item

if TYPE_CHECKING:
    from stacksl.models.adapted import AdaptedModel

FEWEST = 50  # new rows that are compared, and rows held out that answers are compared with
MOST = 10_000  # rows of the run whose vectors are compared, and new rows: the first, the newest
EXAMPLES = 3  # of a group
AUDITS = (60, 300)  # new rows of an audit, of which it is told what they would find
SEED = 0  # of the order in which rows of the run are compared: the same at every look

Rows = NDArray[np.int64]
Top = tuple[Rows, Array]  # a model's choice for each row, and its probability


def watch(
    spec: RunSpec,
    ledger: Ledger,
    model: Model | AdaptedModel,
    dataset: Dataset,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """What `Run.watch` gives, but for the run's name.

    Rows are compared with others that took no part in what is compared: the model's answers with
    those to rows held out, vectors with those of all rows where no row took part in making them.
    Where they did, as in `hashing`, n-grams stand for vectors, and the confidence is not compared.
    """
    corpus, old, held = _rows(spec, ledger)
    items, own = with_classes(dataset.items, model.classes), corpus.items
    result: dict[str, Any] = {
        "n": len(items),
        "held_out": len(held),
        **dict.fromkeys(("verdict", "told_after", "capital", "confidence", "classes", "unlike")),
        "groups": [],
        "stated": stated(spec.folder),
    }
    if min(len(items), len(old)) < FEWEST:
        return {**result, "verdict": "too few rows"}
    (choice, sure), (known, known_sure), blocks = _answers(spec, model, items, held, progress)
    features = model.features if isinstance(model, Model) else None
    fitted = isinstance(features, TextMap) and bool(features.encoder.state())
    if blocks and not fitted:
        first, last, before = blocks[0][:MOST], blocks[0][-MOST:], np.asarray(blocks[1][old])
    else:
        parts = items[:MOST], items[-MOST:], [own[row] for row in old]
        first, last, before = (unfitted([item.prompt for item in some]) for some in parts)
    capitals = [watching.vector_bets(before, first, SEED)]
    rows = watching.unlike(last, before)
    result |= {"unlike": len(rows), "groups": _groups(items[-MOST:], last, rows)}
    if len(held) >= FEWEST:
        if not fitted:
            capitals.append(watching.confidence_bets(known_sure, sure, SEED))
            result["confidence"] = [float(known_sure.mean()), float(sure.mean())]
        if model.classes is not None:
            result["classes"] = watching.shifted_classes(known, choice, model.classes)
    capital = watching.together(capitals)
    told = watching.told_after(capital)
    result |= {"told_after": told, "capital": float(np.exp(capital.max()))}
    return {**result, "verdict": "alike" if told is None else "different"}


def stated(folder: RunFolder, now: tuple[int, int] | None = None) -> dict[str, Any] | None:
    """How many rows of the run's audit were right, beside new rows; None without an audit.

    Args:
        folder: of the run.
        now: how many new rows with answers were right, and of how many.

    Returns:
        `correct` and `n` of the audit, and `p`, that the share fell; without `now` instead `found`:
        for audits of so many new rows the probability to find a fall of ten points.
    """
    facts = shown_facts(folder)
    audit = None if facts is None else facts.audit
    if audit is None or audit.n == audit.unknown:
        return None
    n = audit.n - audit.unknown
    about = {"correct": audit.correct, "n": n}
    if now is not None:
        return {**about, "p": float(watching.fall_p((audit.correct, n), now))}
    found = ((new, watching.fall_found(audit.correct / n, n, new)) for new in AUDITS)
    return {**about, "found": [{"n": new, "probability": chance} for new, chance in found]}


def audited_since(folder: RunFolder, later: RunFolder) -> dict[str, Any]:
    """What the audit of a `later` run says of the labels that the model of `folder` gave its items.

    Raises:
        RunError: it has no audit of labels.
    """
    facts = shown_facts(later)
    audit = None if facts is None or facts.column is None else facts.column.audit
    if audit is None or audit.n == audit.unknown:
        raise RunError(
            f"expected a finished run whose audit judged a column of labels, got {later.path}:"
            " label the new rows with `stacksl predict`, and run the result with `--model-labels"
            " label --audit 60`"
        )
    n, right = audit.n - audit.unknown, audit.correct
    about = {"n": n, "correct": right, "accuracy": right / n, "interval": [*wilson(right, n)]}
    return {"later": str(later.path), **about, "stated": stated(folder, (right, n))}


def _rows(spec: RunSpec, ledger: Ledger) -> tuple[Corpus, Rows, Rows]:
    """The items of a run, and rows of them.

    These are some that the run began with, in random order, and those drawn at random before the
    first purchase that nothing was learnt from.
    """
    corpus, facts = corpus_of(spec), shown_facts(spec.folder)
    give_roles(spec, corpus, ledger)
    held = corpus.compared
    learnt = facts is not None and facts.audit is not None and facts.audit.trained_on > 0
    if not learnt and spec.settings.column is None:
        held = sorted({*held, *corpus.drawn})
    first = generator(SEED, "watching/rows").permutation(len(spec.sources.pool.items))
    usable = corpus.usable
    old, kept = (
        np.array([row for row in rows if usable[row]], dtype=np.int64)
        for rows in (first[:MOST].tolist(), held)
    )
    return corpus, old, kept


def _answers(
    spec: RunSpec, model: Any, items: Sequence[Item], held: Rows, progress: Any
) -> tuple[Top, Top, tuple[Vectors, Vectors] | None]:
    """What a model says of new items and of those held out; vectors of new and of the run's items.

    There are no vectors where an item has several, or where it is a language model.
    """
    if not isinstance(model, Model):
        own = [spec.dataset.items[row] for row in held]
        return _top(model.policies(items, progress)), _top(model.policies(own)), None
    block = model.features.transform(items, progress)
    stored = features_of(spec, model.features, silent)
    known = _top(model.probabilities(stored.take(held.tolist())) if len(held) else [])
    vectors = None
    if isinstance(block, SharedBlock) and isinstance(stored, SharedBlock):
        vectors = block.h, stored.h
    return _top(model.probabilities(block)), known, vectors


def _top(policies: Sequence[Array]) -> Top:
    choice = np.array([int(np.argmax(each)) for each in policies], dtype=np.int64)
    return choice, np.array([float(np.max(each)) for each in policies])


def _groups(items: Sequence[Item], vectors: Vectors, rows: Rows) -> list[dict[str, Any]]:
    """Groups of the `rows`, with examples."""
    texts, others = [item.prompt for item in items], np.setdiff1d(np.arange(len(items)), rows)
    found = []
    for each in find_groups(texts, vectors[rows], rows, others):
        shown = [{"id": items[row].id, "text": texts[row]} for row in each.examples[:EXAMPLES]]
        found.append({"name": each.name, "rows": len(each.rows), "examples": shown})
    return found
