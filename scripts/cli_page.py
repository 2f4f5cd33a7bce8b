"""Write the options of every verb into docs/cli.md, from the command line itself.

A test holds the page equal to what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from stacksl.cli.app import app
from stacksl.cli.options import FLAGS
from stacksl.runs.settings.fields import descriptions
from stacksl_lab.verbs.app import app as laboratory

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
EVERYWHERE = ("json", "debug", "help")
BEGIN, END = (f"<!-- made by scripts/cli_page.py: {word} -->\n" for word in ("begin", "end"))


def refreshed(page: str) -> str:
    """The `page` with the part between its two marks written anew."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(lines()) + "\n\n" + END + rest.partition(END)[2]


def lines() -> Iterator[str]:
    """The tables of options, verb by verb, and the settings that `--set` alone reaches."""
    for each in (app, laboratory):
        for verb, command in verbs(typer.main.get_command(each)):
            yield from table(f"`{each.info.name} {verb}`", dict(options(command)))
            yield ""
    rows = {f"`{name}`": about for name, about in descriptions().items() if name not in FLAGS}
    yield from table("by `--set` alone", rows)


def verbs(command: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb with its command."""
    for name, inner in command.commands.items():
        verb = f"{before} {name}".strip()
        if hasattr(inner, "commands"):
            yield from verbs(inner, verb)
        else:
            yield verb, inner


def options(command: Any) -> Iterator[tuple[str, str]]:
    """The arguments and options of a command with what they do, but for those of every verb."""
    context = command.context_class(command)
    for each in command.get_params(context):
        words = [each.metavar or each.name.upper()]
        if each.param_type_name == "option":
            if each.name in EVERYWHERE:
                continue
            words = [" / ".join([*each.opts, *each.secondary_opts])]
            words += [] if each.is_flag else [each.metavar or each.name.upper()]
        yield f"`{' '.join(words)}`", " ".join((each.help or "").split())


def table(head: str, rows: dict[str, str]) -> Iterator[str]:
    """A table of two columns."""
    yield f"| {head} | |"
    yield "|---|---|"
    for name, what in rows.items():
        yield f"| {name} | {what} |".replace("|FILE", "\\|FILE")


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
