"""`stacksl evaluate` and `stacksl predict`: what the trained model is worth, and what it says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, facts, rejected, share, warn, with_labels
from stacksl.cli.verbs.run import begin, with_header, word
from stacksl.engine import on_ray
from stacksl.errors import SettingsError
from stacksl.report.wording import count, excerpt, percent, plural

if TYPE_CHECKING:
    from stacksl.api.labeling import Labeled

PredictOut = Annotated[
    str | None,
    options.option(
        "Write the file's rows and columns with a label each: .csv, .tsv, .jsonl, .json, .xlsx or"
        " .parquet, or - for stdout. A folder for files in parts.",
        "F",
    ),
]
EASIER = ", and is then right on them more often than on new rows."
COPIES = ". If the file repeats the run's rows, leave them out: they are not new."
_BUYING = ("audit", "budget", "price", "annotators")


@options.takes(
    *options.READING,
    *_BUYING,
    audit="How many rows people are asked about.",
    budget="The most labels, if not as many as the audit and its second look may take.",
    annotators="The people who answer, if they are not those of RUN.",
)
def evaluate(
    context: typer.Context,
    run: options.RunFolder,
    file: options.File,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    out: Annotated[
        Path | None, options.option("The folder of the audit (RUN-FILE).", "DIR")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure a run's model on a file with answers, or compare new rows with the run's rows.

    A row that cannot be used counts as wrong and is reported. Columns and format are the same as
    in the run unless you give others.

    If the file has no answers, the command says whether its rows are like the run's rows, and what
    is new. With --audit N people are asked about N of its rows, in a new run with the annotators
    and prices of RUN. When this run has finished, its status says whether the accuracy fell.

    Accuracy on a file with answers:
        stacksl evaluate runs/first test.csv
    Accuracy on a CSV file whose columns have other names:
        stacksl evaluate runs/first t.csv --prompt-column q --label-column a --json
    A file without answers: are its rows like the run's rows, and what is new in them?
        stacksl evaluate runs/first march.csv
    Is the accuracy still what it was? An audit of 60 of its rows, into runs/first-march:
        stacksl evaluate runs/first march.csv --audit 60 --budget '$150'
    """
    from stacksl.api import plan_audit
    from stacksl.runs.storage.status import random_audit

    opened = options.open_run(run)
    audit_options = {name: context.obj[name] for name in _BUYING if name in context.obj}
    if audit_options.get("audit", "0") == "0" and (audit_options or out or dry_run):
        names = "--audit 0 asks nobody" if "audit" in audit_options else ""
        names = names or "--budget, --annotators, --price, --out and --dry-run are for an audit"
        raise SettingsError(f"{names}: give --audit N")
    dataset = with_header(context, lambda: opened.read(file, given=options.reading(context)))
    if audit_options:
        out = out or Path(os.path.normpath(run / ".."), f"{run.resolve().name}-{Path(file).stem}")
        with live(quiet=quiet) as show:
            plan = plan_audit(opened, dataset, audit_options, out, encoding(show), file)
        begin(plan, dry_run=dry_run, yes=yes, quiet=quiet, json=json)
        return
    with live(quiet=quiet) as show:
        result = opened.evaluate(dataset, progress=encoding(show))
    result["rejected"] = rejected(dataset)
    format_result = as_json if json else _compared if "told_after" in result else _shown
    if not json:  # `_shown` names each unusable row
        warn(w for w in dataset.warnings if format_result is _compared or " unusable row" not in w)
    print(format_result(result))
    if format_result is _compared:
        rows, audit = f"{word(run)} {word(file)}", min(60, result["n"] - 1)
        why = "whether the accuracy fell" if random_audit(opened.folder) else "how many are right"
        print("\nNext:")
        if dataset.classes is not None:
            print(f"  stacksl evaluate {rows} --audit {audit}  # People say {why}")
        print(f"  stacksl predict {rows} --out labeled.csv  # Label these rows")


def _shown(result: dict[str, Any]) -> str:
    (low, high), unusable = result["interval"], result["rejected"]
    return facts(
        [
            ("Accuracy", f"{share(result['accuracy'])} (95% interval {low:.3f} to {high:.3f})"),
            ("Macro F1", share(result.get("macro_f1"))),
            *((f"Right among the best {k}", share(result.get(f"top_{k}"))) for k in (5, 10)),
            ("New rows", (result["stated"] or {}).get("sentence")),
            ("Items", count(result["n"])),
            ("Rows of the run", _shared(result, ". The model may have learned such rows" + EASIER)),
            *(("Unusable, counted as wrong", f"row {r['row']}: {r['reason']}") for r in unusable),
        ]
    )


def _shared(result: dict[str, Any], follows: str) -> str | None:
    rows, shared = plural(result["n"], "row"), result["shared"]
    sentence = f"{count(shared)} of {rows} with the text of a row of the run{follows}"
    return sentence if shared else None


