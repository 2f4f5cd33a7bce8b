"""Any texts that go out come back as the same rows and answers, whatever saved them in between."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.errors import DataError
from stacksl.labelers.sheets.cells import _EDGES, _loose, guarded, sign, visible
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Reply, SheetRow, new_key
from stacksl.labelers.sheets.writing import write_sheet

RUDE = st.text(alphabet="=+-@'\"\t\r\n \0\ufeff\u00a0;,|aB2éß€😀ش")
TEXT = st.one_of(st.text(max_size=40), RUDE)
OPTION = st.one_of(st.text(min_size=1, max_size=12), RUDE).filter(_loose)
ROW = st.tuples(TEXT, st.lists(OPTION, min_size=2, max_size=5, unique_by=_loose).map(tuple))
SAVED = st.tuples(st.sampled_from(",;\t"), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))

Said = tuple[str, Reply | None, str]  # the cell, what is to be read, the note


def drawn_answer(key: str, row: int, options: tuple[str, ...], data: st.DataObject) -> Said:
    """One way to answer, drawn, and what it means; the cell holds what a person copied or typed."""
    position = data.draw(st.sampled_from(range(len(options))))
    note = data.draw(TEXT)
    kept = visible(note).strip() or None
    right = _EDGES.sub("", visible(data.draw(TEXT))) or None
    if right is not None and any(_loose(right) == _loose(text) for text in options):
        right = None
    marked = f"{sign(position, options)})"
    texts = {_loose(text) for text in options}
    ways: list[tuple[str, str, int | None, str | None]] = [
        (options[position], "label", position, None),
        (guarded(visible(options[position])), "label", position, None),
        (marked, "label", position, None),
        (f"[none]: {guarded(right or '')}", "none", None, right),
        ("[ambiguous]", "ambiguous", None, None),
        ("[broken]", "broken", None, None),
    ]
    own = [w for n, w in enumerate(ways) if n == 0 or _loose(w[0]) not in texts]
    cell, kind, place, text = data.draw(st.sampled_from(own))
    return cell, Reply(row, key, kind, place, text, kept), note  # type: ignore[arg-type]


def saved_again(path: Path, cells: list[tuple[str, str]], separator: str, encoding: str) -> None:
    """Fill in answers and notes, and save as another program would."""
    table = list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    for line, (answer, note) in zip(table[1:], cells, strict=True):
        line[3:] = [visible(answer), guarded(visible(note))]
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator="\r\n").writerows(table)
    path.write_bytes(stream.getvalue().encode(encoding))


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=4), SAVED, st.data())
def test_any_texts_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    questions: list[tuple[str, tuple[str, ...]]],
    saved: tuple[str, str],
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(0)
    rows = [SheetRow(new_key(n, rng), *question) for n, question in enumerate(questions)]
    path = tmp_path_factory.mktemp("sheet") / "a.csv"
    write_sheet(path, rows)
    answers = [drawn_answer(row.key, n, row.options, data) for n, row in enumerate(rows, 2)]
    saved_again(path, [(cell, note) for cell, _, note in answers], *saved)
    known = {row.key: row for row in rows}
    sheet = read_sheet(path, known)
    assert not sheet.faults
    assert list(sheet.replies) == [reply for _, reply, _ in answers]


CP1252 = st.text(alphabet=st.characters(codec="cp1252", exclude_categories=["Cc"]), max_size=20)


@settings(max_examples=40)
@given(
    CP1252,
    st.lists(CP1252.filter(str.strip), min_size=2, max_size=4, unique_by=_loose),
    st.sampled_from(",;\t"),
    st.data(),
)
def test_texts_of_cp1252_come_back_through_it(
    tmp_path_factory: pytest.TempPathFactory,
    prompt: str,
    options: list[str],
    separator: str,
    data: st.DataObject,
) -> None:
    row = SheetRow("k2k2-h", prompt, tuple(options))
    path = tmp_path_factory.mktemp("sheet") / "a.csv"
    write_sheet(path, [row])
    position = data.draw(st.sampled_from(range(len(options))))
    saved_again(path, [(options[position], "é")], separator, "cp1252")
    (reply,) = read_sheet(path, {row.key: SheetRow(row.key, prompt, row.options)}).replies
    assert (reply.position, reply.note) == (position, "é")


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_break_the_reader(tmp_path_factory, data: bytes, headed: bool) -> None:
    path = tmp_path_factory.mktemp("sheet") / "a.csv"
    path.write_bytes(b"key,answer\n" + data if headed else data)
    try:
        sheet = read_sheet(path, {"k2k2-h": SheetRow("k2k2-h", "", ("a", "b"))})
    except DataError:
        return
    assert len(sheet.replies) + sheet.empty <= 1
