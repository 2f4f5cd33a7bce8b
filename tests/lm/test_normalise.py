"""The four scores, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl.lm import NORMALISATIONS, TokenItem, normalised
from stacksl.lm.scoring.normalise import own_temperature

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")

ROW = TokenItem("q", (1,), ((2, 3, 4), (5,)), (12, 3))
SUMS = [torch.tensor([-6.0, -3.0])]
ALONE = [torch.tensor([-9.0, -4.0])]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_mean", [-2.0, -3.0]),
        ("sum", [-6.0, -3.0]),
        ("char_mean", [-0.5, -1.0]),
        ("pmi", [3.0, 1.0]),
    ],
)
def test_each_kind_is_its_formula(kind: Any, expected: list[float]) -> None:
    assert normalised(SUMS, [ROW], kind, alone=ALONE)[0].tolist() == expected
    half = normalised(SUMS, [ROW], kind, alone=ALONE, temperature=0.5)[0].tolist()
    assert half == [2 * value for value in expected]
    assert kind in NORMALISATIONS


def test_gradients_pass_through() -> None:
    sums = torch.tensor([-6.0, -3.0], requires_grad=True)
    normalised([sums], [ROW], "token_mean", temperature=2.0)[0].sum().backward()
    assert sums.grad.tolist() == pytest.approx([1 / 6, 1 / 2])


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(SettingsError, match="finite number > 0"):
        normalised(SUMS, [ROW], temperature=temperature)


def test_pmi_needs_the_options_alone_and_names_are_checked() -> None:
    with pytest.raises(SettingsError, match="give `alone`"):
        normalised(SUMS, [ROW], "pmi")
    with pytest.raises(SettingsError, match="did you mean 'token_mean'"):
        normalised(SUMS, [ROW], "tokenmean")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", 1.0),
        ("pmi", 1.0),
        ("token_mean", (1 / 3 + 1 + 1 / 2) / 3),
        ("char_mean", (1 / 12 + 1 / 3 + 1 / 4) / 3),
    ],
)
def test_the_own_temperature_is_the_mean_share_of_one_token(kind: Any, expected: float) -> None:
    other = TokenItem("p", (1,), ((2, 3),), (4,))
    assert own_temperature(kind, [ROW, other]) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("kind", ["token_mean", "char_mean"])
def test_options_of_one_length_score_their_sums_at_the_own_temperature(kind: Any) -> None:
    row = TokenItem("q", (1,), ((2, 3, 4), (5, 6, 7)), (9, 9))
    scores = normalised(SUMS, [row], kind, temperature=own_temperature(kind, [row]))
    assert scores[0].tolist() == pytest.approx(SUMS[0].tolist(), rel=1e-6)


def test_the_own_temperature_needs_items_and_a_known_name() -> None:
    assert own_temperature("sum", []) == 1.0
    with pytest.raises(SettingsError, match="got no items"):
        own_temperature("token_mean", [])
    with pytest.raises(SettingsError, match="did you mean 'char_mean'"):
        own_temperature("charmean", [ROW])  # type: ignore[arg-type]
