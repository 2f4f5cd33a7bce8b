"""The rules of buying: from a wanted label to a lease, and from an answer to a learnt label.

Each function records entries in a `Pending`; the ledger decides when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

from stacksl.errors import LabelerError, LedgerError
from stacksl.ledger.accounts import Key, Pending, State
from stacksl.ledger.events import canonical, certificate
from stacksl.ledger.purchases import (
    Answer,
    Outcome,
    Purchase,
    Skip,
    expect_candidate,
    expect_price,
    whole,
    whole_answer,
)
from stacksl.types import Decision

_REASONS = ("expired", "refused", *(f"skipped: {why}" for why in get_args(Skip)))


def renewal(pending: Pending, payload: str) -> None:
    """Record that the features were renewed: the next epoch of certificates begins."""
    pending.record("refreshed", number=pending.accounts.epoch + 1, payload=payload)


def post(
    pending: Pending,
    decisions: Sequence[Decision],
    slots: Mapping[str, int],
    on_disk: Callable[[int], bool],
) -> list[Decision]:
    """Record certificates in order, each wanted label reserved or refused.

    Slots beyond an item's first come after all of them: no item goes without a label for another's
    second, and a replay, which plays round by round, finds them where they were counted.
    """
    posted = [_post_one(pending, decision, on_disk) for decision in decisions]
    for decision in posted:
        if decision.asked:
            _post_more(pending, decision, slots.get(decision.item, 1))
    return posted


def _post_more(pending: Pending, decision: Decision, slots: int) -> None:
    """Reserve the slots of an item beyond its first, as far as the budget goes."""
    if whole(slots, f"the slots of item '{decision.item}'") < 1:
        raise LedgerError(f"an item has 1 slot or more, got {slots} for '{decision.item}'")
    surrogate = pending.items.surrogate(decision.item)
    for slot in range(1, slots):
        if not pending.accounts.affords(pending.accounts.price):
            return
        reserve_one(pending, (surrogate, slot), int(decision.round))


def _post_one(pending: Pending, decision: Decision, on_disk: Callable[[int], bool]) -> Decision:
    if decision.status not in ("wanted", "skipped"):
        raise LedgerError(
            f"expected the status wanted or skipped, got '{decision.status}' in round "
            f"{decision.round}: post each decision once, as `decide` returned it"
        )
    _expect_new(pending, decision.round, on_disk)
    surrogate = pending.items.surrogate(decision.item)
    accounts, left = pending.accounts, pending.accounts.left
    if decision.status == "wanted":
        fits = accounts.affords(accounts.price)
        decision = decision.reserved() if fits else decision.refused()
    named = {"epoch": accounts.epoch} if accounts.epoch else {}
    commitment = pending.items.commitment(surrogate)
    payload = certificate(decision, left=left, item=commitment, **named)
    pending.record("round", round=int(decision.round), item=surrogate, payload=payload)
    if decision.asked:
        reserve_one(pending, (surrogate, 0), int(decision.round))
    return decision


def _expect_new(pending: Pending, round: int, on_disk: Callable[[int], bool]) -> None:
    if round > pending.accounts.last_round:
        return
    pends = any(e.event == "round" and e.round == round for e in pending.entries)
    if pends or on_disk(round):
        raise LedgerError(f"round {round} has its certificate already: a round is posted once")


def reserve_one(
    pending: Pending,
    key: Key,
    round: int | None,
    purpose: str = "train",
) -> None:
    """Record the next lease of a purchase, at the ledger's price; an owned label costs nothing.

    Where no certificate holds the item's commitment (audit, owned), the lease holds it.

    Raises:
        LedgerError: the purchase is open or answered.
    """
    state = pending.accounts.purchases.get(key)
    if state is not None and state.stage != "released":
        raise LedgerError(
            f"the label of item '{pending.items.id(key[0])}' is {state.stage} already: "
            "an item is bought once"
        )
    bound = {} if purpose == "train" else {"item": pending.items.commitment(key[0])}
    pending.record(
        "reserved",
        round=round,
        item=key[0],
        slot=key[1],
        token=1 if state is None else state.token + 1,
        purpose=purpose,
        price=0 if purpose == "owned" else pending.accounts.price,
        payload=canonical(bound),
    )


def lease(pending: Pending, item: str, slot: int) -> Purchase | None:
    """Lease a released purchase again, under a raised token; None if no budget is left."""
    state, key = pending.state(item, slot), (pending.items.surrogate(item), slot)
    if state is None or state.stage != "released":
        was = "was never made" if state is None else f"is {state.stage}"
        raise LedgerError(f"only a released purchase can be leased again, that of '{item}' {was}")
    if not pending.accounts.affords(pending.accounts.price):
        return None
    reserve_one(pending, key, state.round, state.purpose)
    return pending.purchase(key)


def release(pending: Pending, purchase: Purchase, reason: str, note: str | None = None) -> bool:
    """Give a lease up; False if it is not the purchase's open one."""
    if reason not in _REASONS:
        raise LedgerError(f"a lease is released as {' or '.join(_REASONS[:2])}, got '{reason}'")
    state = pending.state(purchase.item, purchase.slot)
    if state is None or state.token < purchase.token:
        raise LedgerError(
            f"the lease {purchase.token} of item '{purchase.item}' was never made: "
            "release one of `open_purchases`"
        )
    if state.stage != "open" or state.token != purchase.token:
        return False
    surrogate, said = pending.items.surrogate(purchase.item), {"reason": reason}
    words = pending.items.words(surrogate, None, note)
    if words is not None:
        said["words"] = words
        pending.private.note_texts(surrogate, words, None, note)
    pending.record_of((surrogate, purchase.slot), state, "released", payload=canonical(said))
    return True


