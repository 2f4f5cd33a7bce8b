"""The tables of a run, written from the ledger at its end: `rounds.parquet`, `metrics.jsonl`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.runs.loop.examples import Examples
from stacksl.types import Decision

GROUP = 4096  # rounds written at a time
COLUMNS = (
    "round", "item", "choice", "statistic", "threshold", "reason", "score", "lower", "upper",
    "probability", "gate_score", "status",
)  # fmt: skip


def write_rounds(ledger: Ledger, path: Path) -> None:
    """Write a row for each round, with its certificate, and `label` where one was bought.

    Written in groups of rows, so that its memory does not grow with the rounds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    learnt = (r for r in ledger.rows() if r.event == "learnt" and r.purpose == "train")
    labels = {str(row.item): row.label().index for row in learnt}
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, _schema(pa)) as writer:
        for group in _groups(row.decision() for row in ledger.rows() if row.event == "round"):
            columns = {name: [getattr(d, name) for d in group] for name in COLUMNS}
            columns["presented"] = [list(d.presented) for d in group]
            columns["label"] = [labels.get(d.item) if d.asked else None for d in group]
            writer.write_table(pa.table(columns, schema=_schema(pa)))
    write_atomic(path, buffer.getvalue())


def _schema(pa: Any) -> Any:
    kinds = {"round": pa.int64(), "item": pa.string(), "choice": pa.int64()}
    words = dict.fromkeys(("reason", "status"), pa.string())
    fields = [(name, {**kinds, **words}.get(name, pa.float64())) for name in COLUMNS]
    return pa.schema([*fields, ("presented", pa.list_(pa.int64())), ("label", pa.int64())])


def _groups(decisions: Iterable[Decision]) -> Iterator[list[Decision]]:
    rest = iter(decisions)
    while group := list(islice(rest, GROUP)):
        yield group


def write_metrics(examples: Examples, path: Path) -> None:
    """Write a line for each bought label: its number, and the share of right choices so far.

    Owned labels are left out, since they had no choice before.
    """
    lines = []
    right = 0
    bought = [each for each in examples.bought if each[2] >= 0]
    for count, (row, label, choice) in enumerate(bought, start=1):
        right += label == choice
        line = {"labels": count, "item": examples.corpus.ids[row], "right": label == choice}
        lines.append(json.dumps({**line, "accuracy_before": right / count}))
    write_atomic(path, "".join(line + "\n" for line in lines))
