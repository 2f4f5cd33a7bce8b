"""What a user may write as a budget, and what it comes to."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.errors import SettingsError
from stacksl.runs.settings.budget import MICRO, Budget, parse_budget, raised_budget
from stacksl.runs.settings.resolve import resolve


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("0.1", 200), (0.1, 200), ("10%", 200), (" 10 % ".replace(" ", ""), 200), ("500", 500),
        (500, 500), ("all", 2001), ("ALL", 2001),
        ("100%", 2001), ("2", 2), ("2001", 2001), ("0.29", 580), ("0.0005", 1), ("2.0", 2),
        ("0.999999", 2000), ("1,200", 1200),
    ],
)  # fmt: skip
def test_a_budget_of_labels(text: object, labels: int) -> None:
    assert parse_budget(text, 2001, None) == Budget(labels, None, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0.1", "5", "$4", "100%"])
def test_without_an_item_to_ask_about_a_budget_is_all_or_none(text: str) -> None:
    with pytest.raises(SettingsError, match="no item is left .*, as you own labels of all: give"):
        parse_budget(text, 0, "1")
    assert parse_budget("all", 0, "1").labels == 0


@pytest.mark.parametrize("one", ["1", 1, "1.0", 1.0])
def test_a_budget_of_1_is_refused_since_it_may_mean_two_things(one: object) -> None:
    with pytest.raises(SettingsError, match="may mean one label or all of them: give 'all'"):
        parse_budget(one, 2001, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("0", "above 0"), ("-5", "above 0"), ("-0.1", "above 0"), ("0%", "above 0"),
        ("1.5", "not '1.5'"), ("150%", "not '150%'"), ("abc", "not 'abc'"), ("", "not ''"),
        ("nan", "not 'nan'"), ("inf", "not 'inf'"), ("1e999999999", "not '1e999999999'"),
        ("2002", "above the 2001 usable items"), ("$40", "needs --price"),
        ("+100", "must be a fraction such as 0.1 or 10%, a count from 2"), ("+$100", "not '+$100'"),
        ("1,20", "the budget"), ("1,2000", "the budget"),
        ("0.0004", "the smallest fraction that works is 0.0005"), ("%", "not '%'"),
    ],
)  # fmt: skip
def test_a_budget_that_is_none(text: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_budget(text, 2001, None)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.decimals("0.000001", "0.999999", places=6).filter(lambda d: d > 0), st.integers(1, 10**6))
def test_a_fraction_is_exact_and_rounded_down(fraction: Decimal, items: int) -> None:
    wanted = Fraction(fraction) * items // 1
    if wanted:
        assert parse_budget(str(fraction), items, None).labels == wanted
        assert parse_budget(f"{fraction * 100}%", items, None).labels == wanted
    else:
        with pytest.raises(SettingsError):
            parse_budget(str(fraction), items, None)


@given(
    st.decimals("0.01", "10000", places=2),
    st.decimals("0.01", "100", places=2),
    st.integers(1, 9999),
)
def test_money_never_buys_more_than_it_can_pay(money: Decimal, price: Decimal, items: int) -> None:
    affordable = min(items, int(money / price) if money % price else int(money // price))
    if affordable < 1:
        with pytest.raises(SettingsError):
            parse_budget(f"${money}", items, price)
        return
    budget = parse_budget(f"${money}", items, price)
    assert budget.labels == affordable
    assert budget.money == money * MICRO
    assert budget.cost <= budget.money


@given(st.text(max_size=12))
def test_any_text_is_a_budget_or_a_sentence(text: str) -> None:
    with suppress(SettingsError):
        assert 1 <= parse_budget(text, 100, "0.5").labels <= 100


@pytest.mark.parametrize(
    ("text", "price", "hint"),
    [
        ("$1", "2", "buys no label"), ("$-4", "2", "buys no label"), ("$x", "2", "not '$x'"),
        ("$40", "0", "above 0"), ("10", "-1", "at least 0"), ("10", "0.0000004", "six decimals"),
        ("10", "cheap", "such as 2.50"), ("$1,5", "1.50", "the budget"),
        ("$1e99999999", "2", "not '$1e99999999'"), ("10", "1e99999999", "such as 2.50"),
    ],
)  # fmt: skip
def test_money_that_makes_no_sense(text: str, price: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=None) as caught:
        parse_budget(text, 50, price)
    assert hint in str(caught.value)
    assert parse_budget("$1,338.00", 5_000, "1.50") == parse_budget("$1338", 5_000, "1.50")


@pytest.mark.parametrize("settings", [{}, {"labeler": "file", "annotators": "anna,ben"}])
def test_a_price_is_one_for_all(settings: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="such as 2.50, not 'anna=3,ben=2'"):
        resolve({"price": "anna=3,ben=2"} | settings)


@pytest.mark.parametrize(
    "text", ["+", "+$", "+0", "+-5", "+10%", "+all", "+1.5", "+$0", "+$300", "++5", "+1,5"]
)
def test_a_plus_takes_labels_or_money_of_a_run_with_a_price(text: str) -> None:
    with pytest.raises(SettingsError, match=r"such as \+100 or \+'\$300', not '\+"):
        raised_budget(text, 200, None)
