"""What a look shows, how large it is and when it is taken: the arithmetic of a promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from stacksl.models.promise import (
    LOOKS,
    MODEL,
    Doubled,
    Stage,
    allowed_wrong,
    at_most,
    audit_size,
    calibrated_wrong,
    left_wrong,
    look_now,
    most_wrong,
    planned,
    step_of,
)


@given(rows=st.integers(40, 120), share=st.floats(0.0, 0.4), n=st.integers(10, 40))
def test_an_audit_shows_too_few_wrong_rows_as_rarely_as_the_level(
    rows: int, share: float, n: int
) -> None:
    """Over all draws of n rows: how often fewer are said to be left than there are."""
    bad = round(share * rows)
    broken = sum(
        hypergeom.pmf(found, rows, bad, n)
        for found in range(min(n, bad) + 1)
        if bad - found > left_wrong(found, n, rows, MODEL)
    )
    assert broken <= MODEL / LOOKS + 1e-9


@given(st.data())
def test_the_chance_of_few_wrong_rows_is_hypergeometric(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 1_000_000))
    bad, n = data.draw(st.integers(0, rows)), data.draw(st.integers(0, min(rows, 1_000)))
    wrong = data.draw(st.integers(0, min(n, 30)))
    expected = pytest.approx(hypergeom.cdf(wrong, rows, bad, n), rel=1e-6, abs=1e-12)
    assert at_most(wrong, rows, bad, n) == expected


def test_the_bound_is_the_last_number_that_explains_the_audit() -> None:
    for bad, n, rows in ((0, 142, 100_000), (2, 300, 5_000), (11, 700, 20_000), (3, 20, 20)):
        most = most_wrong(bad, n, rows, MODEL / LOOKS)
        assert hypergeom.cdf(bad, rows, most, n) > MODEL / LOOKS
        assert most == rows - n + bad or hypergeom.cdf(bad, rows, most + 1, n) <= MODEL / LOOKS
    assert most_wrong(0, 142, 10**6, MODEL / LOOKS) < 0.03 * 10**6
    assert most_wrong(0, 141, 10**6, MODEL / LOOKS) > 0.03 * 10**6


def test_an_audit_of_the_size_is_good_enough_in_four_of_five_draws() -> None:
    rng = np.random.default_rng(0)
    for bad, rows, allowed in ((20, 2_000, 60), (60, 3_000, 150), (0, 500, 15)):
        n = audit_size(bad, rows, allowed)
        for size, good in ((n, True), (n // 2, False)):
            drawn, counts = np.unique(
                rng.hypergeometric(bad, rows - bad, size, 4_000), return_counts=True
            )
            shown = [left_wrong(int(each), size, rows, MODEL) <= allowed for each in drawn]
            assert (counts @ shown / 4_000 >= 0.78) == good
    assert audit_size(100, 1_000, 110) is None
    assert allowed_wrong(0.97, 999) == 29
    assert audit_size(4, 300, 400) == audit_size(4, 300, 300) == 30, "all rows may be wrong"


def test_people_who_err_too_often_leave_nothing_to_promise() -> None:
    assert planned(5, 1_000, 1_000, 60, 0.005) is not None
    assert planned(5, 3_000, 1_000, 120, 0.08) is None


def test_a_look_is_in_reach_where_it_can_be_paid_now_or_after_more_labels() -> None:
    """People err in 2.8% of rows; a look at 97% of 2,480 rows takes more than 960 answers."""
    stages = [Stage(500, 55.0), Stage(600, 50.0), Stage(700, 45.0), Stage(800, 40.1)]
    rows = (stages, 989, 1_491, 74)
    assert look_now(*rows, 960, errors=0.028) is None
    assert look_now(*rows, 960, errors=0.028, reach=True) is None
    assert look_now(*rows, 5_000, errors=0.028, reach=True) is not None
    wrong = (stages, 989, 1_491, 60, 1_400, 1.3)  # too many are expected now, and fewer later
    assert planned(40.1 * 1.3, 989, 1_491, 60, None) is None
    assert look_now(*wrong) is None
    assert look_now(*wrong, reach=True) is not None


def test_held_out_labels_say_how_many_rows_are_wrong() -> None:
    """Answers that are surer than they are right."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.5, 1.0, 6_000)
    said = truth**0.5  # too sure
    right = (rng.random(6_000) < truth).astype(float)
    found = calibrated_wrong(said[:3_000], right[:3_000], np.ones(3_000), said[3_000:])
    assert found == pytest.approx((1 - right[3_000:]).sum(), rel=0.1)
    assert (1 - said[3_000:]).sum() < 0.6 * found
    given = said[:3_000], right[:3_000], np.ones(3_000)
    both = calibrated_wrong(*given, np.stack([said[3_000:], said[3_000:] ** 2]))
    assert both == pytest.approx((found + calibrated_wrong(*given, said[3_000:] ** 2)) / 2)


