"""`stacksl evaluate` and `stacksl predict`: what the trained model is worth, and what it says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, facts, rejected, share, warn
from stacksl.cli.verbs.run import with_header
from stacksl.cli.watched import fell, watched
from stacksl.report.wording import count, plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.api.labelling import Labelled
    from stacksl.data import Dataset

PredictOut = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="F",
        help="Write the file's rows and columns with a label each: .csv, .tsv, .jsonl, .json, .xlsx"
        " or .parquet, or - for stdout.",
    ),
]


@options.takes(*options.READING)
def evaluate(
    context: typer.Context,
    run: options.RunFolder,
    file: options.File,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Accuracy and macro F1 of a run's model on a file with answers.

    No row is dropped in silence: one that cannot be used counts as wrong and is reported. Columns
    and format are those of the run unless given.

    Of a file without answers it says whether the rows are like those of the run, which classes grew
    or shrank, and where the run has few rows.

    In place of the file there may be a run over new rows with this model's labels in a column: its
    audit says whether the accuracy fell.
    """
    opened = options.open_run(run)
    if Path(file).is_dir():
        since = opened.evaluate(file)
        print(as_json(since) if json else _shown(since))
        return
    dataset = with_header(context, lambda: opened.read(file, given=options.reading(context)))
    told = bool(dataset.answers or dataset.unknown or not dataset.items)
    with live(quiet=quiet) as show:
        work = opened.evaluate if told else opened.watch
        result = work(dataset, progress=encoding(show))
    result["rejected"] = rejected(dataset)
    if not json:
        warn(dataset.warnings)
    print(as_json(result) if json else _shown(result) if told else watched(result))


def _shown(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    unusable, unknown = result.get("rejected", ()), result.get("unknown_classes")
    return facts(
        [
            ("Accuracy", f"{share(result['accuracy'])} (95% interval {low:.3f} to {high:.3f})"),
            ("Macro F1", share(result.get("macro_f1"))),
            *((f"Right among the best {k}", share(result.get(f"top_{k}"))) for k in (5, 10)),
            ("Abstains on", share(result.get("abstained"))),
            ("Accuracy on the rest", share(result.get("accuracy_kept"))),
            ("Right in the audit", fell(result["stated"])),
            ("Items", count(result["n"])),
            ("Right answer no candidate, counted as wrong", unknown or None),
            *(("Unusable, counted as wrong", f"row {r['row']}: {r['reason']}") for r in unusable),
        ]
    )


Right = Annotated[
    str | None,
    typer.Option(
        metavar="R",
        help="Label only rows that the model labels so well, such as 95%; leave the others blank,"
        " with the source `to a person`.",
    ),
]


@options.takes(*options.READING)
def predict(
    context: typer.Context,
    run: options.RunFolder,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of items; - for stdin, plain lines too.")
    ],
    out: PredictOut = None,
    right: Right = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Label the items of a file.

    With --out the rows of the file, all its columns, and `label`, `confidence` and `source`
    (model). Without it one JSON object a line, with the bounds of the online state. Answers in
    the file are not needed and not used; columns and format are those of the run unless given.

    With --right 95% only rows above the report's threshold for that share get a label. It holds
    for rows from the source of the run's own.
    """
    from stacksl.data import kind_of_table

    if out not in (None, "-"):
        kind_of_table(out)  # before the work
    opened = options.open_run(run)
    with _named(file) as path:
        dataset = with_header(context, lambda: opened.read(path, given=options.reading(context)))
        _predict(opened, path, dataset, out, right, json, quiet)


def _predict(
    opened: Run,
    path: str,
    dataset: Dataset,
    out: str | None,
    right: str | None,
    json: bool,
    quiet: bool,
) -> None:
    warn(f"row {row['row']} has no prediction: {row['reason']}" for row in rejected(dataset))
    with live(quiet=quiet) as show:
        if out is None:
            for row in opened.predict(dataset, progress=encoding(show), right=right):
                print(as_json(row))
            return
        from stacksl.api.labelling import label_file

        table = label_file(opened, path, dataset, encoding(show), right)
    kind = dataset.format.partition(":")[0].replace("lines", "csv")
    _put_out(table, out, kind, {"run": opened.path, "rejected": rejected(dataset)}, json)


def _put_out(table: Labelled, out: str, kind: str, about: dict[str, Any], json: bool) -> None:
    """Write a table to stdout (`-`), where it is of the kind `kind`, or to a file."""
    from stacksl.api.labelling import TO_PERSON
    from stacksl.data import TABLES, write_table

    if out == "-":
        payload = TABLES[kind if kind in TABLES else "jsonl"](table.columns, table.rows)
        sys.stdout.flush()
        sys.stdout.buffer.write(payload)
        return
    write_table(out, table.columns, table.rows)
    n, blank = len(table.rows), sum(TO_PERSON in row.values() for row in table.rows)
    result = {**about, "file": out, "n": n, "columns": table.columns}
    left = f", {count(blank)} of them blank, {TO_PERSON}" * bool(blank)
    print(as_json(result) if json else f"{plural(n, 'row')} with labels in {out}{left}")


@contextmanager
def _named(file: str) -> Iterator[str]:
    """The path of a file that can be read twice: stdin (`-`) is copied to one."""
    if file != "-":
        yield file
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        path.write_bytes(sys.stdin.buffer.read())
        yield str(path)
