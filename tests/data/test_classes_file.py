"""Files of classes: names, descriptions and examples, and what a run refuses of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.data import Classes, read_classes
from stacksl.errors import DataError
from stacksl.types import Item

NAMES, SAID = ("lost card", "top up"), ("it cannot be found", "")
EXAMPLES = (("my card is gone", "where is it, my card?"), ("add money",))


def made(folder: Path, text: str, name: str = "classes.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "name,description,examples\n"
        'lost card,it cannot be found,"my card is gone| where is it, my card?|"\n'
        "top up,,add money|add money\n",
        "Name\tDescription\tExamples\n"
        "lost card\tit cannot be found\tmy card is gone|where is it, my card?\n"
        "\ntop up\t\tadd money\n",
    ],
)
def test_examples_of_classes_are_read(tmp_path, text) -> None:
    assert read_classes(made(tmp_path, text)) == Classes(NAMES, SAID, EXAMPLES)


def test_examples_without_descriptions_and_classes_without_examples(tmp_path) -> None:
    found = read_classes(made(tmp_path, "name,examples\na,x|y\nb\nc,\n"))
    assert found == Classes(("a", "b", "c"), ("", "", ""), (("x", "y"), (), ()))
    assert read_classes(made(tmp_path, "name,description,examples\na,,\nb,,\n")).examples == ()


def test_files_without_examples_are_read_as_before(tmp_path) -> None:
    found = read_classes(made(tmp_path, "a, one | two, three\nb\n"))
    assert found == Classes(("a", "b"), ("one | two, three", ""))


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
        read_classes(made(tmp_path, text))


def test_an_example_that_is_an_item_is_a_label_nobody_paid_for() -> None:
    classes = Classes(NAMES, SAID, EXAMPLES)
    items = [Item("1", "Add  money", NAMES), Item("2", "add some money", NAMES)]
    classes.expect_apart(items[1:], "the data")
    with pytest.raises(DataError, match="1 items of the test set .* --owned"):
        classes.expect_apart(items, "the test set")
    Classes(NAMES, SAID).expect_apart(items, "the data")
