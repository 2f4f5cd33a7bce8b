"""`stacksl label`: the questions of a run on a page in the browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, facts
from stacksl.cli.verbs.run import run_facts, shown_run, word
from stacksl.errors import SettingsError

PORT = 8417
GUIDELINES = "guidelines.txt"  # in the run's folder
LONGEST = 100_000  # characters of them


def label(
    run: options.RunFolder,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for a free one.")
    ] = PORT,
    host: Annotated[
        str,
        options.option(
            "An address to listen on, or the name that a proxy with TLS on this machine has.",
            "NAME",
        ),
    ] = "127.0.0.1",
    idle: Annotated[
        str,
        options.option(
            "After so long without an answer, a person's rows go to others: 90s, 30m, 2h, or 0"
            " for never.",
            "TIME",
        ),
    ] = "30m",
    guidelines: Annotated[
        Path | None,
        options.option("A text shown next to each question; the run keeps a copy.", "FILE"),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Serve a page where people answer the questions of a run, and play the run.

    The command prints a link for each annotator, which works once and opens a session of 12 hours.
    Answers are entered in the same way as answers in sheets. The owner's page takes filled-in
    sheets and changes; other commands that change the run refuse while the page is open. The
    command ends when the run has finished. Ctrl-C stops the page earlier, and the same command
    continues. For a finished run it opens only the owner's page, where you can correct answers and
    make the report again.

    A page for the annotators of a run:
        stacksl label runs/first
    On another port, with a text for the annotators next to each question:
        stacksl label runs/first --port 8000 --guidelines guidelines.txt
    """
    from stacksl.label.serve import LOOPBACK, is_address, serve

    opened = options.open_run(run)

    def ready(links: Mapping[str, str]) -> None:
        print(f"{facts(links.items())}\n", file=sys.stderr)
        print("Each link works once, in one browser. Ctrl-C stops the page.", file=sys.stderr)
        if is_address(host) and host not in LOOPBACK:
            print(
                "Others can read what is sent to this address: put a server with TLS in front.",
                file=sys.stderr,
            )

    match = re.fullmatch(r"(\d{1,6})([smh]?)", idle.strip())
    if match is None or (not match[2] and int(match[1])):
        raise SettingsError(f"--idle must be a time such as 90s, 30m, 2h or 0, got '{idle[:20]}'")
    limit = float(match[1]) * {"": 0, "s": 1, "m": 60, "h": 3600}[match[2]]
    text = _guidelines(opened.path, guidelines)
    with suppress(KeyboardInterrupt):  # which the server may have used up
        serve(opened.folder, ready, host=host, port=port, idle=limit, guidelines=text)
    if opened.status()["state"] != "finished":
        call = f"stacksl label {word(run)}"
        raise KeyboardInterrupt(f"the page is closed, and answers are kept: `{call}` continues")
    print(as_json(run_facts(opened)) if json else shown_run(opened))


def _guidelines(folder: Path, given: Path | None) -> str:
    """The text shown next to each question, which the run keeps for the next call."""
    from stacksl.files.atomic import write_atomic

    copy = folder / GUIDELINES
    if given is None:
        return copy.read_text(encoding="utf-8") if copy.is_file() else ""
    try:
        text = given.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"--guidelines must be a text file in UTF-8, got {given}") from None
    if len(text) > LONGEST:
        raise SettingsError(f"--guidelines may have {LONGEST:,} characters, got {len(text):,}")
    write_atomic(copy, text)
    return text


VERBS = (label,)
