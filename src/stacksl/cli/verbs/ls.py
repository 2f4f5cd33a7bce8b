"""`stacksl status`, `stacksl report` and `stacksl ls`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, as_toml, gate, table
from stacksl.cli.verbs.dry_run import shown_forecast
from stacksl.cli.verbs.run import summary
from stacksl.errors import SettingsError, unknown_name
from stacksl.report.wording import count, interval, percent

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.changes.people import Annotator
    from stacksl.runs.storage.folder import RunFolder

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        show_default=False,
        help="runs (the default), settings, gates, scorers, labelers, features, "
        "presets or objectives.",
    ),
]
Folder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="The folder of the runs.", show_default=True)
]

Plugins = Annotated[
    str | None, options.option("Modules of your own, whose parts are listed.", "A,B")
]

STEPS = " so far. It moves in steps of 25, because smaller steps would reveal an audit's answers."


def status(
    run: options.RunFolder,
    settings: Annotated[
        bool, typer.Option("--settings", help="The settings of the run, and where each was set.")
    ] = False,
    toml: Annotated[
        bool, typer.Option("--toml", help="With --settings: as a file that `run --config` takes.")
    ] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Print a run's state, labels, money, annotators and forecast.

    It only reads, so it may be asked while the run is going on.

    The status of a run, also while it is running:
        stacksl status runs/first
    For a script:
        stacksl status runs/first --json
    """
    opened = options.open_run(run)
    if toml and not settings:
        raise SettingsError("--toml is the form of --settings: give both")
    if settings:
        print(_settings_of(opened.folder, toml=toml, json=json))
        return
    if json:
        print(as_json(status_facts(opened)))
        return
    annotators = opened.annotators() if by_file(opened) else []
    cells = [(who.name, who.open, who.answered, _state(who)) for who in annotators]
    people = [table(("Who", "Open", "Answered", ""), cells)] if cells else []
    status = opened.status()
    forecast = _forecast(opened, status)
    precision = "" if status["state"] == "finished" else STEPS
    from stacksl.runs.settings.conflicts import LOCAL, OPENAI

    by_model = str(opened.folder.resolved()["labeler"]).partition(":")[0] in (OPENAI, LOCAL)
    measure = "Agreement with the model" if by_model else "Accuracy"
    ahead = [shown_forecast(forecast, precision, measure)] if forecast and forecast["now"] else []
    rounds = status["mode"] == "stream" and status["state"] != "finished"
    details = [
        ("Rounds", count(status["rounds"]) if rounds else None),
        ("Strategy", gate(opened.folder.resolved())),
        ("Why", status["sentence"]),
        ("Page open at", status["page"]),
        ("Go on with", status["resume"]),
        *(("Warning", sentence) for sentence in status["warnings"]),
    ]
    print("\n\n".join([summary(opened, status, details), *people, *ahead]))


def by_file(run: Run) -> bool:
    """Whether people answer the run by file."""
    return bool(run.folder.resolved()["labeler"] == "file")


def status_facts(run: Run) -> dict[str, Any]:
    """The status of one run, as the JSON of `status`."""
    people = {"annotators": [*map(asdict, run.annotators())]} if by_file(run) else None
    status = run.status()
    return {**status, "forecast": _forecast(run, status), "people": people}


def _forecast(run: Run, status: dict[str, Any]) -> dict[str, Any] | None:
    """The forecast; None if the accuracy was measured, which an estimate may contradict."""
    measured = "number" in run.folder.read_state().get("shown", {})  # also where facts were erased
    return None if status["test"] or status["audit"] or measured else run.forecast()


def _state(who: Annotator) -> str | None:
    notes = ["away"] if who.away else []
    notes += [who.standing.replace("_", " ")] if who.standing else []
    notes += [f"wrong in {who.wrong} of {who.twice} audited rows asked again"] if who.twice else []
    return ", ".join(notes) or None


