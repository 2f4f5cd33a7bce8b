"""The command line: what a user types, and what comes back.

Results go to stdout, everything else (warnings, progress, errors) to stderr. `docs/cli.md` is the
contract of every verb's `--json`.
"""

from __future__ import annotations

__all__ = ["main"]


def main(program: str = "stacksl", app: str = "stacksl.cli.app") -> None:
    """The entry point of the command `stacksl`: runs the words typed and exits with their code.

    `app` is the module of its verbs.
    """
    import sys

    from stacksl.cli.entry import call, in_crew, settle_streams

    settle_streams()
    sys.exit(in_crew(lambda: call(sys.argv[1:], program, app)))
