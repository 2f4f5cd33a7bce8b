"""The one JSON schema of every study: a row is one metric of one row of a table.

Keys: `study, row, settings, metric, value, se, seeds, budget_fraction, asked_fraction, paper`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stacksl.errors import DataError

KEYS = (
    "study",
    "row",
    "settings",
    "metric",
    "value",
    "se",
    "seeds",
    "budget_fraction",
    "asked_fraction",
    "paper",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a table, with what it was measured under.

    Attributes:
        study, row, metric: its place.
        settings: everything that fixes it, and under `marks` what a reader must know of it.
        value: the mean over seeds; None where it was not measured.
        se: its standard error; None where there is none.
        seeds: how many seeds it is the mean of.
        budget_fraction: labels that may be bought / items in the stream; 0 for a base row.
        asked_fraction: labels bought / items in the stream, the mean over seeds.
        paper: the paper's number; None where it has none, or where the model or the data is not
            the paper's.
    """

    study: str
    row: str
    metric: str
    value: float | None
    se: float | None = None
    seeds: int = 0
    budget_fraction: float | None = None
    asked_fraction: float | None = None
    paper: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The row under the keys of the schema, in their order."""
        values = asdict(self)
        return {key: values[key] for key in KEYS}


def row_from(line: Mapping[str, Any]) -> Row:
    """The row that `to_json` gave.

    Raises:
        DataError: keys are missing or unknown.
    """
    if set(line) != set(KEYS):
        wrong = ", ".join(sorted(set(line) ^ set(KEYS)))
        raise DataError(
            f"a row of a study has the keys {', '.join(KEYS)}, and these are missing or too"
            f" many: {wrong}"
        )
    return Row(**{str(key): value for key, value in line.items()})


def pooled(values: Sequence[float], items: int | None = None) -> tuple[float, float | None]:
    """The mean of a metric over seeds and its standard error.

    Over n >= 2 seeds the error is s / sqrt(n), s the seeds' standard deviation. A single value
    that is a share of `items` has sqrt(p (1 - p) / items); any other single value has None.

    >>> pooled([0.5, 0.7])
    (0.6, 0.1)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n > 1:
        variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
        return round(mean, 12), round(math.sqrt(variance / n), 12)
    if items:
        return mean, math.sqrt(max(0.0, mean * (1 - mean)) / items)
    return mean, None


def half_width(row: Row) -> float | None:
    """The half-width of the 95% interval: t(n - 1) x se over n >= 2 seeds, 1.96 x se for one."""
    if row.se is None:
        return None
    if row.seeds < 2:
        return 1.959963984540054 * row.se
    from scipy.stats import t

    return float(t.ppf(0.975, row.seeds - 1)) * row.se