def _settings_of(folder: RunFolder, *, toml: bool, json: bool) -> str:
    if toml:
        return "\n".join(f"{name} = {as_toml(value)}" for name, value in folder.config().items())
    from stacksl.runs.storage.folder import SECRET

    settings = {name: setting for name, setting in folder.settings().items() if name != SECRET}
    if json:
        return as_json({name: setting._asdict() for name, setting in settings.items()})
    rows = []
    for name, setting in settings.items():
        values: Any = [setting.value]
        if isinstance(setting.value, dict):  # the files that were read, with size, time and digest
            values = [f"{path}, {size:,} bytes" for path, (size, *_) in setting.value.items()]
        rows += [[name, as_toml(value), setting.origin or ""] for value in values]
    return table(["name", "value", "from"], rows)


def report(
    run: options.RunFolder,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write a run's report and model card again and print where the report is.

    Write the report again and print its path:
        stacksl report runs/first
    The path as JSON:
        stacksl report runs/first --json
    """
    path = options.open_run(run).report()
    print(as_json({"run": run, "report": path}) if json else path)


def ls(
    kind: Kind = "runs",
    folder: Folder = Path("runs"),
    plugins: Plugins = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the runs, or the names that a setting takes.

    The runs in ./runs:
        stacksl ls
    The runs of another folder:
        stacksl ls runs --folder ~/experiments
    All gates:
        stacksl ls gates
    """
    if plugins is not None:
        from stacksl.runs.settings.resolve import load_plugins

        load_plugins(plugins)
    if kind == "runs":
        from stacksl.api import list_runs

        runs = list_runs(folder)
        header = ("run", "state", "rounds", "labels", "budget", "accuracy")
        none = f"no runs in {folder} (stacksl run makes one)"
        print(as_json(runs) if json else table(header, map(_row, runs)) if runs else none)
        return
    if kind not in KINDS:
        raise unknown_name("kind", kind, ["runs", *KINDS])
    descriptions = KINDS[kind]()
    rows = [{"name": name, "about": about} for name, about in descriptions.items()]
    text = table(("name", "what it is"), ([row["name"], row["about"]] for row in rows))
    print(as_json(rows) if json else text)


def _row(row: Mapping[str, Any]) -> tuple[object, ...]:
    measured = row.get("audit") or row.get("test")
    accuracy = measured and f"{percent(measured['accuracy'])} ({interval(*measured['interval'])})"
    return (row["run"], row["state"], row["rounds"], row["spent"], row["budget"], accuracy)


def _first_lines(module: str, registry: str) -> dict[str, str]:
    """Each name in a registry of a module with the first sentence of its description."""
    sentences = {}
    for name, part in sorted(getattr(import_module(module), registry).items()):
        paragraph = " ".join((part.__doc__ or "").strip().split("\n\n")[0].split())
        sentences[name] = paragraph.split(". ")[0].rstrip(".")
    return sentences


def _presets() -> dict[str, str]:
    from stacksl.runs.settings.resolve import PRESETS

    return {
        name: ", ".join(f"{key} {value}" for key, value in settings.items())
        for name, settings in PRESETS.items()
    }


def _gates() -> dict[str, str]:
    others = _first_lines("stacksl.core.gates.registry", "GATES")
    covers = "The default for fixed classes: ask for labels that tell most about uncertain items"
    return dict(sorted({"coverage": covers, **others}.items()))


def _labelers() -> dict[str, str]:
    people = "`file`: people, in sheets that any spreadsheet opens; `stacksl answer` takes them"
    model = "`openai:MODEL`: a model on a server with the protocol of OpenAI, at --url"
    local = "`hf:NAME_OR_DIR`: a causal language model in this process, by its log-likelihoods"
    others = _first_lines("stacksl.labelers.registry", "LABELERS")
    return {"file": people, "openai": model, "hf": local, **others}


KINDS: Mapping[str, Callable[[], dict[str, str]]] = {
    "settings": lambda: import_module("stacksl.runs.settings.fields").descriptions(),
    "gates": _gates,
    "scorers": partial(_first_lines, "stacksl.core.scorers", "SCORERS"),
    "labelers": _labelers,
    "features": partial(_first_lines, "stacksl.features", "FEATURES"),
    "presets": _presets,
    "objectives": lambda: dict(import_module("stacksl.lm.training.refit").OBJECTIVES),
}
"""What `ls` can list besides runs; each is read from its registry when it is asked for."""


VERBS = (status, report, ls)
