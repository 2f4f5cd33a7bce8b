"""`stacksl label`: the questions of a run on a page in the browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from stacksl.cli import options
from stacksl.cli.live import Stopped
from stacksl.cli.printing import as_json, facts
from stacksl.cli.verbs.run import run_facts, shown_run

PORT = 8417


def label(
    run: options.RunFolder,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for a free one.")
    ] = PORT,
    host: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="An address to listen on, or the name that a proxy with TLS on this machine has.",
        ),
    ] = "127.0.0.1",
    open_: Annotated[
        bool, typer.Option("--open", help="Open the first annotator's link in the browser.")
    ] = False,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show the questions of a run to its annotators on a page, and play the run meanwhile.

    Prints a link for each annotator, which works once and opens a session of 12 hours. Answers
    are entered as those of sheets are, and pages and sheets may take turns. Ends when the run has
    finished; Ctrl-C stops the page before, and the same command continues.
    """
    from stacksl.api import Run
    from stacksl.label.serve import LOOPBACK, is_address, serve

    opened = Run.open(run)

    def ready(links: Mapping[str, str]) -> None:
        print(f"{facts(links.items())}\n", file=sys.stderr)
        print("Each link works once, in one browser. Ctrl-C stops the page.", file=sys.stderr)
        if is_address(host) and host not in LOOPBACK:
            print(
                "Others can read what is sent to this address: put a server with TLS in front.",
                file=sys.stderr,
            )
        if open_:
            _open(opened.path, next(iter(links.values())))

    try:
        serve(opened.folder, ready, host=host, port=port)
    except KeyboardInterrupt:
        raise Stopped(
            f"the page is closed, and answers are kept: `stacksl label {run}` continues"
        ) from None
    print(as_json(run_facts(opened)) if json else shown_run(opened))


def _open(folder: Path, link: str) -> None:
    """Open a link through a private file: the words of a command are visible to all users."""
    import html
    import threading
    import webbrowser

    from stacksl.files.atomic import write_atomic

    place = folder / ".open.html"
    page = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    write_atomic(place, page)
    webbrowser.open(place.resolve().as_uri())
    timer = threading.Timer(30.0, place.unlink, kwargs={"missing_ok": True})
    timer.daemon = True
    timer.start()
