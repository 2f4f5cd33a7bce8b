"""The table of the paper's claims is made from the records, or not at all."""

from __future__ import annotations

import pytest

from stacksl.errors import DataError
from stacksl_lab import pages as headline
from stacksl_lab.studies import LABORATORY
from stacksl_lab.study.rows import Row


def test_a_number_stands_with_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = headline.Claim(
        "it rises", "by {toy|a, b / c|height|2}, from {toy|a|height}", "yes", "toy"
    )
    monkeypatch.setattr(headline, "CLAIMS", (claim,))
    rows = [Row("toy", "a, b / c", "height", 1.234, 0.1, 5), Row("toy", "a", "height", 0.5)]
    line = headline.headline({"toy": rows}).splitlines()[-1]
    # t(4) at 97.5% is 2.776.
    assert line == "| it rises | by 1.23 ± 0.28, from 0.5000 ([toy](toy.md)) | yes |"


@pytest.mark.parametrize(
    "rows", [[], [Row("toy", "a", "height", None)], [Row("toy", "b", "height", 1)]]
)
def test_a_number_that_is_not_there_is_named(rows: list[Row], monkeypatch) -> None:
    monkeypatch.setattr(headline, "CLAIMS", (headline.Claim("", "{toy|a|height}", "", "toy"),))
    with pytest.raises(DataError, match="'toy' has no number 'height' of the row 'a'"):
        headline.headline({"toy": rows})


def test_each_claim_leads_to_a_study() -> None:
    assert {claim.study for claim in headline.CLAIMS} <= set(LABORATORY)
