"""`Dataset`: the items of a file, with the rows that could not be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Rejected:
    """An unusable row.

    Attributes:
        row: 1-based number of the row; a header line and blank lines do not count.
        id: the row's id where the file gives one.
        reason: why, as "kind" or "kind: detail"; the kind is what `check` counts by.
    """

    row: int
    id: str | None
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its detail."""
        return self.reason.split(":", 1)[0]


class Layout(NamedTuple):
    """Where the rows are in a file that its content does not tell.

    Attributes:
        worksheet: the sheet of a workbook, where several have rows.
        header: whether the first row of a CSV file or a workbook has the names of the columns; None
            to find out.
        headless: whether the file before had no such row: then only usual names make one.
    """

    worksheet: str | None = None
    header: bool | None = None
    headless: bool = False


AS_USUAL = Layout()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Items with the answers that are known, and what was noticed while reading them.

    Attributes:
        name: the file's name without its endings.
        format: `CONTAINER:SHAPE`, such as `csv:classes`, `jsonl:options`.
        items: the usable items, in the order of the file.
        answers: item id to the index of its gold candidate; items without an answer are absent.
        classes: the fixed label set, where there is one: every item's candidates is this very
            tuple object. None where items have their own options.
        columns: role (`prompt`, `label`, `id`, `candidates`) to the name of the column that was
            read for it; give it to `read` as `usual` for another file of the same kind.
        rejected: the unusable rows.
        warnings: sentences on what is odd but usable.
        unused: the columns that are not read.
        unknown: item id to a label outside `classes`; such items have no answer (only where
            `read` was given classes and is lenient).
        layout: where the rows are in the file.
        other_labels: of the first rows, in a column named as the label of which none is a class.
        numeric_ids: whether every id is a whole number in the file, and no text of digits.
    """

    name: str
    format: str
    items: tuple[Item, ...]
    answers: Mapping[str, int]
    classes: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = AS_USUAL
    other_labels: Mapping[str, str] = field(default_factory=dict)
    numeric_ids: bool = False

    def own_id(self, id: str) -> str | int:
        """The `id` of an item as the file has it, for what is joined with the file."""
        return int(id) if self.numeric_ids and re.fullmatch(r"0|-?[1-9]\d*", id) else id

    @property
    def total(self) -> int:
        """The number of rows read, usable or not."""
        return len(self.items) + len(self.rejected)

    @property
    def unlabeled(self) -> int:
        """The number of usable items whose file gives no answer (unknown classes are answers)."""
        return len(self.items) - len(self.answers) - len(self.unknown)
