"""The heads of the ledger that files outside the run's database name.

Facts, report and card name the ledger's head: a ledger that was cut, or rewritten with all its
hashes, differs from them.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from stacksl.ledger.purchases import Head
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.storage.folder import RunFolder

RECORDS: Final = (
    "facts.json", "report.html", "README.md", "no-text/report.html", "no-text/README.md",
)  # fmt: skip
_NAMED: Final = re.compile(rb"(\d{1,18}) rows, last ([0-9a-f]{64})")


def naming(head: Head) -> str:
    """A head in the form of facts, report and card."""
    return f"{head.count} rows, last {head.hash}"


def anchors(folder: RunFolder) -> dict[str, Head]:
    """Every head that the run's folder has outside its database, by the name of its file.

    Files that are missing or have no head are left out.
    """
    found: dict[str, Head] = {}
    for name in RECORDS:
        with suppress(OSError):
            if said := _NAMED.search((folder.path / name).read_bytes()):
                found[name] = Head(int(said[1]), said[2].decode())
    return found


def sealed(folder: RunFolder, ledger: LedgerReader) -> frozenset[str]:
    """The items of an audit that no report has shown: those reserved since the run last finished.

    No output has their answers before the run has finished.
    """
    shown = anchors(folder).get("facts.json", Head(0, "")).count
    rows = ledger.rows(after=shown)
    return frozenset(
        str(row.item) for row in rows if row.event == "reserved" and row.purpose == "audit"
    )
