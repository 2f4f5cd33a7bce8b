"""Files of classes, with descriptions and examples."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stacksl.data.files import container_of, head_of, open_text
from stacksl.data.values import is_utf8, listed, normal, one_line
from stacksl.data.workbooks import reading_workbook, table_of_sheet
from stacksl.errors import DataError
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Classes:
    """A fixed label set, in the order of its file.

    Attributes:
        names: two or more different texts.
        descriptions: of each, empty where there is none.
        examples: texts of each that its owner wrote; empty where no class has one.
    """

    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    examples: tuple[tuple[str, ...], ...] = ()

    def alike(self, items: Iterable[Item]) -> list[int]:
        """The places of the `items` with the text of an example, up to case and white space."""
        example_texts = {normal(text) for texts in self.examples for text in texts}
        pairs = enumerate(items) if example_texts else ()
        return [index for index, item in pairs if normal(item.prompt) in example_texts]

    def without(self, prompt: str) -> Classes:
        """These classes without the examples that have the text of a prompt."""
        examples = ([e for e in texts if normal(e) != normal(prompt)] for texts in self.examples)
        return replace(self, examples=tuple(map(tuple, examples)))

    def expect_apart(self, items: Sequence[Item]) -> None:
        """Check that no example is the text of one of the `items` of a test set.

        Raises:
            DataError: one is.
        """
        if indices := self.alike(items):
            raise DataError(
                "no item of the test set should have the text of an example of a class, got"
                f" {len(indices)}, the first is {items[indices[0]].id}: remove those examples, or"
                " leave the items out of the test file"
            )


def read_classes(path: str | Path) -> Classes:
    """The classes in a text file: `name`, or `name, description`, one per line; or in a workbook.

    A tab separates them where the file has any, else the first comma outside quotes;
    empty lines are passed over, and so is a first line `name` or `name, description`. Behind a
    first line `name, description, examples` or `name, examples` the last cell has examples, with
    `|` between them. A workbook, of one sheet or as `stacksl topics` writes it, may have a column
    for each example; its rows with the same name are one class, those without one are left out.

    Raises:
        DataError: the file cannot be read, is JSON or a workbook without a column `name`, holds
            fewer than two classes, one of them twice, one example for two of them, or a line that
            begins with a separator.
    """
    file = Path(path)
    lines: dict[str, _Line] = {}
    for line in _lines_of_workbook(file) if file.suffix == ".xlsx" else _lines(file):
        if not line.name:
            raise DataError(
                f"line {line.number} of {file} has no class before its separator: add it"
            )
        if line.name in lines:
            raise DataError(
                f"line {line.number} of {file} repeats the class of line"
                f" {lines[line.name].number}: give each class once"
            )
        lines[line.name] = line
    if len(lines) < 2:
        raise DataError(
            f"{file} should hold two classes or more, one per line, but has {len(lines)}"
        )
    numbers: dict[str, int] = {}
    for line in lines.values():
        for example in line.examples:
            if numbers.setdefault(normal(example), line.number) != line.number:
                raise DataError(
                    f"line {line.number} of {file} has an example that line"
                    f" {numbers[normal(example)]} gives another class: leave it to one of them"
                )
    examples = tuple(line.examples for line in lines.values())
    descriptions = tuple(line.description for line in lines.values())
    return Classes(tuple(lines), descriptions, examples if any(examples) else ())


_EXAMPLES = "examples"
_NAMES = ("name", "class", "label", "topic", "category", "intent")  # headers that mean the name
_HEADERS = (
    ["name"],
    ["name", "description"],
    ["name", "description", _EXAMPLES],
    ["name", _EXAMPLES],
)


@dataclass(frozen=True, slots=True)
class _Line:
    """A class, and the number of its line."""

    number: int
    name: str
    description: str
    examples: tuple[str, ...] = ()


TOPICS = "Topics"  # the sheet of a workbook that has the classes


def _lines_of_workbook(path: Path) -> Iterable[_Line]:
    """The classes in a workbook, those of one name together; a merged cell names all its rows."""
    from openpyxl import load_workbook
    from openpyxl.cell import MergedCell

    container_of(path, head_of(path))
    with reading_workbook(path):
        book = load_workbook(path, keep_links=False)
    titles = [sheet.title for sheet in book.worksheets if sheet.max_row > 1]
    of_classes = [
        title for title in book.sheetnames if title.casefold() in (TOPICS.casefold(), "classes")
    ]
    title = of_classes[0] if of_classes else "".join(titles)
    if title not in book.sheetnames:
        raise DataError(
            f"{path} should have the classes in a sheet '{TOPICS}' or 'Classes', or in its only"
            f" one with rows, but has {', '.join(map(repr, titles)) or 'no rows'}: rename the sheet"
            " of the classes"
        )
    (_, header), *rows = table_of_sheet(path, title) or [(0, [])]
    head = [" ".join(cell.split()).casefold() for cell in header]
    column = next((name for name in _NAMES if name in head), None)
    if column is None:
        raise DataError(
            f"the sheet '{title}' of {path} should have a column 'name', but has"
            f" {listed(header) or 'no row'}: give the column with the classes that name"
        )
    name_index = head.index(column)
    head[name_index] = "name"
    lines: dict[str, _Line] = {}
    line = _Line(0, "", "")
    for number, cells in rows:
        is_merged = isinstance(book[title].cell(number, name_index + 1), MergedCell)
        merged_name = {"name": line.name} if is_merged else {}
        line = _line(number, dict(zip(head, cells, strict=False)) | merged_name)
        if line.name:
            earlier_line = lines.get(normal(line.name), line)
            examples = tuple(dict.fromkeys([*earlier_line.examples, *line.examples]))
            text = earlier_line.description or line.description
            lines[normal(line.name)] = replace(earlier_line, description=text, examples=examples)
    return lines.values()


def _line(number: int, cells: Mapping[str, str]) -> _Line:
    texts = cells.get(_EXAMPLES, "").split("|")
    texts += [cell for column, cell in cells.items() if column.startswith("example ")]
    examples = dict.fromkeys(filter(None, (" ".join(example.split()) for example in texts)))
    name, description = (one_line(cells.get(key, "")).strip() for key in ("name", "description"))
    return _Line(number, name, description, tuple(examples))


def _lines(path: Path) -> Iterator[_Line]:
    """The lines of a text that are not empty."""
    head_of(path, "a class a line, or .xlsx")
    with open_text(path, mixed=False) as stream:
        text = stream.read()
    if not is_utf8(text):
        raise DataError(f"the file of classes {path} is not UTF-8: save it as UTF-8")
    if text.lstrip().startswith('{"'):
        raise DataError(
            f"{path} should have one class per line, as 'name, description', but begins as JSON"
            " does: save it as CSV"
        )
    separator = "\t" if "\t" in text else ","
    rows = csv.reader(text.splitlines(), delimiter=separator, skipinitialspace=True)
    columns: list[str] = []
    for number, row in enumerate(rows, start=1):
        cells = [one_line(cell).strip() for cell in row]
        if not any(cells):
            continue
        head = [cell.casefold() for cell in cells]
        head[:1] = ["name"] if head[0] in _NAMES else head[:1]
        if number == 1 and head in _HEADERS:
            columns = head
        elif _EXAMPLES not in columns:
            between = ", " if separator == "," else " "
            yield _Line(number, cells[0], between.join(filter(None, cells[1:])))
        elif len(cells) > len(columns):
            raise DataError(
                f"line {number} of {path} should have {len(columns)} cells, as the first line"
                f" has, but has {len(cells)}: put texts with a separator between double quotes"
            )
        else:
            yield _line(number, dict(zip(columns, cells, strict=False)))
