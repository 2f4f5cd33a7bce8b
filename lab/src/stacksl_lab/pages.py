"""Tables on the pages of the documentation, and the results in a few lines, from records.

`python -m stacksl_lab.pages DIR` writes the tables in DIR/*.md from the records in DIR/results. A
record is what `stacksl-lab reproduce STUDY --json` prints, kept as `results/NAME.json`; its table
is in a page between `<!-- study: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stacksl.errors import DataError
from stacksl_lab.pools.tables import COMPARISON, layout
from stacksl_lab.studies import STUDIES
from stacksl_lab.study.records import read_records
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import between, estimate, markdown

HEADLINE = "laboratory"
"""The name under which a page shows what `headline` makes of all records."""

_BLOCK = re.compile(r"<!-- study: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def _table_of(rows: Sequence[Row]) -> str:
    if rows and rows[0].study == COMPARISON:
        return layout(rows)
    study = STUDIES.get(rows[0].study) if rows else None
    return markdown(rows) if study is None else study.as_markdown(rows)


def refreshed(text: str, records: Mapping[str, Sequence[Row]]) -> str:
    """`text` with its tables as the records have them.

    A table is between `<!-- study: NAME -->` and `<!-- end -->`, NAME being that of a record,
    or `laboratory`, which all records make.

    Raises:
        DataError: there is no such record.
    """

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name == HEADLINE:
            return f"<!-- study: {name} -->\n{headline(records)}\n<!-- end -->"
        if name not in records:
            raise DataError(f"a page shows the record '{name}', and there is none: make it again")
        rows = records[name]
        return f"<!-- study: {name} -->\n{_table_of(rows)}\n<!-- end -->"

    return _BLOCK.sub(table, text)


_FIELD = re.compile(r"\{([^|{}]+)\|([^|{}]+)\|([^|{}]+?)(?:\|(\d+))?\}")


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the table.

    Attributes:
        claim: what the paper says.
        measured: our sentence; {study|row|metric} is replaced by a record's number with its 95%
            interval, the row's own where it has one, {study|row|metric|2} by two decimals of it.
        verdict: what to make of it.
        study: whose page says more.
    """

    claim: str
    measured: str
    verdict: str
    study: str


CLAIMS: Sequence[Claim] = (
    Claim(
        "With 10% of the labels LLF has nearly the regret of full information",
        "{regret|LLF, β = 0.1|regret_per_round|5} a round, full {regret|Full|regret_per_round|5};"
        " the first labels, unseen: {regret|first, β = 0.1|regret_per_round|5}",
        "the number holds; at ridge 1 LLF *is* `first`",
        "regret",
    ),
    Claim(
        "Random querying is ten times worse",
        "{regret|Random, β = 0.1 / first|over_first|1} times; evenly spaced labels"
        " {regret|uniform, β = 0.1 / first|over_first|1}",
        "late labels cost, not random ones",
        "regret",
    ),
    Claim(
        "Regret grows as √(dB) under a budget (Theorem 2)",
        "slope in B {rates|pairs: first, slope in B|slope|2} (printed 0.5), in T"
        " {rates|pairs: first, slope in T|slope|2} at fixed B (printed 0.07) and"
        " {rates|pairs: first, slope in T at B = T/100|slope|2} at B = T/100 (printed 0.57), in d"
        " {rates|corners: first, slope in d|slope|2}",
        "not in B and d; dT/√B holds ([proof](../theory.md))",
        "rates",
    ),
    Claim(
        "LLF buys labels where they matter",
        "at ridge 1 over 28 streams and budgets {gates|llf|geometric_mean|1} times the best gate's"
        " regret, at worst {gates|llf|worst|0}; `information` {gates|information|geometric_mean|2}"
        " and {gates|information|worst|2}",
        "a gate with a price does; LLF with a small ridge in part ([llf](llf.md))",
        "gates",
    ),
    Claim(
        "θ* is in the confidence set while V grows on every round",
        "in a share of {coverage|ridge, V on all rounds, first, β = 0.1|covered_time|2} of the"
        " rounds; with V on labels"
        " {coverage|ridge, V on labeled rounds, first, β = 0.1|covered_time|2}",
        "V takes labels alone",
        "coverage",
    ),
    Claim(
        "Clipping at 5 nats truncates loss spikes",
        "by definition; before the cut the largest changes by"
        " {clipping|2% wrong, η = 1, ρ = 5, gradient 0 above it|max_loss_change|1} nats, the last"
        " model's regret by"
        " {clipping|2% wrong, η = 1, ρ = 5, gradient 0 above it|final_regret_change|4}",
        "helps against wrong labels",
        "clipping",
    ),
    Claim(
        "A gradient step does what the theorems' estimate does",
        "with rates tuned {learners|sgd, rate tuned · 0.1 / newton|regret_per_round_over_newton|2}"
        " (constant), {learners|sgd, decaying rate tuned · 0.1 / newton"
        "|regret_per_round_over_newton|2} (decaying) and"
        " {learners|sgd averaged, rate tuned · 0.1 / newton|regret_per_round_over_newton|2}"
        " (averaged) times the regret of online Newton, the exact fit"
        " {learners|exact maximum likelihood · 0.1 / newton|regret_per_round_over_newton|2}",
        "Newton does",
        "learners",
    ),
)
"""Only what one number can settle; the pages have the rest."""


def headline(records: Mapping[str, Sequence[Row]]) -> str:
    """The claims as a table, from the records of the studies by their names.

    Raises:
        DataError: a claim names a number that no record has.
    """
    lines = ["| the paper | measured | verdict |", "|---|---|---|"]
    for claim in CLAIMS:
        measured = _FIELD.sub(lambda field: _number(field, records), claim.measured)
        page = f"[{claim.study}]({claim.study}.md)"
        lines.append(f"| {claim.claim} | {measured} ({page}) | {claim.verdict} |")
    return "\n".join(lines)


def _number(field: re.Match[str], records: Mapping[str, Sequence[Row]]) -> str:
    study, name, metric, decimals = field.groups()
    for row in records.get(study, ()):
        if (row.row, row.metric) == (name, metric) and row.value is not None:
            digits = f".{decimals or 4}f"
            if "interval" in row.settings:
                return between(row, digits=digits)
            return estimate(row, digits)
    raise DataError(f"the record of '{study}' has no number '{metric}' of the row '{name}'")


def main(folder: Path) -> None:
    """Write every page of `folder` that is not up to date."""
    records = read_records(folder / "results")
    for page in sorted(folder.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = refreshed(before, records)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
