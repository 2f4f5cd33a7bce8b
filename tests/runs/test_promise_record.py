"""What the recorded benchmarks of promises show, and the page that says it."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.models.promise import RANGE, Doubled, first_look

from ..benchmarks import ROOT, benchmark, record


def test_a_first_look_and_a_promise_take_what_is_named_in_most_benchmarks() -> None:
    rows = [row for row in record("promises")["rows"] if row["arm"] == "product"]
    rows += record("promised_columns")["rows"]
    shares = []
    for row in rows:
        first = first_look(row["right"], row["rows"], several=row["errors"] > 0)
        assert first is not None
        shares.append(row["labels"] / first)
    enough = [sum(share <= end for share in shares) for end in RANGE]
    assert enough == [20, 75], "fewer than half, and more than nine of ten"
    assert len(shares) == 78
    assert max(shares) < 3.25


def test_errors_that_no_doubt_shows_break_a_promise_on_a_column_as_rarely_as_the_level() -> None:
    """Some labels of a column are wrong by no word of the texts; the audits find out."""
    module, rng, rows, draws = benchmark("promises"), np.random.default_rng(0), 800, 200
    gold = rng.integers(0, 4, rows)
    h = (2.0 * np.eye(4)[gold] + rng.normal(size=(rows, 4))).astype(np.float32)
    column = (gold + (rng.random(rows) < 0.1) * rng.integers(1, 4, rows)) % 4
    gold = (gold + (rng.random(rows) < 0.1)) % 4
    stages = list(module.mended(SharedBlock(h, 4), np.arange(rows), column, gold, 400, 50))
    held, rest = zip(*((stage.held, stage.rest) for stage, _ in stages), strict=True)
    last = np.setdiff1d(np.arange(rows), stages[-1][1])
    models = {
        "labels": np.array([stage.labels for stage, _ in stages]),
        "predicted": np.tile(column, (len(stages), 1)),
        "held": np.concatenate(held, axis=1),
        "rest": np.concatenate(rest),
        "flagged": np.array([stage.flagged for stage, _ in stages]),
        "bought": np.array(stages[-1][1]),
        "gold": gold,
        "people": np.tile(gold, (4, 1)),
    }
    expected = module.expected_at(models, 0.0)
    hopeful = expected(len(stages) - 1, Doubled())
    assert (column != gold)[last].sum() > 2 * hopeful  # so that looks come too early
    ends = [module.delivered(models, expected, 0.0, 0.93, rng) for _ in range(draws)]
    promised = [end.broken for end in ends if end.broken is not None]
    assert draws > len(promised) > 5
    assert sum(promised) <= 0.05 * draws


def test_the_page_has_the_table_of_the_benchmark() -> None:
    module, rows = benchmark("promises"), record("promises")["rows"]
    page = (ROOT / "docs/promise.md").read_text()
    assert module.table_of(rows) in page
    broken, made = (sum(row[key] for row in rows) for key in ("broken", "draws"))
    made -= sum(row["refused"] for row in rows)
    assert f"Of {made:,} promises none was broken" in page
    assert broken == 0
    rows = record("promised_columns")["rows"]
    assert module.columns_table(rows) in page
    assert module.summary(rows).startswith("0 of 26,715 promises broken")
    assert "Of 26,715 promises none was broken" in " ".join(page.split())
