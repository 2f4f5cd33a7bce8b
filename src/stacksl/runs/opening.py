"""Which item is for what, and what is done before a round: labels held, the audit, other terms.

A run's settings say what is wanted, the ledger's rows when it took effect. Each step looks whether
it was taken, so that a run which was cut off, or given more to do, takes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from stacksl.errors import SettingsError
from stacksl.game.randomness import generator
from stacksl.labels.ledger import Ledger
from stacksl.runs.audit import Audit, draw
from stacksl.runs.items.corpus import Corpus, Role
from stacksl.runs.job import Job, Terms
from stacksl.runs.loop.game import Game

__all__ = ["corpus_of", "expect_items", "hold", "measured", "order_of"]


def corpus_of(job: Job) -> Corpus:
    """The items of a run with their roles before round 1, and the order of all there are by now.

    It is a function of the settings and the data alone; `hold` goes on to what the ledger says.
    """
    settings, first = job.settings, len(job.stock.pool.items)
    held = job.stock.aside_at_first
    drawn = draw(first, job.audit, settings.seed, frozenset(row for row in held if row < first))
    corpus = Corpus.of(job.dataset.items)
    corpus.assign(Role.DUPLICATE, held)
    corpus.assign(Role.OWNED, (row for row in held if corpus.ids[row] in job.stock.owned))
    corpus.assign(Role.AUDIT, drawn)
    aside = corpus.aside()
    began = [row for row in order_of(settings.order, settings.seed, first) if row not in aside]
    corpus.began, corpus.drawn, corpus.order = began, drawn, _everything(job, began)
    return corpus


def _everything(job: Job, began: Sequence[int]) -> list[int]:
    """The whole order: as the run began, then each file that came later, shuffled for itself."""
    found = list(began)
    for number, part in enumerate(job.stock.segments[1:], start=1):
        shuffled = order_of(job.settings.order, job.settings.seed, len(part), number)
        found += [part[place] for place in shuffled]
    return found


def order_of(order: str, seed: int, items: int, *keys: int) -> list[int]:
    """The order in which a run sees its items: the file's, or shuffled by the seed (D19)."""
    if order == "file":
        return list(range(items))
    return [int(i) for i in generator(seed, "order", *keys).permutation(items)]


def hold(job: Job, game: Game) -> None:
    """Learn the labels that are owned, lease the audit's, take up other terms; the corpus after it.

    The audit's labels are reserved before any other, so that none can be spent elsewhere.

    Raises:
        SettingsError: a new audit needs more items than are left.
    """
    corpus, ledger, gone = game.corpus, game.ledger, job.stock.gone
    known = _purchased(ledger)
    audited = known.get("audit", set())
    asks = {corpus.row[item] for item in audited} or set(corpus.drawn)
    _own(job, game, known.get("owned", set()), asks)
    if corpus.drawn and not audited:
        drawn = [corpus.ids[row] for row in corpus.drawn if row not in gone]
        audited = set(drawn)
        ledger.reserve(drawn, "audit")
    _lease_again(job, game, audited)
    aside = job.stock.aside
    late = aside - corpus.aside()  # owned since their turn was fixed; what was seen stays seen
    order = [row for row in corpus.order if row not in late or ledger.seen(corpus.ids[row])]
    if job.now is not None or len(order) != len(corpus.began):
        audited |= _change(job, game, order, audited)
    measuring = frozenset(corpus.row[item] for item in audited)
    corpus.assign(Role.DUPLICATE, late)
    corpus.assign(Role.OWNED, (corpus.row[item] for item in job.stock.owned))
    corpus.assign(Role.AUDIT, measuring)
    corpus.assign(Role.ERASED, gone)
    passed = measuring | {row for row in gone if not ledger.seen(corpus.ids[row])}
    corpus.order = [row for row in order if row not in passed]


def _purchased(ledger: Ledger) -> dict[object, set[str]]:
    """The items bought, by purpose."""
    found: dict[object, set[str]] = {}
    for purchase in ledger.export():
        found.setdefault(purchase["purpose"], set()).add(str(purchase["item"]))
    return found


def _own(job: Job, game: Game, known: set[str], audit: set[int]) -> None:
    """Learn what is held and new, but nothing that the audit asks: it would know the answer."""
    items, place = job.dataset.items, game.corpus.row
    asked = {(items[row].prompt, items[row].candidates) for row in audit}
    owned = ((items[place[name]], label) for name, label in job.stock.owned.items())
    new = [
        (item.id, label)
        for item, label in owned
        if item.id not in known and (item.prompt, item.candidates) not in asked
    ]
    for decision, label in game.ledger.own(new, "owned") if new else ():
        game.teach(decision, label)


