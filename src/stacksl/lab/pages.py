"""Tables on the pages of the documentation, generated from the records of the studies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stacksl.errors import DataError
from stacksl.lab.pools.tables import COMPARISON, shown
from stacksl.lab.studies import STUDIES
from stacksl.lab.study.headline import headline
from stacksl.lab.study.rows import Row
from stacksl.lab.study.tables import markdown

HEADLINE = "laboratory"
"""The name under which a page shows `lab.headline` in place of one record."""

_BLOCK = re.compile(r"<!-- study: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def _shown_as_its_study(rows: Sequence[Row]) -> str:
    if rows and rows[0].study == COMPARISON:
        return shown(rows)
    study = STUDIES.get(rows[0].study) if rows else None
    return markdown(rows) if study is None else study.shown(rows)


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
        return f"<!-- study: {name} -->\n{_shown_as_its_study(rows)}\n<!-- end -->"

    return _BLOCK.sub(table, text)
