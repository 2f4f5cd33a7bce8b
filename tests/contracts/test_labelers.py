"""What every labeler must do, on every one in the registry; and what each one does."""

from __future__ import annotations

import math

import pytest

from stacksl.errors import LabelerError, SettingsError
from stacksl.labelers.protocol import Labeler
from stacksl.labelers.registry import LABELERS, make_labeler
from stacksl.ledger.purchases import Purchase

COUNT, SIZE = 2_000, 5
GOLD = {f"q{i}": (i * 7) % SIZE for i in range(COUNT)}
SIZES = {f"q{i}": SIZE for i in range(COUNT)}
SPECS = {"oracle": "oracle", "noisy": "noisy:0.3"}


def purchase(item: str, slot: int = 0, token: int = 1, price: int = 9) -> Purchase:
    return Purchase(item, slot, token, 1, "train", price)


def answered(labeler: Labeler, *purchases: Purchase) -> dict[tuple[str, int, int], int]:
    labeler.ask(purchases)
    return {(a.item, a.slot, a.token): a.index for a in labeler.answers()}


@pytest.fixture(params=sorted(LABELERS))
def labeler(request: pytest.FixtureRequest) -> Labeler:
    return make_labeler(SPECS[request.param], GOLD, SIZES, seed=3)


def test_it_is_a_labeler(labeler):
    assert isinstance(labeler, Labeler)
    assert labeler.name


def test_it_answers_what_it_was_asked(labeler):
    asked = [purchase("q4"), purchase("q2"), purchase("q9", slot=1, token=3)]
    labeler.ask(asked)
    answers = labeler.answers()
    assert [(a.item, a.slot, a.token) for a in answers] == [
        (p.item, p.slot, p.token) for p in asked
    ]
    assert all(0 <= a.index < SIZE for a in answers)
    assert all(a.labeler == labeler.name for a in answers)
    assert all(0 <= a.price <= 9 for a in answers)


def test_nothing_asked_is_nothing_answered(labeler):
    assert labeler.answers() == []
    labeler.ask([])
    assert labeler.answers() == []


def test_asking_twice_asks_once(labeler):
    labeler.ask([purchase("q1")])
    labeler.ask([purchase("q1"), purchase("q2")])
    assert [a.item for a in labeler.answers()] == ["q1", "q2"]


def test_a_repeatable_one_says_the_same_again(labeler):
    if not labeler.repeatable:
        pytest.skip("its answers cannot be had again")
    asked = [purchase(f"q{i}") for i in range(200)]
    first = answered(labeler, *asked)
    assert answered(labeler, *reversed(asked)) == first
    again = make_labeler(SPECS[labeler.name.partition(":")[0]], GOLD, SIZES, seed=3)
    assert answered(again, *asked[50:60]) == {
        key: index for key, index in first.items() if key[0] in {p.item for p in asked[50:60]}
    }
    raised = answered(labeler, *(purchase(p.item, token=2) for p in asked))
    assert list(raised.values()) == list(first.values())  # the lease does not change the answer


def test_an_item_it_does_not_know_is_one_sentence(labeler):
    with pytest.raises(LabelerError, match="'stranger', which is not in its file"):
        labeler.ask([purchase("stranger")])


@pytest.mark.parametrize("name", sorted(LABELERS))
def test_missing_answers_are_counted_with_the_way_out(name):
    some = {item: index for item, index in GOLD.items() if item not in ("q3", "q5")}
    with pytest.raises(LabelerError, match=r"2000 items, 2 have none .*'q3'.*: add the answers"):
        make_labeler(SPECS[name], some, SIZES, seed=0)


@pytest.mark.parametrize("name", sorted(LABELERS))
@pytest.mark.parametrize("index", [-2, SIZE])
def test_an_impossible_answer_is_refused(name, index):
    with pytest.raises(LabelerError, match=f"that of 'q7' is {index} of 5"):
        make_labeler(SPECS[name], {**GOLD, "q7": index}, SIZES, seed=0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("orcle", "did you mean 'oracle'"),
        ("noisy", "needs a probability"),
        ("noisy:", "needs a probability"),
        ("noisy:much", "needs a probability P from 0 to 1, got 'much'"),
        ("noisy:1.5", "from 0 to 1, got 1.5"),
        ("noisy:nan", "from 0 to 1, got nan"),
        ("oracle:x", "takes nothing after it"),
    ],
)
def test_a_wrong_setting_is_one_sentence(spec, words):
    with pytest.raises(SettingsError, match=words) as caught:
        make_labeler(spec, GOLD, SIZES, seed=0)
    assert "\n" not in str(caught.value)


def test_the_oracle_is_right():
    oracle = make_labeler("oracle", GOLD, SIZES, seed=0)
    said = answered(oracle, *(purchase(item) for item in GOLD))
    assert {item: index for (item, _, _), index in said.items()} == GOLD


def test_noise_has_its_rate_and_is_uniform_over_the_wrong_answers():
    """Binomial and chi-squared bounds at five standard deviations: a false alarm in 10^6."""
    probability = 0.3
    labeler = make_labeler(f"noisy:{probability}", GOLD, SIZES, seed=11)
    said = answered(labeler, *(purchase(item) for item in GOLD))
    shifts = [(index - GOLD[item]) % SIZE for (item, _, _), index in said.items()]
    wrong = sum(shift != 0 for shift in shifts)
    spread = math.sqrt(COUNT * probability * (1 - probability))
    assert abs(wrong - COUNT * probability) < 5 * spread
    each = wrong / (SIZE - 1)
    for shift in range(1, SIZE):
        assert abs(shifts.count(shift) - each) < 5 * math.sqrt(each * 0.75)


def test_noise_is_a_function_of_seed_item_and_slot():
    def wrong(seed: int, slot: int) -> set[str]:
        labeler = make_labeler("noisy:0.5", GOLD, SIZES, seed)
        said = answered(labeler, *(purchase(item, slot) for item in GOLD))
        return {item for (item, _, _), index in said.items() if index != GOLD[item]}

    assert wrong(1, 0) == wrong(1, 0)
    for other in (wrong(2, 0), wrong(1, 1)):
        overlap = len(wrong(1, 0) & other)  # independent halves of 2,000 share a quarter
        assert abs(overlap - COUNT / 4) < 5 * math.sqrt(COUNT * 3 / 16)


def test_the_ends_of_the_noise():
    never, always = (make_labeler(f"noisy:{p}", GOLD, SIZES, 0) for p in (0, 1))
    asked = [purchase(item) for item in GOLD]
    assert all(index == GOLD[key[0]] for key, index in answered(never, *asked).items())
    assert all(index != GOLD[key[0]] for key, index in answered(always, *asked).items())
    alone = make_labeler("noisy:1", {"a": 0}, {"a": 1}, 0)
    assert list(answered(alone, purchase("a")).values()) == [0]
