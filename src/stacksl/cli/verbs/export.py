"""`stacksl export`: labels as a table, the final model as a folder, items as an lm-eval task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, facts, quality, warn, with_labels
from stacksl.errors import SettingsError
from stacksl.report.wording import count, plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.lm.export.folder import Provenance
    from stacksl.lm.export.tasks import Task

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
Names = Annotated[
    bool, options.option("Name the annotators, who are numbered otherwise.", None, "--names")
]
TaskOut = Annotated[
    tuple[str, Path] | None,
    options.option(
        "Write the items of FILE, which has answers, as a task of lm-eval into the folder OUT, and"
        " print the command that scores the model on it.",
        "FILE OUT",
    ),
]


@options.takes(*options.READING)
def export(
    context: typer.Context,
    run: options.RunFolder,
    table: Table = None,
    model: Model = None,
    task: TaskOut = None,
    labels: Labels = None,
    names: Names = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write the labeled table, bought labels or the final model, for use without stacksl.

    --table writes the rows of the run's own files. --labels writes what people answered; answers
    that measure the model are written once the run has finished. --model writes encoder and
    classifier as one folder, for `python use.py`, MLflow and stacksl.load.
    --task writes a task of lm-eval that gives the same predictions as a language model of a run.

    The run's own table with a label in each row, by people or the model:
        stacksl export runs/first --table labeled.xlsx
    What people answered, with time and price:
        stacksl export runs/first --labels a.csv
    The final model, for somebody without stacksl:
        stacksl export runs/first --model model
    A task of lm-eval:
        stacksl export runs/first --task test.jsonl task
    """
    from stacksl.api.labeling import bought_answers, export_rows, label_own, write_model
    from stacksl.lm.export.folder import read_provenance
    from stacksl.runs.items.stored import differing

    if not any(path is not None for path in (table, model, task, labels)):
        raise SettingsError(
            "expected something to write, got nothing: give --table FILE for the labeled table,"
            " --labels FILE for the bought labels, --model OUT for the final model, or"
            " --task FILE OUT for a task of lm-eval"
        )
    opened, status = options.open_run(run), None
    keys = ("table", "labels", "left_out", "model", "task", "command")
    result: dict[str, Any] = {"run": run, **dict.fromkeys(keys), "left_out": 0}
    provenance = None if task is None else read_provenance(opened.folder.model)
    if table is not None:
        with live(quiet=quiet or json) as show:
            labeled = export_rows(opened, table, lambda: label_own(opened, encoding(show)))
        changed = differing(opened.folder.resolved().get("files", {}))
        warn(f"{why.partition(';')[0]}: its rows have ids and texts alone" for why in changed)
        status, blank = opened.status(), dict(labeled.blank)
        counts = {"rows": len(labeled.rows), "blank": sum(blank.values())}
        by_source = {"blank_by_source": blank, "right": status["table"]}
        result["table"] = {"file": table, **counts, **by_source}
    if labels is not None:
        answers = export_rows(opened, labels, lambda: bought_answers(opened, names=names)[1])
        result |= {"labels": labels, "left_out": answers.left_out}
    if model is not None:
        result["model"] = write_model(opened, model)
    if task is not None and provenance is not None:
        result |= _task(opened, provenance, task, options.reading(context))
    print(as_json(result) if json else _summary(result, status))


def _task(
    opened: Run, provenance: Provenance, task: tuple[str, Path], columns: dict[str, str]
) -> dict[str, Any]:
    """The keys `task` and `command`: what was written, and the line that scores on it."""
    from stacksl.lm.export.folder import model_arguments
    from stacksl.lm.export.tasks import command, write_task
    from stacksl.lm.loading import source_of
    from stacksl.lm.reading import read_tokenizer

    file, out = task
    dataset = opened.read(file, given=columns)
    source = source_of(provenance.source)
    tokenizer = read_tokenizer(provenance.name, source, provenance.revision)
    exported = write_task(
        out.absolute(),
        dataset.name,
        dataset.items,
        dataset.answers,
        provenance.form(tokenizer),
        tokenizer,
        provenance.normalization,
        provenance.limits(provenance.positions),
    )
    warn([*dataset.warnings, *_left_out(exported, len(dataset.rejected))])
    arguments = model_arguments(provenance, opened.folder.model.absolute())
    facts = {"folder": exported.folder, "name": exported.name, "items": exported.items}
    return {"task": facts, "command": command(arguments, exported.name, exported.folder)}


def _left_out(task: Task, rejected: int) -> list[str]:
    """A sentence for each way in which lm-eval's numbers will not be those of `evaluate`."""
    notes = []
    if task.unanswered:
        notes.append(
            f"left out of the task for want of an answer: {count(task.unanswered)} of"
            f" {count(task.items + task.unanswered)} items"
        )
    if rejected:
        notes.append(
            f"left out of the task, and wrong for `evaluate`: {count(rejected)} unusable"
            " rows of the file"
        )
    if task.cuts:
        notes.append(f"{task.cuts}; lm-eval reads those whole, so its numbers for them may differ")
    return notes


OF_A_TABLE = "Last report", "Right in the table", "Stop rule"  # of a run's status


def _summary(result: dict[str, Any], status: dict[str, Any] | None) -> str:
    task, table = result["task"] or {}, result["table"]
    sealed = f"{plural(result['left_out'], 'purchase')} of the audit, until the run has finished"
    rows_labeled = table and with_labels(table["rows"], table["blank_by_source"])
    rows = [
        ("Table", table and f"{table['file']}, {rows_labeled}"),
        *(row for row in (quality(status) if status else ()) if row[0] in OF_A_TABLE),
        ("Labels", result["labels"]),
        ("Left out", sealed if result["left_out"] else None),
        ("Model", result["model"]),
        ("Task", task.get("folder")),
        ("Name", task.get("name")),
        ("Items", count(task["items"]) if task else None),
        ("Score with", result["command"]),
    ]
    return facts(rows)


VERBS = (export,)
