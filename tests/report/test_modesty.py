"""Which way a model's confidence errs, in words."""

from __future__ import annotations

import pytest

from stacksl.report.quality import Calibration, CalibrationBin
from stacksl.report.sentences import modesty


@pytest.mark.parametrize(
    ("sure", "right", "words"),
    [
        (0.66, 0.91, "it is 66% sure and right in 91%: it is too modest."),
        (0.95, 0.80, "it is 95% sure and right in 80%: it is too sure."),
        (0.85, 0.86, "it is 85% sure and right in 86%: that agrees."),
    ],
)
def test_the_direction_of_an_error_is_told(sure: float, right: float, words: str) -> None:
    bins = (
        CalibrationBin(sure - 0.05, right - 0.1, 10),
        CalibrationBin(sure + 0.05, right + 0.1, 10),
    )
    assert modesty(Calibration(bins, 0.1, 20)).endswith(words)
