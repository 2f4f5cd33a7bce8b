"""The verbs of `stacksl`, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.core import TyperCommand

from stacksl.cli import options
from stacksl.cli.examples import EXAMPLES, examples, prose
from stacksl.cli.verbs import (
    answer,
    change,
    export,
    label,
    ledger,
    ls,
    results,
    run,
    topics,
)

_ABOUT = (
    "Adapt a model with a fixed label budget.\n\nstacksl decides which labels are worth buying, "
    "never exceeds the budget, and gives you a trained model, a table with a label in every row, "
    "and a report."
)

app = typer.Typer(
    name="stacksl",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help=_ABOUT,
    epilog="Start with `stacksl run`: it needs no file and no download.",
)


def _version(asked: bool) -> None:
    if asked:
        from stacksl.version import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _stacksl(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What comes before any verb."""


_VERBS: tuple[tuple[str, str, Callable[..., None]], ...] = (
    ("topics", "Adapt a model", topics.topics),
    ("run", "Adapt a model", run.run),
    ("answer", "Adapt a model", answer.answer),
    ("label", "Adapt a model", label.label),
    ("resume", "Adapt a model", run.resume),
    ("change", "Change a run", change.change),
    ("forget", "Change a run", change.forget),
    ("evaluate", "Use the model", results.evaluate),
    ("predict", "Use the model", results.predict),
    ("export", "Use the model", export.export),
    ("status", "Look at runs", ls.status),
    ("report", "Look at runs", ls.report),
    ("ls", "Look at runs", ls.ls),
    ("ledger path", "Look at runs", ledger.path),
    ("ledger verify", "Look at runs", ledger.verify),
    ("ledger requests", "Look at runs", ledger.requests),
    ("ledger replay", "Look at runs", ledger.replay),
)


def add_verb(
    parent: typer.Typer,
    name: str,
    function: Callable[..., None],
    shown: Sequence[tuple[str, str]],
    panel: str | None = None,
) -> None:
    """Add the verb `name` with the examples `shown` at the end of its help."""
    parent.command(
        name,
        cls=options.COMMANDS.get(function, TyperCommand),
        help=prose(function.__doc__),
        epilog=examples(shown),
        rich_help_panel=panel,
    )(function)


_ledger = typer.Typer(
    no_args_is_help=True, help="Read and check a run's ledger.", rich_markup_mode="rich"
)
for _verb, _panel, _function in _VERBS:
    _first, _, _second = _verb.partition(" ")
    if _second:
        add_verb(_ledger, _second, _function, EXAMPLES[_verb])
    else:
        add_verb(app, _verb, _function, EXAMPLES[_verb], _panel)
app.add_typer(_ledger, name="ledger", rich_help_panel="Look at runs")
