"""The verbs of `stacksl-lab`, put together."""

from __future__ import annotations

import typer

from stacksl.cli.app import add_verb
from stacksl.cli.examples import by_verb
from stacksl_lab.verbs.compare import compare
from stacksl_lab.verbs.reproduce import reproduce

EXAMPLES = by_verb("""
Compare the default strategies with random labels:
    stacksl-lab compare labeled.csv --budgets 100,200,500
Compare with strategies of other libraries (pip install 'stacksl[bench]'):
    stacksl-lab compare labeled.csv --strategies coverage,typiclust,badge --seeds 10

List all studies with their claims and costs:
    stacksl-lab reproduce
Does it work here? A few items of the sample:
    stacksl-lab reproduce kl --quick
The paper's table, on the paper's data:
    stacksl-lab reproduce medqa --model Qwen/Qwen3-4B-Base --data medqa
""")

app = typer.Typer(
    name="stacksl-lab",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
    help="The laboratory of stacksl: what strategies would have bought, and the paper's studies.",
)
app.callback()(lambda: None)
add_verb(app, "compare", compare, EXAMPLES["compare"])
add_verb(app, "reproduce", reproduce, EXAMPLES["reproduce"])
