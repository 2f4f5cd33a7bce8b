"""The verbs of `stacksl-lab`, put together."""

from __future__ import annotations

import typer

from stacksl.cli.app import add_verb
from stacksl_lab.verbs.compare import compare
from stacksl_lab.verbs.reproduce import reproduce

app = typer.Typer(
    name="stacksl-lab",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="The laboratory of stacksl: what strategies would have bought, and the paper's studies.",
)
app.callback()(lambda: None)
add_verb(app, compare)
add_verb(app, reproduce)
