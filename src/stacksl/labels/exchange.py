"""The rules of buying: how a want becomes a lease, and an answer a lesson.

Each function records entries in a `Drafts`; whether they are written at once or wait is the
ledger's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from stacksl.errors import LabelerError, LedgerError
from stacksl.items import Decision
from stacksl.labels.accounts import Accounts, Key, State, refuse_later
from stacksl.labels.purchases import Answer, Purchase, Purpose
from stacksl.labels.register import Register
from stacksl.labels.rows import Entry, canonical, certificate
from stacksl.labels.scrutiny import expect_candidate, expect_price, whole, whole_answer

__all__ = ["Drafts", "correction", "lease", "post", "received", "release", "renewal", "settle"]

_REASONS = ("expired", "refused")


@dataclass(slots=True)
class Drafts:
    """The book with entries that are counted but not chained yet.

    Attributes:
        accounts: what all rows and the entries add up to.
        register: the items.
        clock: gives seconds since the epoch.
        entries: what waits to be written, in order.
    """

    accounts: Accounts
    register: Register
    clock: Callable[[], float]
    entries: list[Entry] = field(default_factory=list)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """What is recorded inside is taken back if the block raises."""
        before = len(self.entries)
        try:
            with self.accounts.tentative():
                yield
        except BaseException:
            del self.entries[before:]
            raise

    def record(self, event: str, **fields: Any) -> None:
        """Count an entry and keep it for writing."""
        entry = Entry(time=int(self.clock() * 1e6), event=event, **fields)
        self.accounts.apply(entry)
        self.entries.append(entry)

    def state(self, item: str, slot: int) -> State | None:
        """A purchase as it stands, or None if it was never made."""
        return self.accounts.purchases.get((self.register.surrogate(item), slot))

    def size(self, item: str) -> int | None:
        """K of an item, if known."""
        return self.register.size(self.register.surrogate(item))

    def purchase(self, key: Key) -> Purchase | None:
        """The last lease of a purchase; None where its item was forgotten."""
        item, state = self.register.id(key[0]), self.accounts.purchases[key]
        if item is None:
            return None
        purpose = next(p for p in get_args(Purpose) if p == state.purpose)
        return Purchase(item, key[1], state.token, state.round or 0, purpose, state.price)

    def came_before(self, answer: Answer) -> bool:
        """Whether this very answer was recorded already, accepted or late."""
        state = self.state(answer.item, answer.slot)
        return state is not None and (answer.token, answer.index) in state.labels

    def answers_open_lease(self, answer: Answer) -> bool:
        """Whether the answer came, or comes, on the lease it was asked with."""
        state = self.state(answer.item, answer.slot)
        return self.came_before(answer) or (
            state is not None and state.stage == "open" and state.token == answer.token
        )

    def export(self) -> list[dict[str, object]]:
        """One row a purchase, as `Ledger.export` describes it."""
        return [
            {
                "item": self.register.id(key[0]),
                "slot": key[1],
                "state": "late" if state.stage == "released" and state.late else state.stage,
                "answer": state.index,
                "learnt_at": None if state.learnt_at is None else state.learnt_at / 1e6,
                "price": 0 if state.stage == "released" else state.price,
                "labeler": state.labeler,
                "purpose": state.purpose,
            }
            for key, state in self.accounts.purchases.items()
        ]


def renewal(drafts: Drafts, payload: str) -> None:
    """The features are renewed: the next epoch of certificates begins."""
    drafts.record("refreshed", number=drafts.accounts.epoch + 1, payload=payload)


def post(
    drafts: Drafts, decisions: Sequence[Decision], on_disk: Callable[[int], bool]
) -> list[Decision]:
    """Certificates in order, each want either with its reservation or refused."""
    return [_post_one(drafts, decision, on_disk) for decision in decisions]


def _post_one(drafts: Drafts, decision: Decision, on_disk: Callable[[int], bool]) -> Decision:
    if decision.status not in ("wanted", "skipped"):
        raise LedgerError(
            f"expected a decision that wants or skips, round {decision.round} came "
            f"'{decision.status}': post each decision once, as `decide` gave it"
        )
    _expect_new(drafts, decision.round, on_disk)
    surrogate = drafts.register.surrogate(decision.item)
    accounts, left = drafts.accounts, drafts.accounts.left
    if decision.status == "wanted":
        fits = accounts.affords(accounts.price)
        decision = decision.reserved() if fits else decision.refused()
    named = {"epoch": accounts.epoch} if accounts.epoch else {}
    commitment = drafts.register.commitment(surrogate)
    payload = certificate(decision, left=left, item=commitment, **named)
    drafts.record("round", round=int(decision.round), item=surrogate, payload=payload)
    if decision.asked:
        _reserve(drafts, (surrogate, 0), int(decision.round))
    return decision


def _expect_new(drafts: Drafts, round: int, on_disk: Callable[[int], bool]) -> None:
    if round > drafts.accounts.last_round:
        return
    waits = any(e.event == "round" and e.round == round for e in drafts.entries)
    if waits or on_disk(round):
        raise LedgerError(f"round {round} has its certificate already: a round is posted once")


def _reserve(drafts: Drafts, key: Key, round: int, purpose: str = "train") -> None:
    refuse_later("reserved", purpose)
    state = drafts.accounts.purchases.get(key)
    if state is not None and state.stage != "released":
        raise LedgerError(
            f"the label of item '{drafts.register.id(key[0])}' is {state.stage} already: "
            "an item is bought once"
        )
    drafts.record(
        "reserved",
        round=round,
        item=key[0],
        slot=key[1],
        token=1 if state is None else state.token + 1,
        purpose=purpose,
        price=drafts.accounts.price,
    )


def lease(drafts: Drafts, item: str, slot: int) -> Purchase | None:
    """A new lease of a released purchase, under a raised token; None if no budget is left."""
    state, key = drafts.state(item, slot), (drafts.register.surrogate(item), slot)
    if state is None or state.stage != "released":
        was = "was never made" if state is None else f"is {state.stage}"
        raise LedgerError(f"only a released purchase is leased again, that of '{item}' {was}")
    if not drafts.accounts.affords(drafts.accounts.price):
        return None
    _reserve(drafts, key, state.round or 0, state.purpose)
    return drafts.purchase(key)


def release(drafts: Drafts, purchase: Purchase, reason: str) -> bool:
    """Give a lease up; False if it is not the purchase's open one."""
    if reason not in _REASONS:
        raise LedgerError(f"a lease is released as {' or '.join(_REASONS)}, came '{reason}'")
    state = drafts.state(purchase.item, purchase.slot)
    if state is None or state.token < purchase.token:
        raise LedgerError(
            f"the lease {purchase.token} of item '{purchase.item}' was never made: "
            "release one that `open_purchases` gave"
        )
    if state.stage != "open" or state.token != purchase.token:
        return False
    drafts.record(
        "released",
        round=state.round,
        item=drafts.register.surrogate(purchase.item),
        slot=purchase.slot,
        token=purchase.token,
        purpose=state.purpose,
        payload=canonical({"reason": reason}),
    )
    return True


