"""A command or a flag on a page is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from stacksl.cli.app import app
from stacksl.runs.session.assignment import FILE
from stacksl.runs.settings.conflicts import LOCAL, OPENAI
from stacksl.runs.settings.resolve import known_settings
from stacksl_lab.verbs.app import app as laboratory

from .pages_cases import BLOCK, PAGES, REGISTRIES, ROOT, spans

PROGRAMS: dict[str, Any] = {
    name: typer.main.get_command(each)
    for name, each in (("stacksl", app), ("stacksl-lab", laboratory))
}


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """(page, words) of each command in the blocks, and in the spans that are more than one word."""
    for page, text in PAGES.items():
        lines = [
            re.split(r"\s{3,}", line.strip().removeprefix("$ "))[0]  # then what it is for
            for kind, block in BLOCK.findall(text)
            if kind in ("", "sh", "console")
            for line in block.replace("\\\n", " ").splitlines()
        ]
        for line in [*lines, *spans(text)]:
            own = re.sub(r"^torchrun .*-m (?=stacksl\b)", "", line)
            if own.split(" ")[0] == program:
                yield page, _before_shell(shlex.split(own, comments=True))


def _before_shell(words: list[str]) -> list[str]:
    """The words up to a redirection, a pipe or a second command."""
    ends = [n for n, word in enumerate(words) if word in (">", "2>", "<", "|", "&&", ";")]
    return words[: ends[0]] if ends else words


STACKSL = sorted(
    {
        (page, " ".join(map(shlex.quote, words)))
        for name in PROGRAMS
        for page, words in commands(name)
    }
)


def is_a_form(words: list[str]) -> bool:
    """Whether these words are a form to fill in, such as `stacksl export RUN [...]`."""
    text = " ".join(words)
    blanks = re.search(r"[\[|]|\$[a-z]", text)  # a form's marks, or a variable of the shell
    return blanks is not None or not {"VERB", "NAME", "STUDY"}.isdisjoint(words)


@pytest.mark.parametrize(("page", "line"), STACKSL)
def test_a_command_is_one_that_the_command_line_takes(page: str, line: str) -> None:
    name, *words = shlex.split(line)
    command = PROGRAMS[name]
    if is_a_form(words):
        assert words[0] in (*command.commands, "VERB")
        return
    if words[:1] == ["--version"] or words[-1:] in (["--help"], ["--help-all"]) or not words:
        return
    while hasattr(command, "commands"):
        verb = words.pop(0)
        assert verb in command.commands, f"{page}: no verb {verb}"
        command = command.commands[verb]
        if not words:  # the name of a verb, or of a group of them
            return
    short = command.name in ("run", "ls", "reproduce") or any(
        not word.startswith("-") for word in words
    )
    context = command.make_context(command.name, words if short else [*words, "RUN"])
    assert not context.args
    check_values(context.params)


def check_values(given: dict[str, Any]) -> None:
    """Names that a command gives are ones that the settings know."""
    for kind, known in REGISTRIES.items():
        value = given.get(kind)
        # people and servers are in no registry
        named = {*known, FILE, OPENAI, LOCAL} if kind == "labeler" else known
        assert value is None or str(value).partition(":")[0] in named, f"no {kind} {value}"
    for assignment in given.get("set_") or given.get("set") or ():
        name = assignment.partition("=")[0]
        assert name in known_settings(), f"no setting {name}"


def test_the_commands_were_found() -> None:
    assert len(STACKSL) > 15
    assert {page for page, _ in STACKSL} >= {"README.md", "docs/cli.md", "docs/concepts.md"}


def test_a_python_or_make_command_names_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    found = 0
    for page, words in commands("make"):
        for word in words[1:2]:
            assert word in targets or word == "..." or "=" in word, f"{page}: make {word}"
    for program in ("python", ".venv/bin/python"):
        for page, words in commands(program):
            paths = [w for w in words[1:] if "/" in w and not w.startswith(("$", "-"))]
            for path in paths:
                assert (ROOT / path).exists() or "--json" in words, f"{page}: {path}"
            for script in [ROOT / path for path in paths[:1] if path.endswith(".py")]:
                for flag in [w for w in words if w.startswith("--")]:
                    assert f'"{flag}"' in script.read_text(encoding="utf-8"), f"{page}: {flag}"
            found += 1
    assert found


FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
OTHERS = ("pip", "pytest", "git", "python", "make", "torchrun", "accelerate")  # flags of their own


@pytest.mark.parametrize("page", list(PAGES))
def test_a_flag_in_the_text_exists(page: str) -> None:
    known = {word for each in PROGRAMS.values() for word in options(each)}
    scripts = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("benchmarks/*.py"))
    known |= {"help", *re.findall(r'"--([a-z-]+)"', scripts)}
    for span in spans(PAGES[page]):
        if span.split(" ")[0] not in OTHERS:
            assert set(FLAG.findall(span)) <= known, span
        for name in re.findall(r"--set ([\w.]+)=", span):
            assert name in known_settings() or name == "NAME", span
        for kind in ("gate", "scorer", "preset", "objective"):
            for name in re.findall(rf"--{kind} ([a-z][\w-]*)", span):
                assert name in REGISTRIES[kind], span


def options(command: Any) -> Iterator[str]:
    for parameter in command.get_params(command.context_class(command)):
        for form in ("opts", "secondary_opts"):
            yield from (word.removeprefix("--") for word in getattr(parameter, form, ()))
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)
