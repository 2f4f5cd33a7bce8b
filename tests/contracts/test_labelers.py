"""What every labeler in the registry does, and that the check of labelers finds what is wrong."""

from __future__ import annotations

import pytest

from stacksl.errors import LabelerError, SettingsError
from stacksl.labelers.protocol import Labeler, Pending
from stacksl.labelers.registry import LABELERS, as_labeler
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.testing import check_labeler

COUNT, SIZE = 2_000, 5
GOLD = {f"q{i}": (i * 7) % SIZE for i in range(COUNT)}
SIZES = {f"q{i}": SIZE for i in range(COUNT)}


def purchase(item: str, slot: int = 0, token: int = 1, price: int = 9) -> Purchase:
    return Purchase(item, slot, token, 1, "train", price)


def answered(labeler: Labeler, *purchases: Purchase) -> dict[tuple[str, int, int], int]:
    labeler.ask(purchases)
    return {(a.item, a.slot, a.token): a.index for a in labeler.answers()}


@pytest.fixture(params=sorted(LABELERS))
def labeler(request: pytest.FixtureRequest) -> Labeler:
    return LABELERS[request.param](None, GOLD, SIZES, 3)


def test_it_keeps_the_contract(labeler):
    """Its requests are purchases alone: it reads no prompt."""
    asked = [purchase("q4"), purchase("q2"), purchase("q9", slot=1, token=3)]
    asked += [purchase(f"q{i}") for i in range(10, 200)]
    check_labeler(lambda: LABELERS[labeler.name](None, GOLD, SIZES, 3), asked)


@pytest.mark.parametrize("name", sorted(LABELERS))
def test_missing_answers_are_counted_with_the_way_out(name):
    some = {item: index for item, index in GOLD.items() if item not in ("q3", "q5")}
    with pytest.raises(
        LabelerError, match=r"none for 2 of 2,000 items .*'q3'.*: let people answer"
    ):
        LABELERS[name](None, some, SIZES, 0)


def test_a_wrong_setting_is_one_sentence():
    with pytest.raises(SettingsError, match="'oracle' takes nothing after it, got 'oracle:x'"):
        LABELERS["oracle"]("x", GOLD, SIZES, 0)


def test_the_oracle_is_right():
    oracle = LABELERS["oracle"](None, GOLD, SIZES, 0)
    said = answered(oracle, *(purchase(item) for item in GOLD))
    assert {item: index for (item, _, _), index in said.items()} == GOLD


# The check for labelers of others ---------------------------------------------------------------


class Late:
    """Answers every second request when it is looked for the third time, and never the others."""

    name, repeatable, price = "late", False, 0

    def __init__(self):
        self.open, self.looked = {}, 0

    def ask(self, requests):
        self.open.update({(r.item, r.slot, r.token): r for r in requests})

    def answers(self):
        self.looked += 1
        ready = [key for n, key in enumerate(self.open) if n % 2 == 0] if self.looked == 5 else []
        return [self.open.pop(key).answer(1, self.name, self.price) for key in ready]

    def pending(self):
        return [Pending("somewhere", len(self.open))] if self.open else []


class Twice(Late):
    def answers(self):
        given = [r.answer(0, self.name) for r in self.open.values()]
        return given + given


class Dear(Late):
    price = 10**9


class Stranger(Late):
    def answers(self):
        return [Answer("who", 0, 1, 0, self.name)] if self.open else []


class Another(Late):
    """It gives the answer that it gives only once, though it says that it is repeatable."""

    repeatable, count = True, 0

    def answers(self):
        given = [
            r.answer((self.count + n) % 3, self.name) for n, r in enumerate(self.open.values())
        ]
        self.count += len(given)
        self.open.clear()
        return given


class Mute(Late):
    def answers(self):
        return None


def none_of_these(request):
    return None


@pytest.mark.parametrize("make", [Late, lambda: as_labeler(none_of_these)])
def test_a_labeler_may_be_late_silent_or_say_none_of_these(make):
    check_labeler(make)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Twice, "was answered twice"),
        (Dear, "an answer cost 1000000000, at most 1000000"),
        (Stranger, "item 'who' was answered but not asked"),
        (Another, "it is repeatable, and gave other answers"),
        (object, "it needs name, repeatable"),
        (Mute, "got TypeError in labelers.py"),
        (Late(), "'Late' object is not callable"),
    ],
)
def test_a_labeler_of_others_is_checked(make, words):
    with pytest.raises(AssertionError, match=words):
        check_labeler(make)
