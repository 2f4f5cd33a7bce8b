"""Tables as spreadsheet programs save them: workbooks, encodings, and files without a header."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zipfile import ZipFile

import pytest
from openpyxl import Workbook, load_workbook

from stacksl.api import run
from stacksl.data import Layout, read, rows_of, write_table
from stacksl.data.workbooks import table_of_sheet
from stacksl.errors import DataError, HeaderInDoubt, SettingsError
from stacksl.runs.spec import RunSpec

ROWS = [
    ("ticket_id", "message", "topic"),
    (1001, "Où est ma carte ?", "card"),
    (1002, "Ich möchte zahlen", "payment"),
    (1003, "my card is gone", "card"),
]
CSV = "\r\n".join(",".join(map(str, row)) for row in ROWS) + "\r\n"


def workbook(path: Path, *sheets: tuple[str, list[tuple[object, ...]]]) -> Path:
    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def content(dataset) -> tuple[object, ...]:
    return dataset.items, dataset.answers, dataset.classes, dataset.columns


@pytest.fixture
def plain(tmp_path: Path):
    path = tmp_path / "plain.csv"
    path.write_text(CSV, encoding="utf-8")
    return read(path)


def test_a_workbook_is_read_as_its_table(tmp_path: Path, plain) -> None:
    shown = [(), (None, "", None), *ROWS]  # rows above the table may be empty
    found = read(workbook(tmp_path / "book.xlsx", ("Tickets", shown), ("Empty", [])))
    assert content(found) == content(plain)
    assert found.format == "xlsx:classes"
    assert [item.id for item in found.items] == ["1001", "1002", "1003"]


def test_the_sheet_of_a_workbook_is_named(tmp_path: Path, plain) -> None:
    path = workbook(tmp_path / "book.xlsx", ("Codes", [("a", "b"), (1, 2)]), ("Tickets", ROWS))
    with pytest.raises(DataError, match=r"2 worksheets with rows \('Codes', 'Tickets'\).*--work"):
        read(path)
    assert content(read(path, layout=Layout("Tickets"))) == content(plain)
    with pytest.raises(DataError, match="'Tickets'.* and none called 'tickets': .*--worksheet"):
        read(path, layout=Layout("tickets"))
    alone = workbook(tmp_path / "alone.xlsx", ("Empty", []), ("Sheet1", ROWS))
    assert content(read(alone, layout=Layout("Tickets"))) == content(plain)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-be", "utf-8-sig"])
def test_what_spreadsheet_programs_save_is_read(tmp_path: Path, plain, encoding: str) -> None:
    path = tmp_path / "saved.csv"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + CSV.encode(encoding))
    found = read(path)
    assert content(found) == content(plain)
    told = ["the file is not UTF-8: its letters are read as Windows-1252"]
    assert list(found.warnings) == (told if encoding == "cp1252" else [])


@pytest.mark.parametrize("begins", [b"\xef\xbb\xbfmessage,topic\r\n", "né,topic\r\n".encode()])
def test_a_file_of_utf_8_keeps_its_encoding_where_a_letter_is_damaged(make, begins: bytes) -> None:
    found = read(make("x.csv", begins + b"a,card\r\nb\xe9,card\r\nc,sea\r\nd,sea\r\n"))
    assert found.columns["prompt"] in ("message", "né"), "without the mark"
    assert [item.prompt for item in found.items] == ["a", "c", "d"]
    assert [(row.row, row.kind) for row in found.rejected] == [(2, "bad encoding")]


LONG = "Where is my card? It has not arrived, and I have been waiting for more than three weeks"


def test_a_first_row_that_is_no_header_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = [(LONG, "card"), ("I cannot pay", "payment"), ("it was stolen", "card")]
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    with pytest.raises(DataError, match="looks like a row, not like a header.*--no-header") as told:
        read(path)
    assert "arrived" not in str(told.value), "a customer's text is not quoted"
    columns = {"prompt": "column 1", "label": "column 2"}
    found = read(path, layout=Layout(header=False), columns=columns)
    assert [item.prompt for item in found.items] == [text for text, _ in rows]
    assert found.classes == ("card", "payment")


DOUBTED = {
    "a class below": "lost it,money\ntop up the card,cash\nwhere,money\n",
    "ids": "T0001,lost it\nT0002,top up the card\nT0103,where is my card\n",
    "a question": "Where is it?,x\nlost it,y\ntop up,z\n",
    "one text of two words": "Card lost\nwhere is my new card\nI cannot pay for anything\n",
    "one word above words": "hello\nwhere is my new card\nhelp\n",
    "one long text alone": '"Hello there, where is my new card, it has not come"\n',
    "one long text": '"Hello there, where is my new card, it has not come"\nlost it\npay, please\n',
    "a long text and a usual name": "where is my new card,question\nthank you,praise\nbye,praise\n",
    "a usual name as a class": "lost it,question\ntop up the card,praise\nbye,question\n",
    "a text of two words": "lost it,c1\ntop up,c2\nwhere is it,c3\n",
}
HEADERS = {
    "one usual name": "Message\nlost my card\nwhere is it\n",
    "one word": "tweet\nlost my card\nwhere is it\n",
    "two words": "Ticket ID,Customer message\n7,where is it\n9,lost my new card\n",
    "no name of an index": ",words\n,lost it\n,where is it\n",
    "a usual name": "text,c1\nlost it,a2\ntop up,c1\n",
    "other names": "words,mood 1\nlost it,sad\ntop up,glad\n",
    "one row": "T1,where\nT2,here\n",
}


@pytest.mark.parametrize("name", [*DOUBTED, *HEADERS])
def test_a_first_row_like_those_below_is_in_doubt(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(DOUBTED.get(name) or HEADERS[name], encoding="utf-8")
    classes = ("sad", "glad", "money")
    if name in DOUBTED:
        with pytest.raises(HeaderInDoubt, match="--no-header"):
            read(path, classes=classes)
    else:
        read(path, classes=classes, lenient=True)
    if name.endswith("alone"):
        return
    kept = read(path, layout=Layout(header=True), classes=classes, lenient=True)
    whole = read(path, layout=Layout(header=False), classes=classes, lenient=True)
    assert whole.total == kept.total + 1


def test_a_column_that_is_named_is_in_a_header(tmp_path: Path) -> None:
    path, name = tmp_path / "rows.csv", "Which topic does this belong to?"
    path.write_text(f"text,{name}\nlost it,card\ntop up,money\nbye,card\n", encoding="utf-8")
    with pytest.raises(HeaderInDoubt):
        read(path)
    for how in ({"columns": {"label": name}}, {"usual": {"prompt": "text"}}):
        found = read(path, classes=("card", "money"), **how)
        assert found.total == len(rows_of(path, found)[1]) == 3


def test_a_later_file_has_a_header_by_its_usual_names_where_the_first_has_none(tmp_path) -> None:
    later = Layout(headless=True)
    path = tmp_path / "rows.csv"
    path.write_text("T1,lost it\nT2,top up\n", encoding="utf-8")
    assert read(path, layout=later, classes=("a", "b")).total == 2
    path.write_text("ticket,text\nT1,lost it\nT2,top up\n", encoding="utf-8")
    assert read(path, layout=later, classes=("a", "b")).total == 2


def test_the_only_column_of_a_later_file_without_a_header_holds_the_texts(tmp_path: Path) -> None:
    how = {"layout": Layout(header=False), "classes": ("a", "b"), "usual": {"prompt": "utterance"}}
    (path := tmp_path / "rows.csv").write_text("I lost it\nto top up\n", encoding="utf-8")
    assert [item.prompt for item in read(path, **how).items] == ["I lost it", "to top up"]
    path.write_text("I lost it,mail\nto top up,chat\n", encoding="utf-8")
    with pytest.raises(DataError, match="the file has column 1, column 2; say which"):
        read(path, **how)


LINES = "Hello, where is it?\n\nIt is gone; I want it back\n"


@pytest.mark.parametrize("name", ["stdin", "mails.txt"])
def test_lines_of_text_are_items(tmp_path: Path, name: str) -> None:
    (path := tmp_path / name).write_text(LINES, encoding="utf-8")
    found = read(path, classes=("a", "b"))
    assert found.format == "lines:classes"
    assert [item.prompt for item in found.items] == [
        "Hello, where is it?",
        "It is gone; I want it back",
    ]
    path.write_text("ticket,message\nT1,lost it\n", encoding="utf-8")
    assert [i.prompt for i in read(path, classes=("a", "b")).items] == ["lost it"]
    path.write_text("nr,what,so\n1,lost it,x\n", encoding="utf-8")
    assert read(path, classes=("a", "b")).format == "lines:classes"
    assert read(path, classes=("a", "b"), columns={"prompt": "what"}).format == "csv:classes"


def test_a_workbook_goes_in_and_a_workbook_comes_out(tmp_path: Path) -> None:
    """Data, owned labels with other names of columns, and new rows, of one sheet of several."""
    topics = ["card", "payment"]
    texts = [(n, f"{topics[n % 2]} {n} {'lost' if n % 2 else 'sent'}") for n in range(40)]
    data = [("Ticket ID", "message"), *texts]
    owned = [("text", "topic"), *((f"a {topics[n % 2]}, {n}", topics[n % 2]) for n in range(8))]
    codes = ("Codes", [("code", "means"), (1, "new")])
    book = workbook(tmp_path / "book.xlsx", codes, ("Tickets", data))
    held = workbook(tmp_path / "held.xlsx", codes, ("Tickets", owned))
    listed = tmp_path / "classes.txt"
    listed.write_text("\n".join(topics))
    answers = {str(n): topics[n % 2] for n, _ in texts}
    settings = {"owned": str(held), "classes": str(listed), "read.worksheet": "Tickets"}
    done = run(
        book,
        labeler=lambda request: request.candidates.index(answers[request.item]),
        budget=10,
        audit=0,
        out=tmp_path / "run",
        features="hashing",
        **settings,
    )
    assert done.status()["asked"] == 10
    new = workbook(tmp_path / "new.xlsx", codes, ("Tickets", data[:5]))
    assert [row["id"] for row in done.predict(new)] == [0, 1, 2, 3]
    more = [data[0], *((100 + n, f"{text} again") for n, text in texts[:3])]
    workbook(tmp_path / "more.xlsx", codes, ("Sheet1", more))
    with pytest.raises(DataError, match="none called 'Tickets': keep the rows of one sheet only"):
        done.change(items=tmp_path / "more.xlsx", dry_run=True)
    workbook(tmp_path / "more.xlsx", ("Sheet1", more))
    assert done.change(items=tmp_path / "more.xlsx", dry_run=True).items == 3


def test_cells_of_a_workbook_stay_numbers_and_dates_in_the_workbook_that_is_written(
    tmp_path: Path,
) -> None:
    values = (123456789012345, 9.13, datetime(2026, 3, 1, 8), date(2026, 3, 2), True, "007")
    values = (*values, "#N/A", timedelta(hours=25), None)
    names = ("nr", "price", "at", "day", "paid", "code", "share", "lasts", "blank", "text")
    book = Workbook()
    sheet = book.active
    sheet.append(names)
    for n in range(4):
        sheet.append((*values, f"a text {n}"))
        sheet.cell(n + 2, 2).number_format = "0.00 [$€]"
    path, out = tmp_path / "book.xlsx", tmp_path / "out.xlsx"
    book.save(path)
    dataset = read(path, classes=("a", "b"), columns={"prompt": "text"})
    columns, rows = rows_of(path, dataset)
    write_table(out, columns, [values for values, _ in rows])
    written = load_workbook(out).active
    assert [cell.value for cell in written[1]] == [*names]
    plain = (*values[:3], datetime(2026, 3, 2), *values[4:])  # a date is a time in a workbook
    assert [cell.value for cell in written[2]] == [*plain, "a text 0"]
    assert written.cell(2, 2).number_format == "0.00 [$€]"
    assert [written.cell(2, column).data_type for column in (6, 7)] == ["s", "e"]
    with ZipFile(out) as archive:
        assert 'r="I2"' not in archive.read("xl/worksheets/sheet1.xml").decode()
    write_table(tmp_path / "out.csv", columns, [values for values, _ in rows])
    line = (tmp_path / "out.csv").read_text().splitlines()[1]
    values = '2026-03-01T08:00:00,2026-03-02,TRUE,007,#N/A,"1 day, 1:00:00",,a text 0'
    assert line == f"123456789012345,9.13,{values}"


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_header_is_written_as_it_was_given(tmp_path: Path, kind: str) -> None:
    names = (" text\nof the ticket ", "nr ", 2026 if kind == "xlsx" else "2026")
    path, out = tmp_path / f"given.{kind}", tmp_path / f"out.{kind}"
    if kind == "xlsx":
        workbook(path, ("Tickets", [names, ("one", 1, 2), ("two", 3, 4)]))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, ("one", 1, 2), ("two", 3, 4)])
    dataset = read(path, classes=("a", "b"), columns={"prompt": "text of the ticket"})
    columns, rows = rows_of(path, dataset)
    assert columns == ("text of the ticket", "nr", "2026")
    write_table(out, columns, [values for values, _ in rows])
    if kind == "xlsx":
        assert [cell.value for cell in load_workbook(out).active[1]] == [*names]
    else:
        assert next(csv.reader(io.StringIO(out.read_text(), newline=""))) == [*names]


def saved(path: Path, values: dict[str, object]) -> Path:
    """The workbook with the values of its formulas, as a spreadsheet program saves them."""
    with ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    for place, value in values.items():
        kind = ' t="str"' * isinstance(value, str)
        pattern = rf'(<c r="{place}"[^>]*)(><f[^>]*>[^<]*</f><v)\s*(?:/>|></v>)'
        parts[sheet], count = re.subn(pattern, rf"\g<1>{kind}\g<2>>{value}</v>", parts[sheet])
        assert count == 1
    with ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


FORMULAS = [
    ("nr", "subject", "body", "text", "price"),
    (1, "card", "is lost", '=B2&" "&C2', "=2*A2"),
    ("=A2+1", "card", "is gone", '=B3&" "&C3', "=Codes!A1"),
    (3, "card", "is here", '=B4&" "&C4', 7),
    (None, None, None, '=IF(B5="","",B5)'),
]
VALUES = {
    "D2": "card is lost",
    "E2": 2,
    "A3": 2,
    "D3": "card is gone",
    "E3": 4.5,
    "D4": "=card is here",
    "D5": "",
}


def test_formulas_are_read_and_written_as_their_values(tmp_path: Path) -> None:
    path = saved(workbook(tmp_path / "book.xlsx", ("Tickets", FORMULAS)), VALUES)
    dataset = read(path, classes=("a", "b"), columns={"prompt": "text", "id": "nr"})
    assert [item.prompt for item in dataset.items] == ["card is lost", "card is gone", VALUES["D4"]]
    assert [item.id for item in dataset.items] == ["1", "2", "3"]
    columns, rows = rows_of(path, dataset)
    cells = [values for values, _ in rows]
    write_table(tmp_path / "out.xlsx", [*columns, "label"], cells)
    sheet = load_workbook(tmp_path / "out.xlsx").active
    written = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]
    assert [row[3:] for row in written] == [
        ["card is lost", 2, None], ["card is gone", 4.5, None], [VALUES["D4"], 7, None],
    ]  # fmt: skip
    assert sheet["D4"].data_type == "s"
    write_table(tmp_path / "out.csv", columns, cells)
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "1,card,is lost,card is lost,2"


def test_formulas_without_values_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = workbook(tmp_path / "book.xlsx", ("Tickets", FORMULAS))
    said = "sheet 'Tickets' .* formulas without values, the first in row 2: open it in the spreads"
    with pytest.raises(DataError, match=said):
        read(path, classes=("a", "b"))


def test_rows_of_a_workbook_are_no_wider_than_their_last_cell(tmp_path: Path) -> None:
    """Cells that the widest sheet could have would take most of the memory and of the time."""
    book = Workbook()
    for row in (["text", "n"], ["one"], ["two", 2], ["three", None, None, " "]):
        book.active.append(row)
    path = tmp_path / "narrow.xlsx"
    book.save(path)
    rows = table_of_sheet(path, None)
    assert [len(cells) for _, cells in rows] == [2, 1, 2, 4]
    assert not hasattr(rows[2][1][1], "__dict__"), "no dict for each number"
    found = read(path, classes=("a", "b"), columns={"prompt": "text"})
    assert [item.prompt for item in found.items] == ["one", "two", "three"]


def test_numbers_among_the_labels_of_a_workbook_are_text_like_the_others(tmp_path: Path) -> None:
    book = Workbook()
    for row in (["text", "label"], *([f"a {n}", n % 2 or "none"] for n in range(8))):
        book.active.append(row)
    book.save(tmp_path / "mixed.xlsx")
    found = read(tmp_path / "mixed.xlsx")
    assert (found.classes, found.warnings) == (("1", "none"), ())


def test_dates_of_a_parquet_file_are_dates_in_a_workbook(tmp_path: Path) -> None:
    """But those that no workbook has, which are texts."""
    days = [date(2026, 10, 1), date(1899, 10, 1)]
    texts = [{"text": f"{label} b", "label": label} for label in "xy"]
    write_table(
        tmp_path / "a.parquet",
        ["text", "label", "day"],
        [{**row, "day": day} for row, day in zip(texts, days, strict=True)],
    )
    columns, rows = rows_of(tmp_path / "a.parquet", read(tmp_path / "a.parquet"))
    times = [datetime(2026, 10, 1, 8, 28), datetime(2026, 10, 1, 8, 28, tzinfo=UTC)]
    timed = [{**row, "time": time} for (row, _), time in zip(rows, times, strict=True)]
    write_table(tmp_path / "a.xlsx", [*columns, "time"], timed)
    sheet = load_workbook(tmp_path / "a.xlsx").active
    cells = [*sheet.iter_rows(min_row=2, min_col=3, values_only=True)]
    assert cells == [(datetime(2026, 10, 1), times[0]), ("1899-10-01", str(times[1]))]


def test_a_class_that_is_none_of_the_data_is_named_with_its_row(tmp_path: Path) -> None:
    data, owned = tmp_path / "data.csv", tmp_path / "owned.csv"
    data.write_text("text,label\n" + "play it,next song\nstop it,end of play\n" * 20)
    owned.write_text("text,label\na,next_song\nb,next song\n")
    said = "'next_song' in row-000001, did you mean 'next song'"
    with pytest.raises(DataError, match=said):
        run(data, budget=4, audit=0, owned=str(owned), out=tmp_path / "run", features="hashing")


def test_owned_labels_have_the_columns_of_the_data(tmp_path: Path) -> None:
    said = "the file has mail, topic; name its columns as those of the data .*--owned-columns"
    data, owned = tmp_path / "data.csv", tmp_path / "owned.csv"
    data.write_text("message,label\n" + "play it,song\nstop it,end\n" * 20)
    owned.write_text("mail,topic\na,song\n")
    with pytest.raises(DataError, match=said) as told:
        run(data, budget=4, audit=0, owned=str(owned), out=tmp_path / "run", features="hashing")
    assert "--prompt-column" not in str(told.value), "that option is of the data's own columns"
    settings = {"owned": str(owned), "features": "hashing", "budget": 4, "audit": 0}
    for number, named in enumerate(["text=mail,label=topic", {"text": "mail", "label": "topic"}]):
        made = run(data, out=tmp_path / f"run{number}", owned_columns=named, **settings)
        assert RunSpec.open(made.folder).sources.owned == {"owned/row-000001": 1}
    for wrong, why in (("mail", "as in text=message,label=topic"), ("to=mail", "column role 'to'")):
        with pytest.raises(SettingsError, match=why):
            run(data, out=tmp_path / "other", owned_columns=wrong, **settings)
    more = tmp_path / "more.csv"
    more.write_text("message,label\nb,song\n")
    made.change(owned=more, later=True)  # whose columns are those of the data
    with pytest.raises(SettingsError, match="--owned-columns belongs to a file of owned labels"):
        run(
            data, out=tmp_path / "other", owned_columns="text=mail", **settings | {"owned": "label"}
        )
    with pytest.raises(SettingsError, match="owned_columns belongs to a file of owned labels"):
        run(data, out=tmp_path / "other", owned_columns="text=mail", **settings | {"owned": None})


def test_a_test_file_may_have_columns_of_its_own(tmp_path: Path) -> None:
    data, test = tmp_path / "data.csv", tmp_path / "test.csv"
    data.write_text("message,label\n" + "play it,song\nstop it,end\n" * 20)
    test.write_text("mail,topic\nplay it now,song\n")
    settings = {"test": str(test), "features": "hashing", "budget": 4, "audit": 0}
    made = run(data, out=tmp_path / "run", test_columns="text=mail,label=topic", **settings)
    assert RunSpec.open(made.folder).test.answers == {"row-000001": 1}
    with pytest.raises(SettingsError, match="test_columns belong to a test file"):
        run(data, out=tmp_path / "other", test_columns="text=mail", **settings | {"test": None})


def test_a_cell_that_no_workbook_holds_is_refused_with_another_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"32,767 characters .*: give the file a name that ends"):
        write_table(tmp_path / "a.xlsx", ["text"], [{"text": "a" * 40_000}])


def test_a_large_workbook_says_how_far_it_is_and_what_else_its_table_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "a.xlsx", [{"text": f"text {n}"} for n in range(2500)]
    steps: list[tuple[int, int]] = []
    write_table(path, ["text"], rows, lambda done, total: steps.append((done, total)))
    assert [total for _, total in steps] == [2500] * len(steps)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert (len(steps), steps[-1]) == (3, (2500, 2500))
    monkeypatch.setattr("stacksl.data.workbooks.LARGEST", 50_000)
    with pytest.raises(DataError, match=r"unpacks to .* export the table as \.csv or \.parquet"):
        read(path)
