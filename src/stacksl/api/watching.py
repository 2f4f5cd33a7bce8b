"""New rows without answers beside those of a run: whether they are alike, and what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Block, SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset
from stacksl.data.values import normal
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


class _Said(NamedTuple):
    """The model's answer to each row, (n,), its probability, and the rows' features."""

    choice: Rows
    sure: Array
    block: Block | None = None


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
    known_texts = {normal(item.prompt) for item in own}
    result: dict[str, Any] = {
        "n": len(items),
        "repeated": sum(normal(item.prompt) in known_texts for item in items),
        "held_out": len(held),
        **dict.fromkeys(("verdict", "told_after", "capital", "confidence", "classes", "unlike")),
        "groups": [],
        "stated": stated(spec.folder),
    }
    if min(len(items), len(old)) < FEWEST:
        return {**result, "verdict": "too few rows"}
    said, known, stored = _answers(spec, model, items, [own[row] for row in held], held, progress)
    features = model.features if isinstance(model, Model) else None
    fitted = isinstance(features, TextMap) and bool(features.encoder.state())
    if isinstance(stored, SharedBlock) and isinstance(said.block, SharedBlock) and not fitted:
        tables = said.block.h[:MOST], said.block.h[-MOST:], stored.h[old]
        first, last, before = map(np.asarray, tables)
    else:
        parts = items[:MOST], items[-MOST:], [own[row] for row in old]
        first, last, before = (unfitted([item.prompt for item in some]) for some in parts)
    capitals = [watching.vector_bets(before, first, SEED)]
    rows = watching.unlike(last, before)
    groups = _groups(items[-MOST:], last, rows, said.choice[-MOST:])
    result |= {"unlike": len(rows), "groups": groups}
    if len(held) >= FEWEST:
        if not fitted:
            capitals.append(watching.confidence_bets(known.sure, said.sure, SEED))
            result["confidence"] = [float(each.sure.mean()) for each in (known, said)]
        if model.classes is not None:
            found = watching.shifted_classes(known.choice, said.choice, model.classes)
            result["classes"] = [each._asdict() for each in found]
    capital = watching.together(capitals)
    told = watching.told_after(capital)
    verdict = "alike" if told is None else "different"
    return {
        **result, "verdict": verdict, "told_after": told, "capital": float(np.exp(capital.max()))
    }  # fmt: skip


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
        return {**about, "p": watching.fall_p((audit.correct, n), now)}
    found = ((new, watching.fall_found(audit.correct / n, n, new)) for new in AUDITS)
    return {**about, "found": [{"n": new, "probability": chance} for new, chance in found]}


def audited_since(folder: RunFolder, later: RunFolder) -> dict[str, Any]:
    """What `Run.audited_since` gives, but for the run's name.

    Raises:
        RunError: the later run has no audit of labels, or the first has none.
    """
    facts = shown_facts(later)
    audit = None if facts is None or facts.column is None else facts.column.audit
    if audit is None or audit.n == audit.unknown:
        raise RunError(
            f"expected a finished run whose audit judged a column of labels, got {later.path}:"
            " label the new rows with `stacksl predict`, and run the result with `--model-labels"
            " label --audit 60`"
        )
    n = audit.n - audit.unknown
    before = stated(folder, (audit.correct, n))
    if before is None:
        raise RunError(f"the run {folder.path} has no audit that a later one compares with")
    low, high = wilson(audit.correct, n)
    about = {"n": n, "correct": audit.correct, "accuracy": audit.correct / n}
    return {"later": str(later.path), **about, "interval": [low, high], "stated": before}


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
    spec: RunSpec, model: Any, items: Sequence[Item], held: list[Item], rows: Rows, progress: Any
) -> tuple[_Said, _Said, Block | None]:
    """What a model says of new items and of those `held` in `rows`; the features of the run."""
    if not isinstance(model, Model):
        return _said(model.policies(items, progress)), _said(model.policies(held)), None
    block = model.features.transform(items, progress)
    stored = features_of(spec, model.features, silent)
    known = _said(model.probabilities(stored.take(rows.tolist()))) if held else _said([])
    return _said(model.probabilities(block))._replace(block=block), known, stored


def _said(policies: Sequence[Array]) -> _Said:
    choice = np.array([int(np.argmax(each)) for each in policies], dtype=np.int64)
    return _Said(choice, np.array([float(np.max(each)) for each in policies]))


def _groups(
    items: Sequence[Item], vectors: Vectors, rows: Rows, choice: Rows
) -> list[dict[str, Any]]:
    """Groups of the `rows`, each with examples and what the model most often says of it."""
    texts, others = [item.prompt for item in items], np.setdiff1d(np.arange(len(items)), rows)
    found = []
    for each in find_groups(texts, vectors[rows], rows, others):
        said = Counter(items[row].candidates[choice[row]] for row in each.rows)
        ((most, count),) = said.most_common(1)
        shown = [{"id": items[row].id, "text": texts[row]} for row in each.examples[:EXAMPLES]]
        about = {"name": each.name, "rows": len(each.rows), "examples": shown}
        found.append({**about, "said": most, "said_of": count})
    return found
