"""The options of who answers, and of what measures the model."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Annotators", "AskDir", "AskMode", "Audit", "Batch", "MinPerClass", "Overlap", "Owned"]

_SPEND = "Labels and money"

Batch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_SPEND,
        help="Purchases open in all: the rows of people's sheets, or what a pool ranks at a time "
        "(25).",
    ),
]
Annotators = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        rich_help_panel=_SPEND,
        help="Who fills in sheets, with --labeler file: each gets rows of their own.",
    ),
]
Overlap = Annotated[
    int | None,
    typer.Option(
        metavar="M",
        rich_help_panel=_SPEND,
        help="Rows that two annotators get, to see whether they agree; each answer is paid.",
    ),
]
AskDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=_SPEND,
        help="Where sheets are written, for colleagues to find; RUN/ask, private, if absent.",
    ),
]
AskMode = Annotated[
    str | None,
    typer.Option(
        metavar="OCTAL",
        rich_help_panel=_SPEND,
        help="Permissions of sheets, such as 0640 (0600); needs --ask-dir.",
    ),
]
Audit = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_SPEND,
        help="Labels of the budget that measure the final model and never train it; by the budget "
        "if absent, 0 for none.",
    ),
]
Owned = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_SPEND,
        help="Items with labels that you hold already: learnt first, outside the budget.",
    ),
]
MinPerClass = Annotated[
    int | None,
    typer.Option(
        metavar="M",
        rich_help_panel=_SPEND,
        help="Labels to buy of each class at least, as far as it can be found: at most half of "
        "each batch; needs --mode pool.",
    ),
]
