"""Cells are shown as they stand, run nothing, and come back as the text they were made of."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.labelers.sheets.cells import LIMIT, guarded, is_too_long, plain, shortened, visible

SIGNS = tuple("=+-@＝＋－＠")
texts = st.text() | st.text(alphabet="=+-@'\t\r\n \u00a0\ufeff;,\"1a|")


@given(texts)
def test_a_guard_is_undone_exactly(text: str) -> None:
    assert plain(guarded(text)) == text


@given(texts)
def test_no_cell_begins_a_formula(text: str) -> None:
    cell = guarded(text)
    assert not cell.startswith(("\t", "\r"))
    assert not cell.lstrip("\ufeff \u00a0\n").startswith(SIGNS)


@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from(",;\t"))
def test_no_cell_begins_a_formula_under_another_separator(cells: list[str], separator: str) -> None:
    """Torn at every separator and line break, as a program does that expects another."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow(["k", *(guarded(visible(text)) for text in cells)])
    for line in stream.getvalue().splitlines():
        for piece in line.split(separator):
            assert not piece.lstrip('\ufeff "').startswith(SIGNS), piece


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        " =1",
        "\ufeff=1",
        "\t=1",
        "\tx",
        "\rx",
        "＝1",
        "'=1",
        "007",
        "1e5",
        "3-4",
        "03.04.",
        "4 March",
        "Mar-04",
        "12:30",
        "50 %",
        "TRUE",
        "wahr",
    ],
)
def test_what_a_spreadsheet_would_run_or_rewrite_has_an_apostrophe(text: str) -> None:
    assert guarded(text).startswith("'")
    assert plain(guarded(text)) == text


@pytest.mark.parametrize(
    "text", ["a=b", "Room 12", "it's", "'quoted'", "x - y", "maybe", "1st of 3"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert guarded(text) == plain(text) == text


def test_control_characters_become_visible() -> None:
    assert visible("a\0b\x1bc\x7f\x85\ud800") == "a␀b␛c␡\ufffd\ufffd"
    assert visible("a\r\nb\rc\td") == "a\nb\nc\td"


@given(st.text().map(visible))
def test_visible_text_is_utf8_and_stays(text: str) -> None:
    text.encode()
    assert visible(text) == text
    assert not any(ord(c) < 32 and c not in "\t\n" for c in text)


@pytest.mark.parametrize(
    ("cell", "long"),
    [("x" * LIMIT, False), ("x" * (LIMIT + 1), True), ("😀" * 16_384, True), ("\n" * 254, True)],
)
def test_a_cell_too_long_for_excel_is_cut_within_its_limits(cell: str, long: bool) -> None:
    assert is_too_long(cell) == long
    cut = shortened(cell, "[goes on]")
    assert cut.endswith("\n[goes on]")
    assert not is_too_long(cut)
    assert cell.startswith(cut.removesuffix("\n[goes on]"))
