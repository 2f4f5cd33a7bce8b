"""The rules of buying: how a want becomes a lease, and an answer a lesson.

Each function records entries in a `Drafts`; whether they are written at once or wait is the
ledger's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stacksl.errors import LabelerError, LedgerError
from stacksl.ledger.events import canonical, certificate
from stacksl.ledger.pending import Drafts
from stacksl.ledger.purchases import Answer, Outcome, Purchase
from stacksl.ledger.state import Key, State
from stacksl.ledger.validation import expect_candidate, expect_price, whole, whole_answer
from stacksl.types import Decision

_REASONS = ("expired", "refused", "forgotten")


def renewal(drafts: Drafts, payload: str) -> None:
    """The features are renewed: the next epoch of certificates begins."""
    drafts.record("refreshed", number=drafts.accounts.epoch + 1, payload=payload)


def post(
    drafts: Drafts,
    decisions: Sequence[Decision],
    slots: Mapping[str, int],
    on_disk: Callable[[int], bool],
) -> list[Decision]:
    """Certificates in order, each want either with its reservation or refused.

    Slots beyond an item's first come behind them all: no item goes without a label for another's
    second, and a replay, which plays round by round, meets them where they were counted.
    """
    posted = [_post_one(drafts, decision, on_disk) for decision in decisions]
    for decision in posted:
        if decision.asked:
            _post_more(drafts, decision, slots.get(decision.item, 1))
    return posted


def _post_more(drafts: Drafts, decision: Decision, slots: int) -> None:
    """The slots of an item beyond its first, as far as the budget goes."""
    if whole(slots, f"the slots of item '{decision.item}'") < 1:
        raise LedgerError(f"an item has 1 slot or more, '{decision.item}' was to have {slots}")
    surrogate = drafts.register.surrogate(decision.item)
    for slot in range(1, slots):
        if not drafts.accounts.affords(drafts.accounts.price):
            return
        reserve_one(drafts, (surrogate, slot), int(decision.round))


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
        reserve_one(drafts, (surrogate, 0), int(decision.round))
    return decision


def _expect_new(drafts: Drafts, round: int, on_disk: Callable[[int], bool]) -> None:
    if round > drafts.accounts.last_round:
        return
    waits = any(e.event == "round" and e.round == round for e in drafts.entries)
    if waits or on_disk(round):
        raise LedgerError(f"round {round} has its certificate already: a round is posted once")


def reserve_one(
    drafts: Drafts,
    key: Key,
    round: int | None,
    purpose: str = "train",
    price: int | None = None,
) -> None:
    """The next lease of a purchase; `price` is the ledger's unless given.

    Where no certificate holds the item's commitment (audit, owned), the lease does.

    Raises:
        LedgerError: the purchase is open or answered.
    """
    state = drafts.accounts.purchases.get(key)
    if state is not None and state.stage != "released":
        raise LedgerError(
            f"the label of item '{drafts.register.id(key[0])}' is {state.stage} already: "
            "an item is bought once"
        )
    bound = {} if purpose == "train" else {"item": drafts.register.commitment(key[0])}
    drafts.record(
        "reserved",
        round=round,
        item=key[0],
        slot=key[1],
        token=1 if state is None else state.token + 1,
        purpose=purpose,
        price=drafts.accounts.price if price is None else price,
        payload=canonical(bound),
    )


def lease(drafts: Drafts, item: str, slot: int) -> Purchase | None:
    """A new lease of a released purchase, under a raised token; None if no budget is left."""
    state, key = drafts.state(item, slot), (drafts.register.surrogate(item), slot)
    if state is None or state.stage != "released":
        was = "was never made" if state is None else f"is {state.stage}"
        raise LedgerError(f"only a released purchase is leased again, that of '{item}' {was}")
    if not drafts.accounts.affords(drafts.accounts.price):
        return None
    reserve_one(drafts, key, state.round, state.purpose)
    return drafts.purchase(key)


def release(drafts: Drafts, purchase: Purchase, reason: str) -> bool:
    """Give a lease up; False if it is not the purchase's open one."""
    if reason not in _REASONS:
        raise LedgerError(f"a lease is released as {' or '.join(_REASONS[:2])}, came '{reason}'")
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


def settle(drafts: Drafts, answers: Iterable[Answer]) -> list[tuple[Outcome, int | None]]:
    """Record answers, as `received` gives them, in order.

    Gives what became of each, and the round of those to be learnt: of an item's slots, the first
    accepted answer that names a candidate, and none of an audit.
    """
    return [_settle_one(drafts, answer) for answer in answers]


def _settle_one(drafts: Drafts, answer: Answer) -> tuple[Outcome, int | None]:
    if drafts.came_before(answer):
        return "repeated", None
    state = _expect_leased(drafts, answer)
    if answer.index is not None:
        expect_candidate(answer.item, answer.index, drafts.size(answer.item))
    if _accepts(drafts, state, answer):
        _accept(drafts, state, answer)
        return "accepted", state.round if teach(drafts, answer.item, answer.slot) else None
    _keep_late(drafts, state, answer)
    if state.stage != "answered":
        return "late", None
    return "repeated" if state.word == answer.word else "disputed", None


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
    """`answered`; a late answer takes over the lease that is open."""
    leased = state.stage == "open"
    lease = state.token if leased else answer.token
    how = _said(drafts, answer)
    if lease != answer.token:
        how["given"] = answer.token
    if not leased:
        how["unleased"] = True  # no reservation turns into this charge: it is a new one
    drafts.record(
        "answered",
        round=state.round,
        item=drafts.register.surrogate(answer.item),
        slot=answer.slot,
        token=lease,
        purpose=state.purpose,
        labeler=drafts.annex.code(answer.labeler),
        price=answer.price,
        payload=canonical(how),
    )


def teach(drafts: Drafts, item: str, slot: int) -> bool:
    """`learnt`, where an accepted answer is the first of its item to learn from; else False."""
    surrogate, state = drafts.register.surrogate(item), drafts.state(item, slot)
    if state is None or state.index is None or state.purpose == "audit":
        return False
    if surrogate in drafts.accounts.taught:
        return False
    drafts.record(
        "learnt",
        round=state.round,
        item=surrogate,
        slot=slot,
        token=state.token,
        purpose=state.purpose,
        labeler=state.labeler,
        payload=canonical({"index": state.index}),
    )
    return True


def _said(drafts: Drafts, answer: Answer) -> dict[str, object]:
    """What an answer says, for the chain; its free texts go beside it."""
    said: dict[str, object] = (
        {"said": answer.said} if answer.index is None else {"index": answer.index}
    )
    words = drafts.words(answer)
    if words is not None:
        said["words"] = words
        surrogate = drafts.register.surrogate(answer.item)
        drafts.annex.note_texts(surrogate, words, answer.text, answer.note)
    return said


def _keep_late(drafts: Drafts, state: State, answer: Answer) -> None:
    drafts.record(
        "late",
        round=state.round,
        item=drafts.register.surrogate(answer.item),
        slot=answer.slot,
        token=answer.token,
        purpose=state.purpose,
        labeler=drafts.annex.code(answer.labeler),
        price=0,
        payload=canonical(_said(drafts, answer)),
    )
