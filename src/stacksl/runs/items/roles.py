"""The role of each item, and the steps before the first round: owned labels, audit, budget.

The settings say what is wanted, the ledger's rows what has taken effect. Each step first checks
whether it was taken, so that an interrupted or changed run takes only those that are left.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from stacksl.core.rng import generator
from stacksl.errors import SettingsError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Word
from stacksl.ledger.queries import LedgerReader
from stacksl.models.audit import Audit, draw
from stacksl.models.metrics import reference_size
from stacksl.runs.items.corpus import Corpus, Role
from stacksl.runs.loop.game import Game
from stacksl.runs.spec import RunSpec


def corpus_of(spec: RunSpec) -> Corpus:
    """The items of a run with their roles before round 1, and the order of all items.

    It depends on the settings and the data alone; `assign_roles` adds what the ledger records.
    """
    settings, count = spec.settings, len(spec.sources.pool.items)
    excluded = spec.sources.excluded_at_first
    pool_excluded = frozenset(row for row in excluded if row < count)
    drawn_rows = draw(count, spec.budget.audits[0], settings.seed, pool_excluded)
    corpus = Corpus.of(spec.dataset.items)
    corpus.assign(Role.DUPLICATE, excluded)
    corpus.assign(Role.OWNED, (row for row in excluded if corpus.ids[row] in spec.sources.owned))
    corpus.assign(Role.AUDIT, drawn_rows)
    corpus.assign(Role.REFERENCE, reference_rows(spec, drawn_rows))
    reserved = corpus.outside_pool()
    order = [row for row in order_of(settings.order, settings.seed, count) if row not in reserved]
    corpus.began, corpus.drawn, corpus.order = order, drawn_rows, [*order]
    for number, rows in enumerate(spec.sources.segments[1:], start=1):  # each added file by itself
        permutation = order_of(settings.order, settings.seed, len(rows), number)
        corpus.order += [rows[n] for n in permutation]
    return corpus


def reference_rows(spec: RunSpec, drawn: Sequence[int]) -> list[int]:
    """The rows that make the interval of the audit, of the rows `drawn`, narrower.

    They are drawn uniformly from the items at the start of a pool. A run that adapts a language
    model has none: it would score them at each measurement.
    """
    count, settings = len(spec.sources.pool.items), spec.settings
    # every row is part of the table then, or has such a probability by the column
    of_all = settings.promised_share is not None or settings.column is not None
    if not drawn or settings.mode != "pool" or settings.adapts or not settings.refit or of_all:
        return []
    free_rows = np.setdiff1d(np.arange(count), [*spec.sources.excluded_at_first, *drawn])
    size = reference_size(len(free_rows), spec.budget.labels - len(drawn))
    positions = generator(settings.seed, "reference").choice(len(free_rows), size, replace=False)
    return sorted(free_rows[positions].tolist())


def order_of(order: str, seed: int, items: int, *keys: int) -> list[int]:
    """The order in which a run sees its items: the file's, or shuffled by the seed (D19)."""
    if order == "file":
        return list(range(items))
    return [int(i) for i in generator(seed, "order", *keys).permutation(items)]


def assign_roles(spec: RunSpec, game: Game) -> None:
    """Learn the owned labels, lease the audit, and give each item its role.

    The labels of the audit are reserved first, so that they cannot be spent on training.
    """
    corpus, ledger, erased = game.corpus, game.ledger, spec.sources.erased
    owned = new_owned(spec, ledger, audit_rows(corpus, ledger))
    for decision, label in ledger.own(owned, "owned") if owned else ():
        game.apply_label(decision, label)
    audited_items = set(ledger.bought("audit"))
    if corpus.drawn and not audited_items:
        drawn_items = [corpus.ids[row] for row in corpus.drawn if row not in erased]
        audited_items = set(drawn_items)
        ledger.reserve(drawn_items, "audit")
    order = current_order(spec, ledger, corpus)
    give_roles(spec, corpus, ledger)
    passed_rows = audit_rows(corpus, ledger)
    passed_rows |= {row for row in erased if not ledger.has_decision(corpus.ids[row])}
    corpus.order = [row for row in order if row not in passed_rows]


def give_roles(spec: RunSpec, corpus: Corpus, ledger: LedgerReader) -> None:
    """Give each item its role, as data and ledger are now."""
    corpus.assign(Role.DUPLICATE, spec.sources.excluded - corpus.outside_pool())
    owned = {corpus.row[item] for item in (*spec.sources.owned, *ledger.bought("owned"))}
    corpus.assign(Role.OWNED, owned.difference(corpus.reference_rows))
    corpus.assign(Role.AUDIT, audit_rows(corpus, ledger))
    if spec.settings.promised_share is not None:
        later_items = ledger.bought("audit")[len(corpus.drawn) :]
        corpus.looked_at = frozenset(corpus.row[item] for item in later_items)
    corpus.assign(Role.ERASED, spec.sources.erased)


def audit_rows(corpus: Corpus, ledger: LedgerReader) -> set[int]:
    """The rows of the audit: those reserved before, else those drawn for it."""
    return {corpus.row[item] for item in ledger.bought("audit")} or set(corpus.drawn)


