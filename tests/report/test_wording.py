import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.report import figures, sentences, wording
from stacksl.report.quality import Calibration


@pytest.mark.parametrize("module", [wording, figures])
def test_examples_in_the_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


@given(st.integers(0, 10**15))
def test_money_says_every_micro_unit(micro):
    said = wording.money(micro)
    whole, parts = said.removeprefix("$").replace(",", "").split(".")
    assert int(whole) * 1_000_000 + int(parts.ljust(6, "0")) == micro
    assert 2 <= len(parts) <= 6


@given(st.floats(1e-4, 1e14) | st.floats(-1e14, -1e-4))
def test_a_number_is_said_to_three_figures(value):
    said = float(wording.number(value).replace(",", ""))
    assert said == pytest.approx(value, rel=5.1e-3)


@given(st.text(), st.integers(8, 300))
def test_an_excerpt_is_one_short_line_of_characters_that_can_be_written(text, length):
    said = wording.excerpt(text, length)
    said.encode("utf-8")
    assert len(said) <= length
    assert "\n" not in said


def test_a_huge_prompt_is_cut_without_being_walked_through():
    assert wording.excerpt("word " * 4_000_000, 40).endswith("…")


@pytest.mark.parametrize(
    ("sure", "right", "words"),
    [
        (0.66, 0.91, "it is 66.0% sure and right in 91.0%: it is too modest."),
        (0.95, 0.80, "it is 95.0% sure and right in 80.0%: it is too sure."),
        (0.85, 0.86, "it is 85.0% sure and right in 86.0%: that agrees."),
    ],
)
def test_the_direction_of_an_error_is_told(sure: float, right: float, words: str) -> None:
    assert sentences.modesty(Calibration(0.1, sure, right, 20)).endswith(words)


def test_a_small_p_value_is_not_said_to_be_zero() -> None:
    assert "(one-sided p < 0.001)" in sentences.compared(True, 1e-9, 1e-9, "a", "b")
    assert "(one-sided p = 0.001)" in sentences.compared(True, 0.0009, 0.0009, "a", "b")
    assert "(one-sided p from 0.002 to 0.261)" in sentences.compared(None, 0.002, 0.261, "a", "b")