def received(drafts: Drafts, answers: Iterable[Answer]) -> list[Answer]:
    """The answers as they can be looked up: about items that there are, in plain integers.

    Raises:
        LabelerError: one is about an unknown item, not in whole numbers, or at a negative price.
    """
    sound = [whole_answer(answer) for answer in answers]
    for answer in sound:
        if answer.item not in drafts.register:
            raise LabelerError(
                f"'{answer.labeler}' answered item '{answer.item}', which is not among the "
                f"{len(drafts.register)} items of this run: a labeler answers what it was asked"
            )
    return sound


def settle(drafts: Drafts, answers: Iterable[Answer]) -> list[tuple[int, int]]:
    """Record answers, as `received` gives them, in order.

    Gives the (round, index) of those to be learnt.
    """
    lessons = []
    for answer in answers:
        if drafts.came_before(answer):
            continue
        state = _expect_leased(drafts, answer)
        expect_candidate(answer.item, answer.index, drafts.size(answer.item))
        if _accepts(drafts, state, answer):
            _accept(drafts, state, answer)
            lessons.append((state.round or 0, answer.index))
        else:
            _keep_late(drafts, state, answer)
    return lessons


def _expect_leased(drafts: Drafts, answer: Answer) -> State:
    state = drafts.state(answer.item, answer.slot)
    if state is None or not 1 <= answer.token <= state.token:
        raise LabelerError(
            f"'{answer.labeler}' answered lease {answer.token} of item '{answer.item}', slot "
            f"{answer.slot}, which was never made: a labeler answers what it was asked"
        )
    return state


def _accepts(drafts: Drafts, state: State, answer: Answer) -> bool:
    """Whether an answer is charged and learnt."""
    if state.stage == "answered":
        return False
    expect_price(answer, state.price)  # of a released lease too: its labeler agreed to that price
    return state.stage == "open" or drafts.accounts.affords(answer.price)


def _accept(drafts: Drafts, state: State, answer: Answer) -> None:
    """`answered` and `learnt`; a late answer takes over the lease that is open."""
    leased = state.stage == "open"
    lease = state.token if leased else answer.token
    said: dict[str, object] = {"index": answer.index}
    how = dict(said)
    if lease != answer.token:
        how["given"] = answer.token
    if not leased:
        how["unleased"] = True  # no reservation turns into this charge: it is a new one
    common = {
        "round": state.round,
        "item": drafts.register.surrogate(answer.item),
        "slot": answer.slot,
        "token": lease,
        "purpose": state.purpose,
        "labeler": answer.labeler,
    }
    drafts.record("answered", price=answer.price, payload=canonical(how), **common)
    drafts.record("learnt", payload=canonical(said), **common)


def _keep_late(drafts: Drafts, state: State, answer: Answer) -> None:
    drafts.record(
        "late",
        round=state.round,
        item=drafts.register.surrogate(answer.item),
        slot=answer.slot,
        token=answer.token,
        purpose=state.purpose,
        labeler=answer.labeler,
        price=0,
        payload=canonical({"index": answer.index}),
    )


def correction(drafts: Drafts, item: str, slot: int, index: int, labeler: str) -> None:
    """A numbered `corrected` row for an accepted answer."""
    state = drafts.state(item, slot)
    if state is None or state.stage != "answered":
        raise LedgerError(f"only an accepted answer is corrected, item '{item}' has none")
    index = whole(index, f"the correction of item '{item}'")
    expect_candidate(item, index, drafts.size(item))
    drafts.record(
        "corrected",
        round=state.round,
        item=drafts.register.surrogate(item),
        slot=slot,
        token=state.token,
        number=state.corrections + 1,
        purpose=state.purpose,
        labeler=labeler,
        price=0,
        payload=canonical({"index": index}),
    )
