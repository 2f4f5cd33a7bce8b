"""`stacksl reproduce`: a table of the paper made again, theirs beside ours."""

from __future__ import annotations

import json as json_
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.entry import Stopped
from stacksl.cli.printing import as_json, warn
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.data import Dataset
    from stacksl.studies.bench import Pace
    from stacksl.studies.cells import Result

__all__ = ["play", "reproduce"]

Name = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study, as `stacksl ls studies` lists them.")
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A folder, a name on the hub, or sample."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The official files, a file of items, or hf:NAME."),
]
MedQA = Annotated[
    str | None,
    typer.Option("--medqa", metavar="DIR", help="For mmlu: MedQA, where it is not beside DATA."),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", min=1, help="Seeds 0 to N - 1 (5, or the study's own)."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A few items, one epoch, one seed: does the command work?")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Runs at a time, a process each (1; a core each for studies without a model).",
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option("--figures", metavar="DIR", help="Draw the study's figures there, SVG and PNG."),
]
Folder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where results are kept.", show_default=True)
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the folders of the runs.")]
OnTest = Annotated[
    bool,
    typer.Option("--paper-selection", help="Choose kl_weight and k on the test set, as they did."),
]


def reproduce(
    study: Name,
    model: Model = None,
    data: Data = None,
    test: options.Test = None,
    medqa: MedQA = None,
    seeds: Seeds = None,
    quick: Quick = False,
    jobs: Jobs = None,
    paper_selection: OnTest = False,
    set_: options.Set = None,
    figures: Figures = None,
    out: Folder = Path("runs/studies"),
    keep: Keep = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Make a table of the paper again: its whole grid, its numbers beside ours.

    Without --model and --data the sample model is measured on its own questions, in a table of
    its own. What was measured is kept, so a command that was stopped goes on where it was. Numbers
    of the paper stand only beside its own model on its own data. Studies of synthetic streams take
    no model and no data.
    """
    from stacksl.studies import study_named
    from stacksl.studies.lab import LabStudy

    found = study_named(study)
    if isinstance(found, LabStudy):
        from stacksl.cli.laboratory import reproduce_lab

        given = {"--model": model, "--data": data, "--test": test, "--medqa": medqa, "--set": set_}
        switches = {"--paper-selection": paper_selection, "--keep": keep}
        _refuse(study, [name for name, value in (given | switches).items() if value])
        reproduce_lab(found, seeds, quick, jobs, figures, out, json, quiet)
        return
    if figures is not None:
        raise SettingsError(
            f"'{study}' is a table of a language model and has no figures: leave out --figures"
        )
    jobs = jobs or 1
    from stacksl.studies.bench import Bench
    from stacksl.studies.examining import examine
    from stacksl.studies.records import record
    from stacksl.studies.reproduce import reproduce as measured
    from stacksl.studies.sources import quick as cut
    from stacksl.studies.sources import setup_of
    from stacksl.studies.store import Store

    if jobs > 1 and int(os.environ.get("WORLD_SIZE") or "1") > 1:
        raise SettingsError("--jobs starts processes of its own: give it without torchrun")
    setup = setup_of(study, model, data, test, medqa, dict(_pairs(set_ or [])))
    setup = cut(setup) if quick else setup
    bench = Bench(
        setup, play, examine, Store(out / "cells.jsonl"), out / "cells", jobs, keep, paper_selection
    )
    warn([] if setup.fault is None else [setup.fault])
    count = seeds or (1 if quick else 5)
    try:
        rows = measured(found, bench, range(count), None if quiet else _tell)
    except KeyboardInterrupt as stop:
        raise Stopped(
            f"stopped; {len(bench.store)} cells are kept in {out}: the same command goes on"
        ) from stop
    print(as_json(record(study, setup.model, count, rows)) if json else _shown(found, rows))


def _refuse(study: str, given: Sequence[str]) -> None:
    if given:
        raise SettingsError(
            f"'{study}' is played on synthetic streams, without a model or data: leave out"
            f" {', '.join(given)}"
        )


def _shown(study: Any, rows: Sequence[Any]) -> str:
    from stacksl.studies.paper import CANNOT
    from stacksl.studies.tables import markdown

    lines = [f"{study.title}. The paper: {study.claim}.", "", markdown(rows)]
    if any(row.paper is not None for row in rows):
        lines += ["", "Of the paper's table:", *(f"- {s}" for s in CANNOT.get(study.name, ()))]
    return "\n".join(lines)


def _pairs(pairs: Sequence[str]) -> list[tuple[str, Any]]:
    """Settings written NAME=VALUE, those of `run --set`."""
    from stacksl.cli.running import setting_of
    from stacksl.runs.settings import Settings

    found = [setting_of(text) for text in pairs]
    for name, _ in found:
        if name not in Settings.model_fields or name in ("seed", "model", "budget"):
            raise SettingsError(f"--set takes a setting of a run, and '{name}' cannot be set here")
    return found


def _tell(pace: Pace) -> None:
    """One line a cell on stderr."""
    cell, left = pace.cell, pace.seconds_left
    what = "base model" if cell.shots is not None else str(cell.settings.get("gate"))
    when = "" if not left else f", {_duration(left)} left of these"
    said = f"{pace.done} of {pace.total} cells: {cell.task}, {what}, seed {cell.seed}{when}"
    print(said, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"


def play(train: Dataset, test: Dataset, settings: Mapping[str, Any], folder: Path) -> Result:
    """Play a run in `folder`, or go on with the one that lies there; what it came to.

    Raises:
        KeyboardInterrupt: it was stopped, and can be gone on with.
        StackslError: it failed.
    """
    from stacksl.api import Run, prepare

    start = time.monotonic()
    if (folder / "run.toml").is_file():
        run = Run.open(folder).resume()
    else:
        shutil.rmtree(folder, ignore_errors=True)  # begun, but no run yet
        run = prepare(train, test=test, out=folder, settings=settings).start()
    if run.status()["state"] == "stopped":
        raise KeyboardInterrupt  # the run took it and put itself away
    return _result(run, str(settings.get("clip", "scale")), time.monotonic() - start)


def _result(run: Run, clip: str, seconds: float) -> Result:
    from stacksl.studies.cells import Result

    facts = json_.loads((run.path / "facts.json").read_text(encoding="utf-8"))["test"]
    status = run.status()
    losses = _losses(run.path / "adapters", clip)
    return Result(
        accuracy=facts["accuracy"],
        macro_f1=facts["macro_f1"],
        n=facts["n"],
        asked=status["asked"],
        rounds=status["rounds"],
        seconds=seconds,
        first=_bought_first(run, status["asked"]),
        mean_loss=losses.get("mean_loss"),
        max_loss=losses.get("max_loss"),
        clipped=losses.get("clipped"),
    )


def _bought_first(run: Run, asked: int) -> bool:
    """Whether the labels are those of the first rounds."""
    with run.ledger as ledger:
        rounds = [row.decision() for row in ledger.rows() if row.event == "round"]
    bought = {each.round for each in rounds if each.status == "reserved"}
    return bool(asked) and bought == set(range(1, asked + 1))


def _losses(adapters: Path, clip: str) -> dict[str, float | None]:
    """Losses of the last refit, as trained on: `literal` clipping cuts them, `scale` does not."""
    records = [json_.loads(p.read_text(encoding="utf-8")) for p in sorted(adapters.glob("*.json"))]
    if not records:
        return {}
    trained = max(records, key=lambda each: int(each["number"]))["trained"]
    cut = clip == "literal"
    return {
        "mean_loss": trained.get("loss_clipped" if cut else "loss"),
        "max_loss": trained.get("largest_clipped" if cut else "largest"),
        "clipped": trained.get("clipped"),
    }
