"""The output that a page quotes is worded as the program words it now.

The stories on these pages took data, people and minutes, so that no test plays them again. But each
sentence that the program prints is made of texts in its source, with numbers and names in between:
a quoted line has no run of words that stands nowhere there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages_cases import BLOCK, PAGES, ROOT

PLAYED = "README.md"  # by another test, word for word
RUN = re.compile(r"[a-z]+(?: [a-z]+){3}", re.IGNORECASE)  # four words, and nothing in between


@pytest.fixture(scope="module")
def printed() -> re.Pattern[str]:
    """What the source may print: its texts of two words or more, f-strings without their values."""
    files = sorted((ROOT / "src").rglob("*.py"))
    texts = {text for file in files for text in texts_of(file) if " " in text}
    longest = sorted(texts, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)")


def texts_of(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            for line in str(node.value).splitlines():
                yield " ".join(line.split()).strip(" .,;:()'%`")


def foreign(page: str, printed: re.Pattern[str]) -> list[str]:
    """The runs of words in the output that `page` quotes that are not the program's."""
    lines = [
        re.sub("`[^`]*`", "|", " ".join(line.split()))
        for kind, block in BLOCK.findall(page)
        if kind == "console"
        for line in block.splitlines()
        if not line.startswith(("$", "  "))  # what is typed, and what the data say
    ]
    return [run for line in lines for run in RUN.findall(printed.sub("|", line))]


@pytest.mark.parametrize("name", [name for name in PAGES if name != PLAYED])
def test_quoted_output_is_worded_as_the_program_words_it(name: str, printed) -> None:
    assert not foreign(PAGES[name], printed)


def test_a_sentence_of_an_earlier_version_is_found(printed) -> None:
    line = "changed 47 labels of the exported table: 38 were wrong, the others are unclear."
    assert foreign(f"```console\n{line}\n```\n", printed) == ["the others are unclear"]
