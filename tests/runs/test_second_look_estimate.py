"""What a second look says of an accuracy: which rows are asked, and the estimate from them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.ledger.purchases import settled
from stacksl.models.metrics import wilson
from stacksl.models.second_look import (
    corrected,
    estimated,
    looked,
    next_rows,
    reserved,
    split,
)
from stacksl.report.quality import SecondLook

A, B, C, D = range(4)
NONE, TORN = "none", "ambiguous"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], None),
        ([A], None),
        ([A, A], A),
        ([A, B], None),
        ([A, B, B], B),
        ([A, B, C, A], A),
        ([A, B, C, D], None),
        ([NONE, A, NONE], NONE),
        ([TORN, TORN], TORN),
    ],
)
def test_two_people_who_agree_settle_a_row(answers: list[Any], said: Any) -> None:
    assert settled(answers) == said


def test_rows_are_split_by_what_the_first_person_said() -> None:
    order = [f"r{n}" for n in range(14)]
    predicted = dict.fromkeys(order, 0)
    answers: dict[str, list[Any]] = {item: [A] for item in order[:9]}
    answers |= {"r9": [B], "r10": [NONE], "r11": [TORN], "r12": []}
    agreeing, sampled, differing = split(order, predicted, answers, ())
    assert agreeing == order[:9]
    assert sampled == agreeing, "ten at least, all where there are fewer"
    assert differing == ["r9", "r10"]
    _, kept, _ = split(order, predicted, answers, [f"r{n}" for n in (8, 3, 1, 2, 7)])
    assert kept == ["r1", "r2", "r3", "r7", "r8"], "no further row once it has begun"
    assert split(order, predicted, answers, ["r5"])[1] == agreeing, "one is no sample"
    for count, size in ((10, 10), (11, 10), (50, 10), (51, 11), (200, 40)):
        many = [str(n) for n in range(count)]
        rows = split(many, dict.fromkeys(many, 0), {item: [A] for item in many}, ())
        assert rows == (many, many[:size], [])


def rows(sampled: int, differing: int) -> tuple[Any, dict[str, list[Any]], dict[str, int]]:
    names = [f"s{n}" for n in range(sampled)], [f"d{n}" for n in range(differing)]
    answers = {item: [A] for item in names[0]} | {item: [B] for item in names[1]}
    return (names[0], names[0], names[1]), answers, dict.fromkeys(answers, 2)


def test_rows_are_asked_as_far_as_labels_are_kept() -> None:
    parts, answers, free = rows(10, 8)
    assert next_rows(parts, answers, free, 40) == [*parts[1], *parts[2]]
    some = next_rows(parts, answers, free, 15)
    assert some == [*parts[1], *parts[2][:4]], "one is kept for ten of the sample"
    assert next_rows(parts, answers, free, 0) == []
    assert next_rows(parts, answers, free, -3) == []
    two = dict.fromkeys(free, 1)
    assert len(next_rows(parts, answers, two, 15)) == 15, "nobody could be asked after them"
    answers["s3"].append(B)
    assert next_rows(parts, answers, dict.fromkeys(free, 1), 1) == ["s3"], "divided ones first"
    assert next_rows(parts, answers, free, 40, awaited=free) == []
    answers["s3"] += [C, D]
    assert "s3" not in next_rows(parts, answers, free, 40), "four answers at most"
    answers["d0"].append(B)
    assert "d0" not in next_rows(parts, answers, free, 40), "it is settled"
    assert next_rows(parts, answers, dict.fromkeys(free, 0), 40) == []


def test_what_was_found_is_counted() -> None:
    order = [f"r{n}" for n in range(10)]
    answers: dict[str, list[Any]] = {
        "r0": [A, A], "r1": [A, B, B], "r2": [A, B], "r3": [A, TORN, TORN], "r4": [A],
        "r5": [B, A, A], "r6": [B, B], "r7": [B, C], "r8": [NONE, NONE], "r9": [TORN],
    }  # fmt: skip
    predicted = dict.fromkeys(order, 0)
    parts = order[:5], order[:4], order[5:9]
    found = looked(parts, predicted, answers)
    accuracy, (_, low, high) = estimated(found, 1), estimated(found, 2)
    assert high - low > 0.5, "so few rows say nothing of people's errors"
    # all that agree but the 3 of 4 not told right by two, and all that two do not call wrong
    assert found.ends == pytest.approx((0.6 - 0.5 * 3 / 4, 0.8 - 0.5 * 1 / 4))
    assert replace(found, ends=(0.0, 1.0)) == SecondLook(
        n=10, agreeing=5, sampled=4, wrong=1, sampled_open=2,
        differing=4, model_right=1, first_right=2, differing_open=1,
        accuracy=accuracy, errors=None,
    )  # fmt: skip


def test_a_refitted_model_is_measured_by_the_rows_that_were_judged() -> None:
    order = [f"r{n}" for n in range(100)]
    answers: dict[str, list[Any]] = {item: [A] for item in order}
    answers |= {item: [A, A] for item in order[:16]} | {item: [B, B] for item in order[80:]}
    answers |= {"r0": [A, B, B], "r1": [A, A], "r2": [A, B, B], "r3": [A, B]}
    parts = order[:80], order[:16], order[80:]
    judged = dict.fromkeys(order, 0)
    then = looked(parts, judged, answers)
    assert looked(parts, judged, answers, judged=judged) == then
    right, low, high = estimated(then, then.first_right)
    assert then.errors == (1 - right, 1 - high, 1 - low)
    # r0 is mended, r1 made wrong; nobody looked at r20 to r23; r80 and r81 are mended
    now = judged | dict.fromkeys(["r0", "r1", *order[20:24], "r80", "r81"], 1)
    found = looked(parts, now, answers, judged=judged)
    assert replace(found, accuracy=then.accuracy, ends=then.ends) == then
    p, r, w = (80 - 6 + 2) / 100, (1 + 0.5 - 1) / 16, 0.8
    assert found.accuracy[0] == pytest.approx(p - w * r)
    r = (1 + 1 - 1) / 16  # the low end, where the open row is wrong
    spread = (1 + 1 + 1) / 16 - r * r
    e = p - w * r
    variance = e * (1 - e) / 100 + w**2 * spread / 16 * (1 - 16 / 80)
    number = e * (1 - e) / variance
    assert found.accuracy[1] == pytest.approx(wilson(e * number, number)[0])
    assert found.accuracy[0] != pytest.approx(then.accuracy[0])


def found_at(**more: int) -> SecondLook:
    """A second look at 100 rows, of which 80 agree."""
    usual = {"n": 100, "agreeing": 80, "sampled": 16, "wrong": 1, "sampled_open": 0}
    usual |= {"differing": 20, "model_right": 5, "first_right": 13, "differing_open": 0}
    return SecondLook(**{**usual, **more})


def test_the_estimate_is_the_formula_of_the_page() -> None:
    p, share, r = (80 + 5) / 100, 0.8, 1 / 16
    e = p - share * r
    variance = e * (1 - e) / 100 + share**2 * r * (1 - r) / 16 * (1 - 16 / 80)
    number = e * (1 - e) / variance
    assert 5 < number < 100
    assert estimated(found_at(), 5) == pytest.approx((e, *wilson(e * number, number)))


def test_open_rows_are_wrong_at_the_low_end_and_right_at_the_high_end() -> None:
    still = estimated(found_at(sampled_open=2, differing_open=4), 5)
    worst, best = estimated(found_at(wrong=3), 5), estimated(found_at(), 9)
    assert still[1] == pytest.approx(worst[1])
    assert still[2] == pytest.approx(best[2])
    assert worst[0] < still[0] < best[0]


def test_with_nothing_found_it_is_wilsons() -> None:
    found = found_at(wrong=0)
    assert estimated(found, 0)[1:] == pytest.approx(wilson(80, 100))
    assert estimated(found, 20) == pytest.approx((1.0, *wilson(100, 100)))


counts = st.integers(0, 60)


@given(agreeing=counts, differing=counts, unknown=st.integers(0, 9), data=st.data())
def test_an_interval_holds_its_estimate(
    agreeing: int, differing: int, unknown: int, data: st.DataObject
) -> None:
    sampled = min(agreeing, data.draw(st.integers(5, 20)))
    wrong = data.draw(st.integers(0, sampled))
    right = data.draw(st.integers(0, differing))
    found = SecondLook(
        n=agreeing + differing + unknown,
        agreeing=agreeing,
        sampled=sampled,
        wrong=wrong,
        sampled_open=data.draw(st.integers(0, sampled - wrong)),
        differing=differing,
        model_right=right,
        first_right=0,
        differing_open=data.draw(st.integers(0, differing - right)),
    )
    value, low, high = estimated(found, right)
    assert all(map(math.isfinite, (value, low, high)))
    assert -1e-9 <= low <= high <= 1 + 1e-9
    if agreeing + differing:
        assert low - 1e-9 <= value <= high + 1e-9


def test_another_first_estimate_can_be_corrected() -> None:
    """As a prediction-powered one, whose variance is smaller than that of a share."""
    found = found_at()
    value, number = corrected(0.9, 0.5 * 0.09 / 100, 100, found, 0)
    assert value == 0.9
    assert number == pytest.approx(200)
    assert corrected(0.9, 1e-9, 100, found, 0)[1] == 250
    assert corrected(0.9, 9.0, 100, found, 0)[1] == 5


def test_rows_that_all_agree_still_vary_where_people_err() -> None:
    """Of 50 rows that agree ten were asked again, and one of them is wrong."""
    found = found_at(n=50, agreeing=50, sampled=10, differing=0, model_right=0)
    value, number = corrected(1.0, 0.0, 50, found, 1)
    variance = 0.9 * 0.1 / 50 + 0.1 * 0.9 / 10 * (1 - 10 / 50)
    assert value == pytest.approx(0.9)
    assert number == pytest.approx(0.9 * 0.1 / variance)


def test_labels_are_kept_for_two_fifths_of_the_audit_and_never_for_more_than_a_share() -> None:
    assert [reserved(n, 10 * n) for n in (50, 100, 200)] == [20, 40, 80]
    assert reserved(50, 100) == 15
