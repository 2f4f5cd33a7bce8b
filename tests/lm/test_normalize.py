"""The four scores, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl.lm import NORMALIZATIONS, TokenItem, normalized

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
    assert normalized(SUMS, [ROW], kind, alone=ALONE)[0].tolist() == expected
    half = normalized(SUMS, [ROW], kind, alone=ALONE, temperature=0.5)[0].tolist()
    assert half == [2 * value for value in expected]
    assert kind in NORMALIZATIONS


def test_gradients_pass_through() -> None:
    sums = torch.tensor([-6.0, -3.0], requires_grad=True)
    normalized([sums], [ROW], "token_mean", temperature=2.0)[0].sum().backward()
    assert sums.grad.tolist() == pytest.approx([1 / 6, 1 / 2])
