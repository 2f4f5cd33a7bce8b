"""Every block of the README is typed as it stands, and prints what the page shows."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import openpyxl
import pytest

from stacksl.cli.entry import call
from stacksl.data import sample

from .pages_cases import BLOCK, PAGES

README = PAGES["README.md"]
BLOCKS = BLOCK.findall(README)
NOT_TYPED = ("pip ", "make ")  # they install
DECIMAL = re.compile(r"(\d+\.\d+)")


class Reader:
    """A reader of the README who types its blocks in one folder; a colleague fills in sheets."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        items, _ = sample()
        assert items.classes is not None
        self.right = {
            _plain(item.prompt): items.classes[items.answers[item.id]] for item in items.items
        }

    def types(self, command: str) -> str:
        """What a command prints on stdout."""
        if command.startswith("stacksl answer"):
            for sheet in re.findall(r"\S+\.xlsx", command):
                self._fills(self.folder / sheet)
        before, pipe, command = command.rpartition("| ")
        if not pipe:
            assert call(shlex.split(command, comments=True)[1:]) == 0, self.capsys.readouterr()
            return self.capsys.readouterr().out
        words = ["bash", "-o", "pipefail", "-c", f'{before}| "{sys.executable}" -m {command}']
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout

    def runs(self, script: str) -> str:
        """What a Python script prints on stdout."""
        exec(script, {"__name__": "__main__"})
        return self.capsys.readouterr().out

    def _fills(self, path: Path) -> None:
        book = openpyxl.load_workbook(path)
        sheet = book.worksheets[0]
        head = [cell.value for cell in sheet[1]]
        prompt, answer = head.index("prompt"), head.index("answer")
        for row in sheet.iter_rows(min_row=2):
            if row[prompt].value is not None:
                row[answer].value = self.right[_plain(str(row[prompt].value))]
        book.save(path)


def _plain(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Reader:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STACKSL_FEATURES")
    monkeypatch.setenv("NO_COLOR", "1")
    return Reader(tmp_path, capsys)


def expect(printed: str, shown: str) -> None:
    """The same text, and the same decimals but for the last digits of a BLAS.

    The sample is made of the reference of the Python that runs, so that other versions print
    other numbers.
    """
    ours, theirs = (DECIMAL.split(text.strip()) for text in (printed, shown))
    if sys.version_info[:2] != (3, 11):
        ours, theirs = ([re.sub(r"\d+", "N", part) for part in parts] for parts in (ours, theirs))
    assert ours[::2] == theirs[::2], printed
    if sys.version_info[:2] == (3, 11):
        decimals = [float(number) for number in theirs[1::2]]
        assert [float(number) for number in ours[1::2]] == pytest.approx(decimals, abs=1e-3)


def test_every_block_prints_what_the_page_shows(reader: Reader) -> None:
    typed, script = 0, ""
    for kind, block in BLOCKS:
        if kind == "console":
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                expect(reader.types(command), shown)
                typed += 1
        elif kind == "sh":
            for command in block.splitlines():
                if not command.startswith(NOT_TYPED):
                    reader.types(command)
                    typed += 1
        elif kind == "python":
            script = block
        else:
            assert kind == "text"
            expect(reader.runs(script), shown=block)
            script = ""
            typed += 1
    assert not script, "a script without its output"
    assert typed >= 9
    _the_corrected_table_is_as_right_as_the_page_says(reader)


def _the_corrected_table_is_as_right_as_the_page_says(reader: Reader) -> None:
    [command] = re.findall(r"`(stacksl export [^`]*corrected\.csv)`", README)
    reader.types(command)
    with (reader.folder / "corrected.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    before, after = (
        sum(row[name] == reader.right[_plain(row["text"])] for row in rows)
        for name in ("gpt", "label")
    )
    assert after > before
    if sys.version_info[:2] == (3, 11):
        assert f"{before:,} of the {len(rows):,} labels in the column are right" in README
        assert f"{after:,} are right in the table" in " ".join(README.split())
