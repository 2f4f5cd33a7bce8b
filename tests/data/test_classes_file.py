"""Files of classes: names, descriptions and examples, and what a run refuses of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from openpyxl import Workbook, load_workbook

from stacksl.data import Classes, read_classes
from stacksl.errors import DataError
from stacksl.types import Item

NAMES, SAID = ("lost card", "top up"), ("it cannot be found", "")
EXAMPLES = (("my card is gone", "where is it, my card?"), ("add money",))


def classes_file(folder: Path, text: str, name: str = "classes.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "name,description,examples\n"
            'lost card,it cannot be found,"my card is gone| where is it, my card?|"\n'
            "top up,,add money|add money\n",
            (NAMES, SAID, EXAMPLES),
        ),
        (
            "Name\tDescription\tExamples\n"
            "lost card\tit cannot be found\tmy card is gone|where is it, my card?\n"
            "\ntop up\t\tadd money\n",
            (NAMES, SAID, EXAMPLES),
        ),
        ("name,examples\na,x|y\nb\nc,\n", (("a", "b", "c"), ("",) * 3, (("x", "y"), (), ()))),
        ("name,description,examples\na,,\nb,,\n", (("a", "b"), ("", ""))),
        ("a, one | two, three\nb\n", (("a", "b"), ("one | two, three", ""))),
        ('top up \n"lost card ", one , two ,,\n', (("top up", "lost card"), ("", "one, two"))),
    ],
)
def test_classes_are_read_with_descriptions_and_examples(tmp_path, text, found) -> None:
    assert read_classes(classes_file(tmp_path, text)) == Classes(*found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,description,examples\na,b,c,d\ne,f,g\n", "line 2 of .* should have 3 cells"),
        ("name,examples\na,One two\nb,one  two|x\n", "line 3 of .* example that line 2 gives"),
        ('{"name": "a"}\n{"name": "b"}\n', "begins as JSON does: save it as CSV"),
    ],
)
def test_a_faulty_file_is_refused_with_its_line(tmp_path, text, said) -> None:
    with pytest.raises(DataError, match=said):
        read_classes(classes_file(tmp_path, text))


def test_items_with_the_text_of_an_example_are_found() -> None:
    classes = Classes(NAMES, SAID, EXAMPLES)
    items = [Item("1", "Add  money", NAMES), Item("2", "add some money", NAMES)]
    assert classes.alike(items) == [0]
    classes.expect_apart(items[1:])
    with pytest.raises(DataError, match="an example of a class, got 1, the first is 1"):
        classes.expect_apart(items)
    Classes(NAMES, SAID).expect_apart(items)
    assert classes.without("ADD money").examples == (EXAMPLES[0], ())


def sheet(folder: Path, *rows: tuple[object, ...]) -> Path:
    book = Workbook()
    book.worksheets[0].title = "Rows"
    book.worksheets[0].append(("id", "text", "topic"))
    topics = book.create_sheet("Topics")
    for row in rows:
        topics.append(row)
    book.save(folder / "topics.xlsx")
    return folder / "topics.xlsx"


HEADER = ("Name", "words", "size", "example 1", "example 2", "Description")


def test_a_workbook_of_topics_is_read_as_it_was_edited(tmp_path) -> None:
    path = sheet(
        tmp_path,
        HEADER,
        ("lost card", "card", 3, "my card is gone", None, None),
        (None, "dropped", 2, "something else"),
        ("top up", "money", 2, "add | money", "add | money"),
        ("Lost  card ", "where", 1, "where is it,\nmy card?", None, "it cannot be found"),
        (2024, "year", 1),
    )
    found = read_classes(path)
    assert found.names == ("lost card", "top up", "2024")
    assert found.examples == (EXAMPLES[0], ("add | money",), ())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("group", "words"), ("a", "b")], "should have a column 'name', but has group, words"),
        ([], "sheet 'Topics' .* should have a column 'name', but has no row"),
        ([HEADER, (None, "w", 3), (" ", "w", 2)], "should hold two classes or more.* but has 0"),
        ([HEADER, ("a", "w", 3), ("A", "w", 2)], "should hold two classes or more.* but has 1"),
        ([HEADER, ("a", "", 1, "x"), ("b", "", 1, "X ")], "line 3 of .* example that line 2"),
    ],
)
def test_a_faulty_workbook_is_refused_in_a_sentence(tmp_path, rows, said) -> None:
    with pytest.raises(DataError, match=said):
        read_classes(sheet(tmp_path, *rows))


def test_rows_of_one_name_are_one_class_with_its_description(tmp_path) -> None:
    rows = [("a", "", "x"), ("b", "of b", "y"), ("A", "of a", "z"), ("b", "other", "")]
    found = read_classes(sheet(tmp_path, ("name", "description", "example 1"), *rows))
    assert found == Classes(("a", "b"), ("of a", "of b"), (("x", "z"), ("y",)))


def test_a_merged_cell_names_all_its_rows(tmp_path) -> None:
    rows = [("a", 1, "x"), (None, 2, "y"), ("b", 3, "z"), (None, 4, "of a dropped topic")]
    path = sheet(tmp_path, ("name", "size", "example 1"), *rows)
    book = load_workbook(path)
    book["Topics"].insert_rows(1)  # an empty row above
    book["Topics"].merge_cells("A3:A4")
    book.save(path)
    assert read_classes(path) == Classes(("a", "b"), ("", ""), (("x", "y"), ("z",)))


@pytest.mark.parametrize("head", ["Class", "Topic", "name", "Label"])
def test_the_only_sheet_of_a_workbook_has_the_classes(tmp_path, head) -> None:
    book = Workbook()
    for row in ((head, "Description"), ("a", "of a"), ("b", None)):
        book.active.append(row)
    book.create_sheet("Sheet2")
    book.save(path := tmp_path / "classes.xlsx")
    assert read_classes(path) == Classes(("a", "b"), ("of a", ""))
    book["Sheet2"].append(("more", "rows"))
    book["Sheet2"].append(("of", "others"))
    book.save(path)
    with pytest.raises(
        DataError, match="a sheet 'Topics' or 'Classes', or in .* but has 'Sheet', 'Sheet2': "
    ):
        read_classes(path)
    book["Sheet"].title = "Classes"
    book.save(path)
    assert read_classes(path) == Classes(("a", "b"), ("of a", ""))


@pytest.mark.parametrize("head", ["topic", "Label", "class,description", "Intent", "category"])
def test_a_header_that_means_the_name_is_no_class(tmp_path: Path, head: str) -> None:
    found = read_classes(classes_file(tmp_path, f"{head}\na\nb\n"))
    assert found.names == ("a", "b")
    assert read_classes(classes_file(tmp_path, f"a\n{head}\n")).names[0] == "a"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_a_file_of_classes_may_have_the_encodings_of_a_table(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "classes.csv"
    path.write_bytes("name,description\ngroß,über €10\nklein,\n".encode(encoding))
    classes = read_classes(path)
    assert (classes.names, classes.descriptions) == (("groß", "klein"), ("über €10", ""))
