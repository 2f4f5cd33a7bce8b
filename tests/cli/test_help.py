"""Every verb explains itself: its options, and examples that can be typed."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from stacksl.cli import app as program
from stacksl.cli.entry import call
from stacksl.cli.options import FLAGS
from stacksl.runs.settings.resolve import known_settings
from stacksl_lab.verbs import app as laboratory

PROGRAMS = {"stacksl": program, "stacksl-lab": laboratory}


def command_of(verb: str):
    """The command behind `stacksl run` or `stacksl ledger verify`."""
    name, *words = verb.split()
    command = typer.main.get_command(PROGRAMS[name].app)
    for word in words:
        command = command.commands[word]
    return command


def verbs(command, before: str) -> list[str]:
    found: list[str] = []
    for name, inner in command.commands.items():
        verb = f"{before} {name}"
        found += verbs(inner, verb) if hasattr(inner, "commands") else [verb]
    return found


VERBS = [verb for name in PROGRAMS for verb in verbs(command_of(name), name)]


EXAMPLES = {verb: program.examples_of(command_of(verb).callback) for verb in VERBS}


def test_every_verb_has_examples() -> None:
    assert all(EXAMPLES.values())


def test_there_are_few_verbs() -> None:
    assert len({verb.split()[1] for verb in VERBS if verb.startswith("stacksl ")}) <= 15


@pytest.mark.parametrize(
    ("verb", "words"), [(verb, words) for verb, rows in EXAMPLES.items() for _, words in rows]
)
def test_an_example_parses(verb: str, words: str) -> None:
    given = shlex.split(words.partition(" < ")[0], comments=True)
    assert " ".join(given).startswith(verb)
    context = command_of(verb).make_context(verb, given[len(verb.split()) :])
    assert not context.args, "nothing was left over"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_its_examples_and_its_json(verb: str, capfd, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    name, *words = verb.split()
    assert call([*words, "--help"], name, PROGRAMS[name].__name__) == 0
    said = capfd.readouterr().out
    assert len(said.splitlines()) <= 60, "a screen of 100 columns shows it"
    assert "--json" in said
    assert "--debug" in said
    shown = " ".join(said.split()) + " "
    for why, example in EXAMPLES[verb]:
        assert " ".join(why.split()) in shown
        assert f" {example} " in shown, "an example fits on its line"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_explains_every_option(verb: str) -> None:
    command = command_of(verb)
    assert command.help
    for parameter in command.get_params(command.context_class(command)):
        assert parameter.help, parameter.name


def test_the_version(stacksl) -> None:
    from stacksl import __version__

    said = stacksl("--version")
    assert (said.code, said.out) == (0, f"{__version__}\n")


def options_in(text: str) -> set[str]:
    """The options of a help."""
    return set(re.findall(r"^│ (--[a-z-]+)", text, re.MULTILINE)) - {"--help", "--help-all"}


def test_the_help_of_run_is_short_and_help_all_has_every_flag(stacksl) -> None:
    short, full = stacksl("run", "--help"), stacksl("run", "--help-all")
    assert (short.code, full.code) == (0, 0)
    common = {f"--{flag.word}" for flag in FLAGS.values() if flag.common}
    assert common < options_in(short.out) < options_in(full.out)
    assert len(options_in(short.out)) < 30
    flags = {f"--{flag.word}" for flag in FLAGS.values()}
    others = {f"--{name.rpartition('.')[2]}" for name in known_settings() if name not in FLAGS}
    assert flags <= options_in(full.out)
    assert not (options_in(full.out) - flags) & {word.replace("_", "-") for word in others}


def test_every_setting_is_described_and_listed(stacksl) -> None:
    rows = {row["name"]: row["about"] for row in stacksl.told("ls", "settings")}
    assert set(rows) == set(known_settings())
    assert all(rows.values())
    assert rows["gate.gate_scale"].endswith("(gate llf)")
    assert set(FLAGS) <= set(rows)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--top-k", "4"], "--top-k is not an option: give --set top_k=VALUE"),
        (
            ["--max-len-prompt=9"],
            "--max-len-prompt is not an option: give --set lm.max_len_prompt=VALUE",
        ),
        (["--batch", "3"], "--batch is not an option: it is called --open-questions"),
        (["--budget"], "option '--budget' requires an argument; see `stacksl run --help`"),
        (["--kappa"], "--kappa is not an option: give --set gate.kappa=VALUE"),
    ],
)
def test_a_setting_without_a_flag_names_set(stacksl, words, sentence) -> None:
    said = stacksl("run", *words)
    assert (said.code, said.out, said.err) == (2, "", f"stacksl: {sentence}\n")
