"""The few lines that the README shows are made from the records, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.errors import DataError
from stacksl.lab.pages import refreshed
from stacksl.lab.streams import LABORATORY
from stacksl.lab.study import headline
from stacksl.lab.study.records import read_records
from stacksl.lab.study.rows import Row

ROOT = Path(__file__).resolve().parents[3]


def test_a_number_stands_with_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = headline.Claim(
        "it rises", "by {toy|a, b / c|height|2}, from {toy|a|height}", "yes", "toy"
    )
    monkeypatch.setattr(headline, "CLAIMS", (claim,))
    rows = [Row("toy", "a, b / c", "height", 1.234, 0.1, 5), Row("toy", "a", "height", 0.5)]
    line = headline.headline({"toy": rows}).splitlines()[-1]
    # t(4) at 97.5 % is 2.776.
    assert line == "| it rises | by 1.23 ± 0.28, from 0.5000 ([toy](docs/studies/toy.md)) | yes |"


@pytest.mark.parametrize(
    "rows", [[], [Row("toy", "a", "height", None)], [Row("toy", "b", "height", 1)]]
)
def test_a_number_that_is_not_there_is_named(
    rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headline, "CLAIMS", (headline.Claim("", "{toy|a|height}", "", "toy"),))
    with pytest.raises(DataError, match="'toy' has no number 'height' of the row 'a'"):
        headline.headline({"toy": rows})


def test_the_readmes_table_is_made_from_the_records() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- study: laboratory -->" in page
    assert refreshed(page, read_records(ROOT / "docs/studies/results")) == page


def test_each_claim_leads_to_a_study() -> None:
    assert {claim.study for claim in headline.CLAIMS} <= set(LABORATORY)
