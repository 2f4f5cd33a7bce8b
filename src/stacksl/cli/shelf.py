"""`stacksl status`, `stacksl report` and `stacksl ls`: what there is, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, facts, share, spent, table
from stacksl.errors import unknown_name

__all__ = ["KINDS", "ls", "report", "status"]

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        show_default=False,
        help="runs (the default), gates, scorers, followers, labelers, features or presets.",
    ),
]
Folder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Where the runs lie.", show_default=True)
]


def status(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Where a run stands: its state, rounds, labels and money.

    It only reads, so it may be asked while the run is going on.
    """
    from stacksl.api import Run

    result = Run.open(run).status()
    print(as_json(result) if json else _shown(result))


def _shown(result: Mapping[str, Any]) -> str:
    labels = f"{count(result['asked'])} of {count(result['budget'])} bought"
    warnings = [("Warning", sentence) for sentence in result.get("warnings", ())]
    return facts(
        [
            ("Run", result["run"]),
            ("State", result["state"]),
            ("Rounds", count(result["rounds"])),
            ("Labels", f"{labels}, {count(result['left'])} left"),
            ("Cost", spent(result["money"])),
            ("Gate", result.get("gate")),
            ("Accuracy before each label", share(result.get("accuracy_before"))),
            ("Why", result.get("sentence")),
            ("Go on with", result.get("resume")),
            *warnings,
        ]
    )


def report(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Write a run's report and model card again and print where the report is."""
    from stacksl.api import Run

    path = Run.open(run).report()
    print(as_json({"run": run, "report": path}) if json else path)


def ls(
    kind: Kind = "runs",
    folder: Folder = Path("runs"),
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The runs there are, or the names that a setting knows."""
    if kind == "runs":
        _list_runs(folder, json)
        return
    if kind not in KINDS:
        raise unknown_name("kind", kind, ["runs", *KINDS])
    named = KINDS[kind]()
    rows = [{"name": name, "about": about} for name, about in named.items()]
    shown = table(("name", "what it is"), ([row["name"], row["about"]] for row in rows))
    print(as_json(rows) if json else shown)


def _list_runs(folder: Path, json: bool) -> None:
    from stacksl.api import list_runs

    rows = list_runs(folder)
    if json:
        print(as_json(rows))
    elif not rows:
        print(f"no runs in {folder} (stacksl run makes one)")
    else:
        header = ("run", "state", "rounds", "asked", "budget", "accuracy before")
        print(table(header, (_row(each) for each in rows)))


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    accuracy = share(each.get("accuracy_before"))
    return (each["run"], each["state"], each["rounds"], each["asked"], each["budget"], accuracy)


def _first_lines(known: Mapping[str, Any]) -> dict[str, str]:
    """Each name with the first sentence of what it stands for."""
    return {name: _first(known[name].__doc__) for name in sorted(known)}


def _first(doc: str | None) -> str:
    paragraph = " ".join((doc or "").strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def _gates() -> dict[str, str]:
    from stacksl.game.gates import GATES

    return _first_lines(GATES)


def _scorers() -> dict[str, str]:
    return {
        "newton": "one-pass online Newton on the softmax (the default for items with options)",
        "ridge": "ridge regression on one-hot targets (the default for a fixed set of classes)",
        "sgd": "the paper's gradient steps, with KL to a reference and clipping",
    }


def _followers() -> dict[str, str]:
    from stacksl.game.followers import FOLLOWERS

    return _first_lines(FOLLOWERS)


def _presets() -> dict[str, str]:
    from stacksl.runs.presets import PRESETS

    return {
        name: ", ".join(f"{key} {value}" for key, value in settings.items())
        for name, settings in PRESETS.items()
    }


def _labelers() -> dict[str, str]:
    return {
        "oracle": "the file's own answers",
        "noisy:P": "the file's own answers, each wrong with probability P (for studies)",
    }


def _features() -> dict[str, str]:
    return {
        "hashing": "hashed n-grams of words and characters, no download (the default)",
        "sentences:minilm": "all-MiniLM-L6-v2, a small sentence encoder (extra minilm)",
        "sentences:NAME_OR_DIR": "any encoder that sentence-transformers loads (extra sentences)",
    }


KINDS: Mapping[str, Callable[[], dict[str, str]]] = {
    "gates": _gates,
    "scorers": _scorers,
    "followers": _followers,
    "labelers": _labelers,
    "features": _features,
    "presets": _presets,
}
"""What `ls` can list beside runs; each is read from its registry when it is asked for."""
