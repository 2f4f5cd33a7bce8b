"""`stacksl evaluate` and `stacksl predict`: what the trained model is worth, and what it says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, count, facts, share, warn
from stacksl.errors import RunError, SettingsError

if TYPE_CHECKING:
    from stacksl.data import Dataset

PredictOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="F", help="Write the lines to this file instead of stdout."),
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
    """
    from stacksl.api import Run
    from stacksl.runs.items.reading import read_again

    opened = Run.open(run)
    given = options.reading(context)
    dataset = read_again(opened.folder, opened.reading, file, given)
    with live(quiet=quiet) as show:
        result = opened.evaluate(dataset, progress=encoding(show))
    result["rejected"] = _rejected(dataset)
    if not json:
        warn(dataset.warnings)
    print(as_json(result) if json else _shown(result))


def _shown(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    unusable = result["rejected"]
    return facts(
        [
            ("Accuracy", f"{share(result['accuracy'])} (95 % interval {low:.3f} to {high:.3f})"),
            ("Macro F1", share(result["macro_f1"])),
            *((f"Right among the best {k}", share(result.get(f"top_{k}"))) for k in (5, 10)),
            ("Abstains on", share(result.get("abstained"))),
            ("Accuracy on the rest", share(result.get("accuracy_kept"))),
            *_by_normalisation(result),
            ("Items", count(result["n"])),
            ("Right answer no candidate, counted as wrong", result["unknown_classes"] or None),
            *(("Unusable, counted as wrong", f"row {r['row']}: {r['reason']}") for r in unusable),
        ]
    )


def _by_normalisation(result: dict[str, Any]) -> list[tuple[str, str]]:
    """A language model's accuracy under each normalisation."""
    return [
        (f"Accuracy by {name}", f"{share(each['accuracy'])} (macro F1 {share(each['macro_f1'])})")
        for name, each in result.get("normalisations", {}).items()
    ]


@options.takes(*options.READING)
def predict(
    context: typer.Context,
    run: options.RunFolder,
    file: options.File,
    out: PredictOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """What a run's model says about the items of a file: one JSON object a line.

    Answers in the file are not needed and not used. With --json and --out, a summary goes to
    stdout; without --out the lines are JSON anyway.
    """
    from stacksl.api import Run
    from stacksl.runs.items.reading import read_again

    opened = Run.open(run)
    given = options.reading(context)
    dataset = read_again(opened.folder, opened.reading, file, given)
    left_out = (
        f"row {row['row']} has no prediction: {row['reason']}" for row in _rejected(dataset)
    )
    warn(left_out)
    with live(quiet=quiet) as show:
        rows = opened.predict(dataset, progress=encoding(show))
        n = _write(out, rows) if out is not None else _print(rows)
    if out is not None:
        result = {"run": run, "file": out, "n": n, "rejected": _rejected(dataset)}
        print(as_json(result) if json else f"{count(n)} predictions in {out}")


def _rejected(dataset: Dataset) -> list[dict[str, Any]]:
    return [{"row": each.row, "id": each.id, "reason": each.reason} for each in dataset.rejected]


def _print(rows: Iterable[dict[str, Any]]) -> int:
    n = 0
    for row in rows:
        print(as_json(row))
        n += 1
    return n


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """The number of `rows` written to `path`, which appears once all of them are there.

    Raises:
        RunError: if the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    n = 0
    try:
        with draft.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(as_json(row) + "\n")
                n += 1
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as fault:
        raise RunError(
            f"cannot write the predictions to {path}: {fault.strerror}; give another --out"
        ) from fault
    finally:
        draft.unlink(missing_ok=True)
    return n


def refit(
    run: options.RunFolder,
    with_audit: Annotated[
        bool, typer.Option("--with-audit", help="Train on the labels that measured the model, too.")
    ] = False,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Fit the final model once more, with the audit's labels among its own.

    Nothing is left to measure it by then: what the report and the card say of its accuracy is that
    of the model before, and they say so.
    """
    from stacksl.api import Run

    if not with_audit:
        raise SettingsError(
            "what is there to refit with? --with-audit takes the labels that measured the model"
        )
    labels = Run.open(run).refit_with_audit()
    said = f"the model was fitted again, with the {count(labels)} labels of the audit"
    print(as_json({"run": run, "labels": labels}) if json else said)