def test_errors_of_a_model_that_is_unsure_are_not_taken_for_wrong_labels() -> None:
    """The least sure rows are bought, and as many are wrong as it says; few of the rest are."""
    rng = np.random.default_rng(2)
    bought, rest = rng.uniform(0.3, 0.8, 700), rng.uniform(0.8, 0.998, 2_500)
    right = (rng.random(700) < bought).astype(float)
    found = calibrated_wrong(bought, right, np.ones(700), rest)
    assert found == pytest.approx((1 - rest).sum(), rel=0.3)


@pytest.mark.parametrize("errors", [0.0, 0.03])
def test_wrong_labels_alone_do_not_make_the_sure_ones_wrong(errors: float) -> None:
    """The least sure labels of a column, and half as many of the others flagged as are wrong."""
    rng = np.random.default_rng(3)
    right = rng.permutation(2_000) < 1_700
    margins = rng.normal(np.where(right, 2.5, -1.5))
    sure = 1 / (1 + np.exp(2 - 0.6 * margins))  # a head that is far less sure than it is right
    order = np.argsort(sure)
    for asked, low, high in ((150, 0.6, 1.6), (900, 0.0, 10.0)):
        rows, rest = order[:asked], order[asked:]
        wrong = (~right[rest]).sum()
        given = sure[rows], right[rows].astype(float), np.ones(asked), sure[rest], errors
        assert low * wrong <= calibrated_wrong(*given, wrong // 2) <= high * wrong + 10
        assert asked > 150 or calibrated_wrong(*given) > 5 * wrong


@pytest.mark.parametrize("errors", [0.05, 0.1])
def test_peoples_errors_are_not_the_models(errors: float) -> None:
    """A model that learned wrong labels is never surer than 1 − ε; its held-out rows err."""
    rng = np.random.default_rng(1)
    truth = 1 - rng.exponential(0.05, 2_000).clip(0, 0.5)
    right = (rng.random(2_000) < truth).astype(float)
    labels = np.where(rng.random(2_000) < errors, 1 - right, right)
    given = ((1 - errors) * truth[:500], labels[:500], np.ones(500), (1 - errors) * truth[500:])
    wrong = (1 - right[500:]).sum()
    blind = calibrated_wrong(*given)
    guessed = calibrated_wrong(*given, Doubled().rate)
    found = calibrated_wrong(*given, Doubled(400 * errors, 400).rate)
    assert blind > 1.5 * wrong
    assert abs(found - wrong) < abs(guessed - wrong) < abs(blind - wrong)
    assert found == pytest.approx(wrong, rel=0.35)


def test_a_look_is_taken_while_it_can_be_paid() -> None:
    """A cheaper one is expected later, but if the forecast is too good none can be paid then."""
    falling = [Stage(200, 400.0), Stage(300, 200.0), Stage(400, 100.0), Stage(500, 50.0)]
    rows = (falling, 500, 2_500, 90)
    assert look_now(*rows, 2_000) is None
    now = planned(50, 500, 2_500, 90, None)
    assert now is not None
    assert look_now(*rows, now.answers + 2 * step_of(3_000)) is None
    assert look_now(*rows, now.answers + 2 * step_of(3_000) - 1) == now
    later = look_now(*rows, 2_000, reach=True, looked=True, batch=200)
    assert later == now._replace(before=200), "paid for even if the model stays as it is"
    assert later.labels == now.answers + 200
    assert now._replace(sample=10).labels * 9 // 10 >= 2 * now.audit + 10
    assert look_now(*rows, 100, reach=True, looked=True) is None


def test_a_look_waits_while_labels_remove_more_errors_than_they_cost() -> None:
    falling = [Stage(100, 400.0), Stage(200, 200.0), Stage(300, 100.0)]
    flat = [Stage(900, 31.0), Stage(1_000, 30.0), Stage(1_100, 29.0)]
    assert look_now(falling, 300, 2_700, 90, 2_000) is None
    found = look_now(flat, 1_100, 1_900, 90, 2_000)
    assert found.sample == 0
    assert look_now(flat, 1_100, 1_900, 90, 50) is None, "not to be paid"
    assert look_now(flat[:2], 1_000, 2_000, 90, 2_000) is None
    of_people = look_now(flat, 1_100, 1_900, 90, 2_000, errors=0.01)
    assert of_people.sample > 0
