"""`stacksl export`: labels as a table, the final model as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, facts, quality, warn, with_labels
from stacksl.errors import SettingsError
from stacksl.report.wording import plural

Model = Annotated[
    Path | None,
    options.option(
        "Write the final model of a run with classes into this new or empty folder, for somebody"
        " without stacksl.",
        "OUT",
    ),
]
Labels = Annotated[
    Path | None,
    options.option(
        "Write the bought answers with text, label, labeler, time and price: .csv, .tsv, .xlsx,"
        " .json, .jsonl or .parquet.",
        "FILE",
    ),
]
Table = Annotated[
    Path | None,
    options.option(
        "Write the run's own rows and columns with label, confidence and source: .csv, .tsv,"
        " .jsonl, .json, .xlsx or .parquet.",
        "FILE",
    ),
]
Names = Annotated[bool, options.option("Write names of annotators, not numbers.", None, "--names")]


def export(
    run: options.RunFolder,
    table: Table = None,
    model: Model = None,
    labels: Labels = None,
    names: Names = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write the labeled table, bought labels or the final model, for use without stacksl.

    --table writes the rows of the run's own files. --labels writes what people answered; answers
    that measure the model are written once the run has finished. --model writes a folder with all
    that the model needs, for `python use.py`, MLflow and stacksl.load.

    The run's own table with a label in each row, by people or the model:
        stacksl export runs/first --table labeled.xlsx
    What people answered, with time and price:
        stacksl export runs/first --labels a.csv
    The final model, for somebody without stacksl:
        stacksl export runs/first --model model
    """
    from stacksl.api.labeling import bought_answers, export_rows, label_own, write_model
    from stacksl.runs.items.stored import differing

    if not any(path is not None for path in (table, model, labels)):
        raise SettingsError(
            "expected something to write, got nothing: give --table FILE for the labeled table,"
            " --labels FILE for the bought labels, or --model OUT for the final model"
        )
    opened, status = options.open_run(run), None
    keys = ("table", "labels", "left_out", "model")
    result: dict[str, Any] = {"run": run, **dict.fromkeys(keys), "left_out": 0}
    if model is not None:  # first: a run whose model cannot be handed over is refused
        result["model"] = write_model(opened, model)
    if table is not None:
        with live(quiet=quiet or json) as show:
            steps = encoding(show), encoding(show, "rows")
            labeled = export_rows(opened, table, lambda: label_own(opened, steps[0]), steps[1])
        changed = differing(opened.folder.resolved().get("files", {}))
        warn(f"{why.partition(';')[0]}: its rows have ids and texts alone" for why in changed)
        status, blank = opened.status(), dict(labeled.blank)
        counts = {"rows": len(labeled.rows), "blank": sum(blank.values())}
        by_source = {"blank_by_source": blank, "right": status["table"]}
        result["table"] = {"file": table, **counts, **by_source}
    if labels is not None:
        answers = export_rows(opened, labels, lambda: bought_answers(opened, names=names)[1])
        result |= {"labels": labels, "left_out": answers.left_out}
    print(as_json(result) if json else _summary(result, status))


OF_A_TABLE = "Last report", "Right in the table", "Stop rule"  # of a run's status


def _summary(result: dict[str, Any], status: dict[str, Any] | None) -> str:
    table = result["table"]
    sealed = f"{plural(result['left_out'], 'purchase')} of the audit, until the run has finished"
    rows_labeled = table and with_labels(table["rows"], table["blank_by_source"])
    rows = [
        ("Table", table and f"{table['file']}, {rows_labeled}"),
        *(row for row in (quality(status) if status else ()) if row[0] in OF_A_TABLE),
        ("Labels", result["labels"]),
        ("Left out", sealed if result["left_out"] else None),
        ("Model", result["model"]),
    ]
    return facts(rows)


VERBS = (export,)