def received(pending: Pending, answers: Iterable[Answer]) -> list[Answer]:
    """The answers validated on their own: about known items, in plain integers.

    Raises:
        LabelerError: one is about an unknown item, not in whole numbers, or at a negative price.
    """
    sound = [whole_answer(answer) for answer in answers]
    for answer in sound:
        if answer.item not in pending.items:
            raise LabelerError(
                f"'{answer.labeler}' answered item '{answer.item}', which is not among the "
                f"{len(pending.items)} items of this run: a labeler answers what it was asked"
            )
    return sound


Settled = tuple[Outcome, int | None, bool]


def settle(pending: Pending, answers: Iterable[Answer]) -> list[Settled]:
    """Record answers, as validated by `received`, in order.

    Gives the outcome of each; the round of those to be learnt: of an item's slots the first
    accepted answer that names a candidate, and no answer of an audit; and whether it takes the
    place of a label that was withdrawn.
    """
    return [_settle_one(pending, answer) for answer in answers]


def _settle_one(pending: Pending, answer: Answer) -> Settled:
    if pending.is_recorded(answer):
        return "repeated", None, False
    state = _expect_leased(pending, answer)
    if answer.index is not None:
        expect_candidate(answer.item, answer.index, pending.size(answer.item))
    if _accepts(pending, state, answer):
        _accept(pending, state, answer)
        taught = teach(pending, answer.item, answer.slot)
        return "accepted", state.round if taught else None, relabel(pending, answer.item)
    _keep_late(pending, state, answer)
    if state.stage != "answered" or state.labeler != pending.private.code(answer.labeler):
        return "late", None, False
    return "repeated" if state.word == answer.word else "disputed", None, False


def _expect_leased(pending: Pending, answer: Answer) -> State:
    state = pending.state(answer.item, answer.slot)
    if state is None or not 1 <= answer.token <= state.token:
        raise LabelerError(
            f"'{answer.labeler}' answered lease {answer.token} of item '{answer.item}', slot "
            f"{answer.slot}, which was never made: a labeler answers what it was asked"
        )
    return state


def _accepts(pending: Pending, state: State, answer: Answer) -> bool:
    """Whether an answer is charged and learnt."""
    if state.stage == "answered":
        return False
    expect_price(answer, state.price)  # of a released lease too: its labeler agreed to that price
    return state.stage == "open" or pending.accounts.affords(answer.price)


def _accept(pending: Pending, state: State, answer: Answer) -> None:
    """Record `answered`; a late answer takes over the open lease."""
    leased = state.stage == "open"
    lease = state.token if leased else answer.token
    how = said_of(pending, answer)
    if lease != answer.token:
        how["given"] = answer.token
    if not leased:
        how["unleased"] = True  # a new charge: it replaces no reservation
    record_answer(pending, state, answer, "answered", how, token=lease, price=answer.price)


def teach(pending: Pending, item: str, slot: int) -> bool:
    """Record `learnt` if the accepted answer is the first of its item to learn from; else False."""
    surrogate, state = pending.items.surrogate(item), pending.state(item, slot)
    if state is None or not pending.accounts.teaches(state):
        return False
    if surrogate in pending.accounts.taught:
        return False
    payload = canonical({"index": state.index})
    pending.record_of((surrogate, slot), state, "learnt", labeler=state.labeler, payload=payload)
    return True


def relabel(pending: Pending, item: str) -> bool:
    """Record the label that refits learn of an item which was learnt before, if it has changed."""
    accounts, surrogate = pending.accounts, pending.items.surrogate(item)
    if surrogate not in accounts.taught:
        return False
    index = accounts.label_of(surrogate)
    if accounts.taught[surrogate] == index:
        return False
    data = {} if index is None else {"index": index}
    pending.record("relabelled", item=surrogate, payload=canonical(data))
    return True


def record_answer(
    pending: Pending,
    state: State,
    answer: Answer,
    event: str,
    said: Mapping[str, object],
    **fields: int,
) -> None:
    """Record an answer to a purchase by its labeler; `said` is the payload."""
    key, who = (pending.items.surrogate(answer.item), answer.slot), answer.labeler
    labeler, payload = pending.private.code(who), canonical(said)
    pending.record_of(key, state, event, labeler=labeler, payload=payload, **fields)


def said_of(pending: Pending, answer: Answer) -> dict[str, object]:
    """The payload of an answer; its free texts go to the private tables."""
    said: dict[str, object] = (
        {"said": answer.said} if answer.index is None else {"index": answer.index}
    )
    words = pending.words(answer)
    if words is not None:
        said["words"] = words
        surrogate = pending.items.surrogate(answer.item)
        pending.private.note_texts(surrogate, words, answer.text, answer.note)
    return said


def _keep_late(pending: Pending, state: State, answer: Answer) -> None:
    record_answer(
        pending, state, answer, "late", said_of(pending, answer), token=answer.token, price=0
    )
