"""The contract of labelers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from stacksl.labelers.protocol import Labeler, Request
from stacksl.ledger.purchases import Answer, Purchase, whole_answer
from stacksl.testing.gates import asserting

Key: TypeAlias = tuple[str, int, int]

CANDIDATES = ("even", "odd", "neither")


def example_requests(count: int = 6, price: int = 1_000_000) -> list[Request]:
    """Requests with prompts."""
    return [
        Request(f"q{n}", 0, 1, n + 1, "train", price, f"Is {n} even or odd?", CANDIDATES)
        for n in range(count)
    ]


@asserting()
def check_labeler(
    make: Callable[[], Labeler], requests: Sequence[Purchase] | None = None, waits: int = 20
) -> None:
    """Check a labeler, for any answers and any delay.

    It may answer at once, later or never, name a candidate or say another word, and abstain.

    Args:
        make: gives a new labeler; a `repeatable` one is made twice.
        requests: at least two, of different items, that it can answer; `example_requests` if left
            out. For a labeler that reads no prompt they may be purchases.
        waits: how often its answers are looked for.

    Raises:
        AssertionError: it breaks the contract; the message says how.
    """
    all_requests: list[Any] = list(example_requests() if requests is None else requests)
    labeler = make()
    assert isinstance(labeler, Labeler), "it needs name, repeatable, ask, answers and pending"
    assert isinstance(labeler.name, str), "its name should be text, as the ledger records it"
    assert labeler.name, "it needs a name, which the ledger records"
    assert not [*labeler.answers()], "it answered before it was asked"
    labeler.ask([])
    assert not [*labeler.answers()], "it answered when it was asked nothing"
    labeler.ask(all_requests[:1])
    labeler.ask(all_requests)  # with one request that it has already
    answers = _collected(labeler, all_requests, waits)
    labeler.ask([request for request in all_requests if _key(request) not in answers])
    later_answers = _collected(labeler, all_requests, 1)
    assert not answers.keys() & later_answers.keys(), "a request was answered twice"
    if labeler.repeatable:
        _expect_repeated(make, labeler, all_requests, {**answers, **later_answers})


def _expect_repeated(
    make: Callable[[], Labeler], labeler: Labeler, requests: Sequence[Any], given: dict[Key, Answer]
) -> None:
    """It says the same again, in another order, and a new one does so under another lease."""
    labeler.ask(list(reversed(requests)))
    repeated = _collected(labeler, requests, 1)
    expected = {key: answer.word for key, answer in given.items()}
    assert {key: answer.word for key, answer in repeated.items()} == expected, (
        "it is repeatable, and gave other answers to the same requests"
    )
    raised = [replace(request, token=request.token + 1) for request in requests]
    new_labeler = make()
    new_labeler.ask(raised)
    fresh = {answer.item: answer.word for answer in _collected(new_labeler, raised, 1).values()}
    assert fresh == {item: word for (item, _, _), word in expected.items()}, (
        "it is repeatable, and gave other answers under another lease"
    )


def _collected(labeler: Labeler, requests: Sequence[Any], waits: int) -> dict[Key, Answer]:
    """The answers to the `requests`, each checked."""
    by_key = {_key(request): request for request in requests}
    answers: dict[Key, Answer] = {}
    for _ in range(waits):
        for answer in labeler.answers():
            key, purchase = _key(answer), by_key.get(_key(answer))
            assert purchase is not None, f"item '{answer.item}' was answered but not asked"
            assert key not in answers, f"item '{answer.item}' was answered twice"
            answer = whole_answer(answer)
            size = len(getattr(purchase, "candidates", ())) or None
            assert size is None or answer.index is None or answer.index < size, (
                f"the answer to item '{answer.item}' is {answer.index} of {size} candidates"
            )
            assert answer.labeler == labeler.name, (
                f"the answer is by '{answer.labeler}', the labeler is '{labeler.name}'"
            )
            assert answer.price <= purchase.price, (
                f"an answer cost {answer.price}, at most {purchase.price} was agreed"
            )
            answers[key] = answer
        if not (places := labeler.pending()):
            break
        assert all(place.open > 0 for place in places), "a pending place has open requests"
    return answers


def _key(record: Purchase | Answer) -> Key:
    return (record.item, record.slot, record.token)
