"""The verbs of `stacksl`, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

from stacksl.cli import options
from stacksl.cli.printing import printed_warnings
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
    "never exceeds the budget, and gives you a trained model, a labeled table, and a report."
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
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What comes before any verb."""
    context.with_resource(printed_warnings())


_PANELS = (
    ("Adapt a model", (topics, run, answer, label)),
    ("Change a run", (change,)),
    ("Use the model", (results, export)),
    ("Look at runs", (ls,)),
)


def examples_of(verb: Callable[..., None]) -> tuple[tuple[str, str], ...]:
    """The examples at the end of a verb's docstring: what each is for, and the words to type."""
    lines = [line.strip() for line in (verb.__doc__ or "").split("\n\n")[-1].splitlines()]
    return tuple(zip(lines[::2], lines[1::2], strict=False))


def add_verb(parent: typer.Typer, verb: Callable[..., None], panel: str | None = None) -> None:
    """Add a verb: the paragraphs of its docstring are its help, with the examples at the end."""
    paragraphs = (verb.__doc__ or "").strip().split("\n\n")[:-1]
    examples = (
        f"[dim]{_escaped(aim)}[/dim]\n{_escaped(words)}" for aim, words in examples_of(verb)
    )
    parent.command(
        cls=options.COMMANDS.get(verb, TyperCommand),
        help="\n\n".join(_escaped(" ".join(paragraph.split())) for paragraph in paragraphs),
        epilog="\n".join(("[bold]Examples[/bold]", *examples)),
        rich_help_panel=panel,
    )(verb)


def _escaped(text: str) -> str:
    """`text` with its square brackets shown, not read as markup."""
    return text.replace("[", "\\[")


for _panel, _modules in _PANELS:
    for _module in _modules:
        for _verb in _module.VERBS:
            add_verb(app, _verb, _panel)
_ledger = typer.Typer(
    no_args_is_help=True, help="Read and check a run's ledger.", rich_markup_mode="rich"
)
for _verb in ledger.VERBS:
    add_verb(_ledger, _verb)
app.add_typer(_ledger, name="ledger", rich_help_panel="Look at runs")
