"""`stacksl-lab reproduce`: a table of the paper made again, with its numbers and ours."""

from __future__ import annotations

import json as json_
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, table, warn
from stacksl.errors import RunError, SettingsError

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.data import Dataset
    from stacksl_lab.language.cells import Result
    from stacksl_lab.language.tasks import Setup
    from stacksl_lab.study.bench import Bench, Pace
    from stacksl_lab.study.rows import Row
    from stacksl_lab.study.store import Store
    from stacksl_lab.study.study import Study


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY", show_default=False, help="A study; if absent, all studies are listed."
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A folder, a name on the hub, or sample."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The official files, or a file of items."),
]
MedQA = Annotated[
    str | None,
    typer.Option(
        "--medqa", metavar="DIR", help="MedQA for the study mmlu, if it is not next to DATA."
    ),
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
        help="Processes (1; for studies without a model as many as cores).",
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option("--figures", metavar="DIR", help="Draw the study's figures there, as SVG."),
]
Folder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where results are kept.", show_default=True)
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the folders of the runs.")]
OnTest = Annotated[
    bool,
    typer.Option(
        "--paper-selection", help="Choose kl_weight and k on the test set, as the paper did."
    ),
]


def reproduce(
    study: Name = None,
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
    """Make a table of the paper again, with its numbers and ours.

    Without --model and --data the sample model is measured on its own questions, in a table of
    its own. Measurements are kept, so a command that was stopped continues where it was. Numbers of
    the paper are shown only for its own model on its own data. Studies of synthetic streams take
    no model and no data. Without STUDY all studies are listed, each with its claim and its cost.

    List all studies with their claims and costs:
        stacksl-lab reproduce
    Does it work here? A few items of the sample:
        stacksl-lab reproduce kl --quick
    The paper's table, on the paper's data:
        stacksl-lab reproduce medqa --model Qwen/Qwen3-4B-Base --data medqa
    """
    from stacksl_lab.streams.trial import StreamStudy
    from stacksl_lab.studies import listing, study_named
    from stacksl_lab.study.bench import Bench
    from stacksl_lab.study.records import record
    from stacksl_lab.study.store import Store

    if study is None:
        rows = [{"name": name, "about": about} for name, about in listing().items()]
        cells = [(row["name"], row["about"]) for row in rows]
        print(as_json(rows) if json else table(("name", "what it is"), cells))
        return
    chosen = study_named(study)
    store = Store(out / chosen.store_file())
    streams = isinstance(chosen, StreamStudy)
    if streams:
        typed = {"--model": model, "--data": data, "--test": test, "--medqa": medqa, "--set": set_,
                 "--paper-selection": paper_selection, "--keep": keep}  # fmt: skip
        _refuse_for_streams(study, typed)
        bench = Bench(store, jobs or os.cpu_count() or 1, quick)
    else:
        if (jobs or 1) > 1 and int(os.environ.get("WORLD_SIZE") or "1") > 1:
            raise SettingsError("--jobs starts processes of its own: give it without torchrun")
        setup = _setup(study, model, data, test, medqa, set_, quick)
        bench = _language_bench(setup, store, jobs or 1, quick, out, keep, paper_selection)
    if figures is not None:
        check_figures(chosen, figures)
    count = seeds or ((2 if streams else 1) if quick else chosen.seeds)
    rows_of_study = measured(chosen, bench, count, quiet)
    if json:
        print(as_json(record(chosen, bench, count, rows_of_study)), flush=True)
    else:
        print(_text_of(chosen, rows_of_study), flush=True)
    if figures is not None:
        draw(chosen, rows_of_study, figures)


def _refuse_for_streams(study: str, typed: Mapping[str, Any]) -> None:
    """Refuse options that a study of synthetic streams has no use for."""
    if wrong := [name for name, value in typed.items() if value]:
        raise SettingsError(
            f"'{study}' is played on synthetic streams, without a model or data: leave out"
            f" {', '.join(wrong)}"
        )


def _setup(
    study: str,
    model: str | None,
    data: str | None,
    test: str | None,
    medqa: str | None,
    set_: Sequence[str] | None,
    quick: bool,
) -> Setup:
    """The model and the questions of a study of language models, cut down if `quick`."""
    from stacksl_lab.language.sources import quick as cut
    from stacksl_lab.language.sources import setup_of

    setup = setup_of(study, model, data, test, medqa, dict(_pairs(set_ or [])))
    warn([] if setup.fault is None else [setup.fault])
    return cut(setup) if quick else setup


def _language_bench(
    setup: Setup,
    store: Store,
    jobs: int,
    quick: bool,
    out: Path,
    keep: bool,
    paper_selection: bool,
) -> Bench:
    """The bench on which a study of language models is measured."""
    from stacksl_lab.language.base_evaluation import evaluate_base
    from stacksl_lab.language.studies import LanguageBench

    return LanguageBench(
        store, jobs, quick, setup=setup, play=play, evaluate_base=evaluate_base,
        folder=out / "cells", keep=keep, paper_selection=paper_selection,
    )  # fmt: skip


def measured(study: Study, bench: Bench, count: int, quiet: bool) -> list[Row]:
    """The rows of a study over seeds 0 to `count` − 1, with a line of progress.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    before = len(bench.store)
    try:
        return study.reproduce(bench, range(count), None if quiet else _tell)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(
            f"stopped; {len(bench.store) - before} new measurements are kept in"
            f" {bench.store.path}: the same command continues"
        ) from stop
    finally:
        if not quiet and sys.stderr.isatty():
            print(file=sys.stderr)  # below the line that is written over


def _tell(pace: Pace) -> None:
    """One line on stderr, written over where that is a terminal."""
    left = pace.seconds_left
    when = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    bar = "#" * round(24 * pace.done / pace.total)
    line = f"[{bar:<24}] {pace.done} of {pace.total} ({pace.job.name}), {when} left"
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(start + line, file=sys.stderr, end=end, flush=True)


def _text_of(study: Study, rows: Sequence[Row]) -> str:
    from stacksl_lab.language.paper import INCONSISTENCIES

    lines = [f"{study.title}. Claimed: {study.claim}.", "", study.as_markdown(rows)]
    if study.name in INCONSISTENCIES and any(row.paper is not None for row in rows):
        lines += ["", "Of the paper's table:", *(f"- {s}" for s in INCONSISTENCIES[study.name])]
    return "\n".join(lines)


def check_figures(study: Study, folder: Path) -> None:
    """That the folder can be written, before hours of measuring and not after them."""
    if study.figures is None:
        print(f"'{study.name}' has no figure: its table says it all", file=sys.stderr)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise _cannot_draw(folder, fault) from fault


def draw(study: Study, rows: Sequence[Row], folder: Path) -> None:
    """Draw the study's figures, if it has any, and say where they are."""
    from stacksl_lab.figures.style import save

    if study.figures is None:
        return
    try:
        for path in save(study.figures(rows), folder):
            print(f"drew {path}", file=sys.stderr)
    except OSError as fault:
        raise _cannot_draw(folder, fault) from fault


def _cannot_draw(folder: Path, fault: OSError) -> RunError:
    return RunError(f"cannot draw in {folder}: {fault.strerror}; give another folder")


def _pairs(pairs: Sequence[str]) -> list[tuple[str, Any]]:
    """Settings written NAME=VALUE, those of `run --set`, by their names in a study."""
    from stacksl.cli.verbs.run import setting_of
    from stacksl.runs.settings.resolve import known_settings, unknown_setting
    from stacksl_lab.language.cells import name_in_study

    settings = [setting_of(text) for text in pairs]
    for name, _ in settings:
        if name in ("seed", "lm.model", "budget"):
            raise SettingsError(f"--set takes a setting of a run, and '{name}' cannot be set here")
        if name not in known_settings():
            raise SettingsError(unknown_setting(name))
    return [(name_in_study(name), value) for name, value in settings]


def play(train: Dataset, test: Dataset, settings: Mapping[str, Any], folder: Path) -> Result:
    """Play a run in `folder`, or continue the one that is there; its result.

    Raises:
        KeyboardInterrupt: it was stopped, and can be gone on with.
        StackslError: it failed.
    """
    from stacksl.api import Run, prepare
    from stacksl_lab.language.cells import names_in_run
    from stacksl_lab.language.paper import STREAMED

    start = time.monotonic()
    if (folder / "run.db").is_file():
        run = Run.open(folder).resume()
    else:
        shutil.rmtree(folder, ignore_errors=True)  # begun, but no run yet
        known = names_in_run({**STREAMED, **settings})
        run = prepare(train, test=test, out=folder, settings=known).start()
    if run.status()["state"] == "stopped":
        raise KeyboardInterrupt  # the run took it and put itself away
    return _result(run, str(settings.get("clip", "scale")), time.monotonic() - start)


def _result(run: Run, clip: str, seconds: float) -> Result:
    from stacksl_lab.language.cells import Result

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
    bought = {decision.round for decision in rounds if decision.status == "reserved"}
    return bool(asked) and bought == set(range(1, asked + 1))


def _losses(adapters: Path, clip: str) -> dict[str, float | None]:
    """Losses of the last refit, as trained on: `literal` clipping cuts them, `scale` does not."""
    records = [json_.loads(p.read_text(encoding="utf-8")) for p in sorted(adapters.glob("*.json"))]
    if not records:
        return {}
    trained = max(records, key=lambda refit: int(refit["number"]))["trained"]
    cut = clip == "literal"
    return {
        "mean_loss": trained.get("loss_clipped" if cut else "loss"),
        "max_loss": trained.get("largest_clipped" if cut else "largest"),
        "clipped": trained.get("clipped"),
    }