def _lease_again(job: Job, game: Game, audited: Set[str]) -> None:
    """Lease what the audit asks and was cut off between being freed and being handed out anew."""
    gone = {game.corpus.ids[row] for row in job.stock.gone}
    for bought in game.ledger.export():
        item = str(bought["item"])
        if item in audited - gone and bought["state"] == "released":
            game.ledger.lease(item)


def _change(job: Job, game: Game, order: list[int], audited: set[str]) -> set[str]:
    """Take up another budget or more items, and the audit that comes with it: its items."""
    terms, ledger, corpus = job.terms, game.ledger, game.corpus
    wanted = sum(terms.audits) - len(audited)
    free = _free(job, game, order, audited)
    items = len(corpus.began) if game.agreed is None else game.agreed["items"]
    if wanted > 0 and len(free) < wanted:
        raise SettingsError(_too_few(wanted, len(free)))
    if (ledger.budget, ledger.money, items) != (terms.labels, terms.money, len(order)):
        rounds = game.learner.round + len(free) - max(0, wanted)
        detail = {"train": terms.train, "rounds": rounds, "items": len(order)}
        ledger.set_budget(terms.labels, terms.money, detail)
        game.reschedule(detail)
    if wanted <= 0:
        return set()
    passed = frozenset(range(len(corpus.ids))) - frozenset(free)
    drawn = draw(len(corpus.ids), wanted, job.settings.seed, passed, len(terms.audits) - 1)
    leased = [corpus.ids[row] for row in drawn]
    ledger.reserve(leased, "audit")
    return set(leased)


def expect_items(job: Job, ledger: Ledger, terms: Terms) -> None:
    """Hold that there is something to buy with what is wanted, before anything is written.

    Raises:
        SettingsError: more labels than before, but no item that can still be chosen, or too few
            for the audit that comes with them.
    """
    ids = [item.id for item in job.dataset.items]
    if job.settings.mode == "stream":
        gone = {str(row.item) for row in ledger.rows() if row.event == "round"}
    else:
        gone = {str(bought["item"]) for bought in ledger.export()}
    aside = job.stock.aside | job.stock.gone
    free = sum(row not in aside and name not in gone for row, name in enumerate(ids))
    audited = sum(bought["purpose"] == "audit" for bought in ledger.export())
    wanted = sum(terms.audits) - audited
    if free < wanted:
        raise SettingsError(_too_few(wanted, free))
    if not free and terms.labels > ledger.spent:
        raise SettingsError(
            "every item was bought or, in a stream, has passed, so that more labels would buy"
            " nothing: give the run more items first, with `stacksl extend`"
        )


def _too_few(wanted: int, free: int) -> str:
    return (
        f"the audit that comes with the new budget needs {wanted} items that can still be chosen,"
        f" but {free} are left: give the run more items first, with `stacksl extend`"
    )


def _free(job: Job, game: Game, order: list[int], audited: set[str]) -> list[int]:
    """The rows that can still be chosen: of a stream those not seen, of a pool those not bought."""
    aside, ids = job.stock.aside | job.stock.gone, game.corpus.ids
    if job.settings.mode == "stream":
        gone = {ids[row] for row in order if game.ledger.seen(ids[row])}
    else:
        gone = {str(purchase["item"]) for purchase in game.ledger.export()}
    gone |= audited
    return [row for row in order if row not in aside and ids[row] not in gone]


def measured(job: Job, game: Game) -> Audit | None:
    """The audit that speaks of the final model, with its answers: the newest that asked anything.

    A change of the budget that was too small for an audit leaves the one before it.
    """
    bought = game.ledger.export()
    leased = [str(p["item"]) for p in bought if p["purpose"] == "audit"]
    sizes = (len(game.corpus.drawn), *job.terms.audits[1:])
    number = max((at for at, size in enumerate(sizes, start=1) if size), default=0)
    if not number or not leased:
        return None
    items = leased[max(0, len(leased) - sizes[number - 1]) :]
    said = {item: (answer.said, answer.index) for item, answer in game.ledger.audited().items()}
    rest = len(job.dataset.items) - len(job.stock.aside)
    passed_over = 0.0 if number == 1 else _before(bought, items[0]) / rest
    return Audit(tuple(game.corpus.row[item] for item in items), said, passed_over, number)


def _before(bought: Sequence[Mapping[str, object]], item: str) -> int:
    """How many items had been bought when `item` was."""
    paid = [str(row["item"]) for row in bought if row["purpose"] != "owned"]
    return len(set(paid[: paid.index(item)]))
