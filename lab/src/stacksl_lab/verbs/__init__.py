"""The command `stacksl-lab`."""

from __future__ import annotations


def main() -> None:
    """The entry point of the command `stacksl-lab`."""
    from stacksl.cli import main as run

    run("stacksl-lab", "stacksl_lab.verbs.app")
