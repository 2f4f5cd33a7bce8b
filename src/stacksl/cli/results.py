"""`stacksl evaluate` and `stacksl predict`: what the trained model is worth, and what it says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, facts, share
from stacksl.errors import RunError

__all__ = ["evaluate", "predict"]

PredictOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="F", help="Write the lines to this file instead of stdout."),
]


def evaluate(
    run: options.RunFolder,
    file: options.File,
    format: options.Format = None,
    prompt_column: options.PromptColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Accuracy and macro F1 of a run's model on a file with answers.

    No row is dropped in silence: one that cannot be used counts as wrong and is reported. Columns
    and format are those of the run unless given.
    """
    from stacksl.api import Run

    reading = _reading(format, prompt_column, label_column)
    result = Run.open(run).evaluate(file, **reading)
    print(as_json(result) if json else _shown(result))


def _shown(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    return facts(
        [
            ("Accuracy", f"{share(result['accuracy'])} (95 % interval {low:.3f} to {high:.3f})"),
            ("Macro F1", share(result["macro_f1"])),
            ("Items", count(result["n"])),
            ("Unusable, counted as wrong", result.get("unusable") or None),
        ]
    )


def predict(
    run: options.RunFolder,
    file: options.File,
    out: PredictOut = None,
    format: options.Format = None,
    prompt_column: options.PromptColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """What a run's model says about the items of a file: one JSON object a line.

    Answers in the file are not needed and not used. With --json and --out, a summary goes to
    stdout; without --out the lines are JSON anyway.
    """
    from stacksl.api import Run

    opened = Run.open(run)
    rows = opened.predict(file, **_reading(format, prompt_column, label_column))
    if out is None:
        for row in rows:
            print(as_json(row))
        return
    n = _write(out, rows)
    said = f"{count(n)} predictions in {out}"
    print(as_json({"run": run, "file": out, "n": n}) if json else said)


def _reading(format: str | None, prompt: str | None, label: str | None) -> dict[str, str]:
    given = {"format": format, "prompt_column": prompt, "label_column": label}
    return {name: value for name, value in given.items() if value is not None}


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