def new_owned(spec: RunSpec, ledger: Ledger, audit: Set[int]) -> list[tuple[str, int]]:
    """Owned labels not learned yet, without those of the `audit`'s items."""
    owned, texts = spec.sources.owned, {spec.dataset.items[row].content for row in audit}
    new_ids = owned.keys() - ledger.bought("owned")
    new_items = (item for item in spec.dataset.items if item.id in new_ids)
    return [(item.id, owned[item.id]) for item in new_items if item.content not in texts]


def current_order(spec: RunSpec, ledger: LedgerReader, corpus: Corpus) -> list[int]:
    """The order without items that became owned before their round; seen items stay."""
    late = spec.sources.excluded - spec.sources.excluded_at_first - set(corpus.drawn)
    return [row for row in corpus.order if row not in late or ledger.has_decision(corpus.ids[row])]


def next_terms(spec: RunSpec, ledger: Ledger, order: list[int], *, first: int) -> None:
    """Record a changed budget or number of items, and lease the audit of the change.

    Args:
        spec: the run, with its new budget, for which `expect_items` has found items.
        order: the items to choose from.
        first: how many items there were to choose from when the run began.
    """
    terms = spec.terms
    new_audits = sum(terms.audits) - len(ledger.bought("audit"))
    free_rows = _free(spec, ledger, order)
    first_terms = {"items": first, "train": spec.budget.train}
    last_terms = [first_terms, *(row.payload for row in ledger.rows(only=("budget",)))][-1]
    previous_limits = (ledger.accounts.budget, ledger.accounts.money, last_terms["items"])
    freed = terms.train > last_terms["train"]  # by a second look that is over
    if freed or previous_limits != (terms.labels, terms.money, len(order)):
        rounds = ledger.accounts.last_round + len(free_rows) - max(0, new_audits)
        detail = {"train": terms.train, "rounds": rounds, "items": len(order)}
        ledger.set_budget(terms.labels, terms.money, detail)
    if new_audits > 0:
        ids = [item.id for item in spec.dataset.items]
        excluded = frozenset(range(len(ids))) - frozenset(free_rows)
        drawn_rows = draw(len(ids), new_audits, spec.settings.seed, excluded, len(terms.audits) - 1)
        ledger.reserve([ids[row] for row in drawn_rows], "audit")


def expect_items(spec: RunSpec, ledger: Ledger) -> None:
    """Check that the labels of a changed budget have items left, before anything is written.

    Raises:
        SettingsError: the budget grows, but no item is left to choose, or too few for the audit
            of the change.
    """
    free_count = len(_free(spec, ledger, current_order(spec, ledger, corpus_of(spec))))
    new_audits = sum(spec.terms.audits) - len(ledger.bought("audit"))
    remedy = "give the run more items with `stacksl change RUN --items FILE`"
    if free_count < new_audits:
        raise SettingsError(
            f"the audit of the new budget needs {new_audits} items that can still be chosen, got"
            f" {free_count}: {remedy}"
        )
    if not free_count and spec.terms.labels > ledger.accounts.spent:
        raise SettingsError(f"no item is left to buy a label of: {remedy}")


def _free(spec: RunSpec, ledger: Ledger, order: list[int]) -> list[int]:
    """The rows left to choose: those not seen of a stream, those not bought of a pool."""
    excluded = spec.sources.excluded | spec.sources.erased
    ids = [item.id for item in spec.dataset.items]
    taken_items = set(ledger.bought("audit"))
    if spec.settings.mode == "stream":
        taken_items |= {ids[row] for row in order if ledger.has_decision(ids[row])}
    else:
        taken_items |= set(ledger.bought())
    return [row for row in order if row not in excluded and ids[row] not in taken_items]


def reference_of(game: Game, audit: Audit) -> list[int]:
    """The reference rows of an audit: a later audit is of other rows than these.

    None where the text of one of them was labeled since, as what is left is no random sample.
    """
    corpus, rows = game.corpus, game.corpus.reference_rows
    owned = {corpus.items[corpus.row[item]].content for item in game.ledger.bought("owned")}
    chosen = any(corpus.items[row].content in owned for row in rows)
    return rows if audit.number == 1 and not chosen else []


def measured(spec: RunSpec, game: Game) -> Audit | None:
    """The audit that measures the final model, with its answers: the newest with any item.

    A budget change too small for an audit keeps the one before it. An answer counts while its item
    is usable; afterwards it is as unknown as one that names no candidate.
    """
    leased_items = game.ledger.bought("audit")
    sizes = (len(game.corpus.drawn), *spec.terms.audits[1:])
    number = max((number for number, size in enumerate(sizes, start=1) if size), default=0)
    if not number or not leased_items:
        return None
    items = leased_items[max(0, len(leased_items) - sizes[number - 1]) :]

    def answers(*, now: bool) -> dict[str, Word]:
        words = game.ledger.audited(now=now).items()
        return {item: word for item, word in words if item in spec.sources.usable}

    passed_over = 0.0  # the first audit was drawn before any purchase
    if number > 1:
        owned = set(game.ledger.bought("owned"))
        paid_items = [item for item in game.ledger.bought() if item not in owned]
        passed_over = len(set(paid_items[: paid_items.index(items[0])])) / spec.sources.available
    rows = tuple(game.corpus.row[item] for item in items)
    shown, latest = answers(now=False), answers(now=True)
    revised = sum(latest.get(item) != word for item, word in shown.items())
    return Audit(rows, shown, passed_over, number, latest, revised)