def _compared(result: dict[str, Any]) -> str:
    """What is said of rows without answers."""
    confidence, classes, after = (result[key] for key in ("confidence", "classes", "told_after"))
    likeness = f"the rows differ from the run's, as the first {after} show; of rows that are alike"
    likeness += " this is said in 5% of cases at most, however often you look"
    if after is None:
        likeness = "no difference is shown so far; what follows is of one look, and can be chance"
    surety = "not compared: it needs 50 rows held out in the run"
    if result["held_out"] >= 50:
        surety = "not compared: hashing features are made from the run's rows, not from new ones"
    if confidence is not None:
        surety = f"{percent(confidence[1])}, and {percent(confidence[0])} on the rows held out"
    rows: list[tuple[str, object]] = [
        ("Without answers", f"{plural(result['n'], 'row')} (see --label-column)"),
        ("Left out, rows of the run", plural(result["known"], "row") if result["known"] else None),
        ("Rows of the run", _shared(result, ", under another id" + COPIES)),
        ("Held out in the run", plural(result["held_out"], "row")),
        ("Likeness", likeness),
        ("Confidence", surety),
        ("Classes", "none grew or shrank beyond chance" if classes == [] else None),
    ]
    for shift in classes or ():
        grew = "grew" if shift["now"] > shift["before"] else "shrank"
        shares = f"from {percent(shift['before'])} to {percent(shift['now'])}"
        rows.append((shift["name"], f"{grew} {shares} of the answers"))
    rows.append(("Where the run has few", plural(result["unlike"], "row")))
    for group in result["groups"]:
        rows.append((plural(group["rows"], "row"), f"about {group['name']}, such as"))
        rows += [(f"  {row['id']}", excerpt(row["text"], 100)) for row in group["examples"]]
    return facts(rows)


Right = Annotated[
    str | None,
    options.option(
        "Label only rows that the model labels so well, such as 95%; leave the others blank, with"
        " the source `to a person`.",
        "R",
    ),
]


@options.takes(*options.READING)
def predict(
    context: typer.Context,
    run: options.RunFolder,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file of items; - for stdin, plain lines too; a folder or 'PATTERN' for parts.",
        ),
    ],
    out: PredictOut = None,
    right: Right = None,
    engine: options.Engine = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Label the items of a file.

    With --out the command writes the rows of the file with all their columns, and adds `label`,
    `confidence` and `source` (model). Without --out it prints one JSON object per line. Answers in
    the file are not needed and not used. Columns and format are the same as in the run unless you
    give others.

    With --right 95% only rows above the report's threshold for that share get a label. The share
    holds for rows from the same source as the run's.

    Files in parts are labeled one by one into the folder --out. Files that are complete there are
    kept.

    Print one JSON object per line:
        stacksl predict runs/first new.csv
    Write the file's rows with a label in each row, for a spreadsheet:
        stacksl predict runs/first new.csv --out new-labeled.xlsx
    Read from and write to other programs:
        stacksl predict runs/first - --out -
    """
    from stacksl.api.labeling import label_file, threshold_of
    from stacksl.api.parts import in_parts, label_parts
    from stacksl.data import TABLES, expect_other, kind_of_table, write_table
    from stacksl.runs.items.sources import STDIN, stdin_copied

    on_ray(engine)
    if in_parts(file):
        if out in (None, "-") or Path(out).suffix[1:].lower() in TABLES:
            raise SettingsError(f"expected --out FOLDER for the files of '{file}', got {out}")
        opened = options.open_run(run)
        _print_parts(label_parts(opened, file, out, options.reading(context), right), json=json)
        return
    opened = options.open_run(run)
    if out is not None and out != "-":  # before the work
        kind_of_table(out)
        expect_other(out, [file, *opened.folder.resolved().get("files", {})])
    with stdin_copied() if file == STDIN else nullcontext(file) as path:
        dataset = with_header(context, lambda: opened.read(path, given=options.reading(context)))
        warn(f"row {row['row']} has no prediction: {row['reason']}" for row in rejected(dataset))
        with live(quiet=quiet) as show:
            if out is None:
                for row in opened.predict(dataset, progress=encoding(show), right=right):
                    print(as_json(row))
                return
            threshold = None if right is None else threshold_of(opened, right)
            table = label_file(opened.model, path, dataset, encoding(show), threshold)
            if out != "-":
                write_table(out, table.columns, table.rows, encoding(show, "rows"), like=path)
    if out == "-":
        _print_table(table, dataset.format)
        return
    n = len(table.rows)
    result = {"run": opened.path, "rejected": rejected(dataset), "file": out, "n": n}
    as_line = as_json({**result, "columns": table.columns})
    print(as_line if json else with_labels(n, table.blank, f" in {out}"))


def _print_table(table: Labeled, read_format: str) -> None:
    """Write a table to standard output, in the format that its rows were read in."""
    from stacksl.data import TABLES

    kind = read_format.partition(":")[0].replace("lines", "csv")
    payload = TABLES[kind if kind in TABLES else "jsonl"](table.columns, table.rows)
    sys.stdout.flush()
    sys.stdout.buffer.write(payload)


def _print_parts(parts: Iterator[dict[str, Any]], *, json: bool) -> None:
    """Print a line for each part as it is labeled."""
    try:
        for row in parts:
            print(as_json(row) if json else _part(row), flush=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command labels the other parts") from None


def _part(row: dict[str, Any]) -> str:
    if row["kept"]:
        return f"{row['file']}  kept"
    warn(f"{row['file']}: row {r['row']} has no label: {r['reason']}" for r in row["rejected"])
    blank = {"to a person": row["blank"], "unusable": len(row["rejected"])}
    return f"{row['file']}  {with_labels(row['n'], blank)}"


VERBS = (evaluate, predict)
