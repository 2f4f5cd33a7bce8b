"""The items of a run as its database keeps them: what is written of them, and how they are read.

The files that a user names are read once, when the run is made or items are added. From then on the
database alone says what the items are; `differing` names the files that have changed since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import file_digest
from itertools import chain
from pathlib import Path
from typing import Any

from stacksl.data import Dataset
from stacksl.data.dataset import Rejected
from stacksl.ledger.purchases import ItemRecord
from stacksl.ledger.store.database import Store, opened
from stacksl.ledger.store.rows import (
    RejectedRow,
    read_items,
    read_never_asked,
    read_rejected,
)
from stacksl.ledger.store.schema import TEST
from stacksl.runs.items.sources import Kind, Part, Sources
from stacksl.runs.settings.fields import Settings
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item

ERASED = "(erased)"  # the prompt of an erased item, which keeps its place
EXCLUDED, EXCLUDED_AT_FIRST = "excluded", "excluded_at_first"  # facts: see `Sources.orphaned`


# What is written ------------------------------------------------------------------------------


def records_of(sources: Sources, first: int = 0) -> Iterator[ItemRecord]:
    """The items of the parts from number `first` on, as the database keeps them."""
    for number in range(first, len(sources.parts)):
        data = sources.parts[number].data
        for row, item in zip(sources.rows[number], data.items, strict=True):
            label = sources.model_labels[row] if row < len(sources.model_labels) else -1
            model = None if label < 0 else label
            size = len(sources.began or item.candidates)  # the ledger counts classes added since
            yield _record(item, data, size, model, number)


def records_of_test(sources: Sources) -> list[ItemRecord]:
    """The items of the test set, likewise."""
    test = sources.test
    return [] if test is None else [_record(i, test, len(i.candidates)) for i in test.items]


def rejected_of(sources: Sources, first: int = 0) -> list[RejectedRow]:
    """The rows that could not be used of the parts from number `first` on."""
    return [
        (number, row.row, row.id and _plain(row.id), _plain(row.reason))
        for number in range(first, len(sources.parts))
        for row in sources.parts[number].data.rejected
    ]


def _record(
    item: Item, data: Dataset, size: int, model: int | None = None, part: int = 0
) -> ItemRecord:
    options = [*item.candidates] if data.classes is None else None
    answer, unknown = data.answers.get(item.id), data.unknown.get(item.id)
    return ItemRecord(item.id, item.prompt, size, options, answer, unknown, model, part)


def _plain(text: str) -> str:
    """The text without what bad bytes of a file became, which no database takes."""
    return text.encode("utf-8", "replace").decode()


# What is read ---------------------------------------------------------------------------------


_Rows = tuple[list[Item], dict[str, int], dict[str, str]]  # of a part: answers, unknown ones


def read_sources(folder: RunFolder, settings: Settings, table: Mapping[str, Any]) -> Sources:
    """All items of a run, with its test set and classes; the `table` has all it is made with.

    Raises:
        LedgerError: the database cannot be read.
    """
    classes = folder.classes()
    names = None if classes is None else classes.names
    with opened(folder.database, readonly=True) as store, store.reading():
        rejected = read_rejected(store)
        test_rows = [row for rows in read_items(store, TEST) for row, erased in rows if not erased]
        rows_by_part, erased, labels = _items(store, names)
    files: list[tuple[Kind, str]] = [("pool", "")]
    files += [] if settings.owned is None else [("owned", "")]
    files += (added := table.get("more", []))
    parts = []
    for number, (kind, path) in enumerate(files):
        items, answers, unknown = rows_by_part[number]
        data = Dataset(
            name=str(table["data_name"]),
            format=str(table["data_format"]) if number == 0 else "",
            items=tuple(items),
            answers=answers,
            classes=names,
            columns=dict(table["columns"]),
            rejected=tuple(Rejected(*row[1:]) for row in rejected if row[0] == number),
            unknown=unknown,
            numeric_ids=bool(table.get("numeric_ids")),
        )
        parts.append(Part(kind, data, path))
    test_set, class_count = None, table.get("classes_began")
    if "test_name" in table:
        test_items = tuple(Item(row.id, row.prompt, _candidates(row, names)) for row in test_rows)
        answers = {row.id: row.answer for row in test_rows if row.answer is not None}
        test_set = Dataset(table["test_name"], table["data_format"], test_items, answers, names)
    return Sources(
        tuple(parts),
        test_set,
        classes,
        len(files) - len(added),
        frozenset(erased),
        frozenset(table.get(EXCLUDED, ())),
        frozenset(table.get(EXCLUDED_AT_FIRST, ())),
        None if class_count is None or names is None else names[:class_count],
        tuple(labels) if settings.model_labels is not None else (),
    )


def _items(
    store: Store, names: tuple[str, ...] | None
) -> tuple[dict[int, _Rows], list[int], list[int]]:
    """The items by part, the rows of erased ones, and what a model said of each."""
    indices = {name: index for index, name in enumerate(names or ())}
    rows_by_part: dict[int, _Rows] = defaultdict(lambda: ([], {}, {}))
    erased, labels = list[int](), list[int]()
    for row, (record, is_erased) in enumerate(chain.from_iterable(read_items(store))):
        items, answers, unknown = rows_by_part[record.part]
        labels.append(-1 if record.model is None else record.model)
        if is_erased:
            erased.append(row)
            options = tuple(f"option {number}" for number in range(1, (record.size or 0) + 1))
            items.append(Item(record.id, ERASED, names or options))
            continue
        items.append(Item(record.id, record.prompt, _candidates(record, names)))
        answer = record.answer
        if record.unknown is not None:
            answer = indices.get(record.unknown)  # of a class that was added since
            if answer is None:
                unknown[record.id] = record.unknown
        if answer is not None:
            answers[record.id] = answer
    return rows_by_part, erased, labels


def never_asked(folder: RunFolder, find: str, start: int, count: int) -> tuple[int, list[Item]]:
    """How many items that nobody was asked about have a text or id with `find`, and some of them.

    Only these are read, `count` of them from place `start` on, since a pool may be large.

    Raises:
        LedgerError: the database cannot be read.
    """
    classes = folder.classes()
    names = None if classes is None else classes.names
    with opened(folder.database, readonly=True) as store, store.reading():
        total, records = read_never_asked(store, find.casefold(), start, count)
    return total, [Item(row.id, row.prompt, _candidates(row, names)) for row in records]


def _candidates(record: ItemRecord, names: tuple[str, ...] | None) -> tuple[str, ...]:
    return (names or ()) if record.candidates is None else tuple(map(str, record.candidates))


def how_read(folder: RunFolder) -> Settings:
    """The settings of a run but for those of its gate, without a look at its items."""
    table = folder.resolved()
    values = {name: table[name] for name in Settings.model_construct().flat() if name in table}
    return Settings.model_construct().replaced(values)


# The user's files -----------------------------------------------------------------------------


def _stamp_of(path: str) -> list[Any] | None:
    """Size, time of change and SHA-256 of a file, to tell whether it changes; None without one."""
    file_path = Path(path)
    if not file_path.is_file():
        return None
    stat = file_path.stat()
    with file_path.open("rb") as file:
        return [stat.st_size, stat.st_mtime_ns, file_digest(file, "sha256").hexdigest()]


def stamps_of(paths: Iterable[str]) -> dict[str, list[Any]]:
    """The stamp of each path that names a file."""
    return {path: stamp for path in paths if (stamp := _stamp_of(path)) is not None}


def differing(stamps: Mapping[str, list[Any]]) -> list[str]:
    """A sentence for each file of a run that was changed, moved or deleted since it was read."""
    changes = []
    for path, (size, time, digest) in stamps.items():
        file_path = Path(path)
        if not file_path.is_file():
            changes.append(f"{path} was moved or deleted since the run read it")
        elif file_path.stat().st_size != size or (
            file_path.stat().st_mtime_ns != time and (_stamp_of(path) or ["", "", ""])[2] != digest
        ):
            changes.append(f"{path} was changed since the run read it")
    return [f"{change}; the run goes on with the items that it has" for change in changes]
