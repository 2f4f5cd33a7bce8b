"""Every verb explains itself: its options, and examples that can be typed."""

from __future__ import annotations

import shlex

import pytest
import typer

from stacksl.cli.app import app
from stacksl.cli.examples import EXAMPLES, prose

ROOT = typer.main.get_command(app)


def command_of(verb: str):
    """The command behind `run` or `ledger verify`."""
    command = ROOT
    for word in verb.split():
        command = command.commands[word]
    return command


def verbs(command=ROOT, before: str = "") -> list[str]:
    found: list[str] = []
    for name, inner in command.commands.items():
        verb = f"{before} {name}".strip()
        found += verbs(inner, verb) if hasattr(inner, "commands") else [verb]
    return found


VERBS = verbs()


def test_every_verb_has_examples_and_every_example_a_verb() -> None:
    assert sorted(VERBS) == sorted(EXAMPLES)


@pytest.mark.parametrize(
    ("verb", "words"), [(verb, words) for verb, rows in EXAMPLES.items() for _, words in rows]
)
def test_an_example_parses(verb: str, words: str) -> None:
    program, *rest = shlex.split(words.partition(" < ")[0], comments=True)
    assert program == "stacksl"
    assert " ".join(rest).startswith(verb)
    context = command_of(verb).make_context(verb, rest[len(verb.split()) :])
    assert not context.args, "nothing was left over"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_its_examples_and_its_json(stacksl, verb: str) -> None:
    said = stacksl(*verb.split(), "--help")
    assert said.code == 0
    assert "--json" in said.out
    assert "--debug" in said.out
    shown = " ".join(said.out.split()) + " "
    for why, words in EXAMPLES[verb]:
        assert " ".join(why.split()) in shown
        assert f" {words} " in shown, "an example fits on its line"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_explains_every_option(verb: str) -> None:
    command = command_of(verb)
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_the_version(stacksl) -> None:
    from stacksl import __version__

    said = stacksl("--version")
    assert (said.code, said.out) == (0, f"{__version__}\n")


def test_prose_joins_lines_and_keeps_paragraphs_and_brackets() -> None:
    assert prose("One\n    line [x].\n\n    Two.") == "One line \\[x].\n\nTwo."
