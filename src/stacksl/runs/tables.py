"""The tables of a run, written from the ledger at its end: `rounds.parquet`, `metrics.jsonl`."""

from __future__ import annotations

import io
import json
from pathlib import Path

from stacksl.labels.ledger import Ledger
from stacksl.runs.folder import write_atomic
from stacksl.runs.rounds import Table

__all__ = ["write_metrics", "write_rounds"]

COLUMNS = (
    "round", "item", "choice", "statistic", "threshold", "reason", "score", "lower", "upper",
    "probability", "gate_score", "status",
)  # fmt: skip


def write_rounds(ledger: Ledger, path: Path) -> None:
    """One row a round, with its certificate, and `label` where one was bought."""
    import pyarrow as pa
    from pyarrow import parquet

    labels: dict[str, int] = {}
    decisions = []
    for row in ledger.rows():
        if row.event == "round":
            decisions.append(row.decision())
        elif row.event == "learnt":
            labels[str(row.item)] = row.label().index
    columns = {name: [getattr(d, name) for d in decisions] for name in COLUMNS}
    columns["presented"] = [list(d.presented) for d in decisions]
    columns["label"] = [labels.get(d.item) for d in decisions]
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    write_atomic(path, buffer.getvalue())


def write_metrics(table: Table, path: Path) -> None:
    """One line a label bought: how many, and the share of right choices before each was seen."""
    lines = []
    right = 0
    for count, (row, label, choice) in enumerate(table.bought, start=1):
        right += label == choice
        lines.append(
            json.dumps(
                {
                    "labels": count,
                    "item": table.ids[row],
                    "right": label == choice,
                    "accuracy_before": right / count,
                }
            )
        )
    write_atomic(path, "".join(line + "\n" for line in lines))
