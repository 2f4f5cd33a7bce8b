"""`read`: a file of items, of any supported kind, to a `Dataset`."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from stacksl.data.assembly import Assembled, assemble
from stacksl.data.checking import warnings_of
from stacksl.data.classes import BANK_ID, Bank
from stacksl.data.columns import check_roles, guess_id, is_plain_id, plain_columns
from stacksl.data.dataset import Dataset
from stacksl.data.detection import SHAPES, shape_of
from stacksl.data.files import container_of, head_of, stem
from stacksl.data.shapes import Shape
from stacksl.data.tables import Row, Table, open_table, table_from
from stacksl.data.values import named, one_line
from stacksl.data.writing import native_rows
from stacksl.errors import DataError, SettingsError, unknown_name
from stacksl.types import Item

_GUESSED = ("classes", "options", "bank")  # shapes whose columns are not fixed by the format
CONTAINERS = ("csv", "tsv", "jsonl", "json", "parquet", "hub")


def read(
    path: str | Path | Table,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    bank: Bank | None = None,
    max_candidates: int = 2000,
    seed: int = 0,
    strict: bool = False,
    lenient: bool = False,
    warn: bool = True,
) -> Dataset:
    """The items and answers in a file, recognised by its content and then by its name.

    Args:
        path: the file; or `hf:NAME` for a dataset of the Hugging Face hub (extra `hub`); or rows
            in memory.
        format: overrides what is recognised: a container (`csv`, `tsv`, `jsonl`, `json`,
            `parquet`), a shape (`native`, `medqa`, `options`, `mmlu`, `preferences`, `classes`),
            or both as `csv:classes`.
        columns: overrides what is guessed: `prompt`, `label`, `id` or `candidates` to a column.
            Every usable row needs an id of its own in a column that is named here.
        usual: the columns of an earlier file of the kind, for roles that `columns` does not name.
            Where the file has no such prompt, its column `text`, `prompt` or `question` is read;
            where it has no such id, the id is guessed.
        classes: a label set known before (a model's): labels are mapped to it, every item's
            candidates is it, and no label column is needed.
        bank: the answers that all items choose from: each item's candidates is `bank.texts`, and
            a label is the text or the id of one.
        max_candidates: items with more options are set aside; a bank may be of any size.
        seed: permutes the responses of preference files, together with the item's id.
        strict: the first unusable row is an error.
        lenient: rows are set aside however many they are (while one is left), and an item with a
            label outside `classes` is kept without an answer and noted in `Dataset.unknown`.
        warn: whether to look for oddities; False saves time on a file that was read before.

    Returns:
        The items in the order of the file. Where the file gives no id, row 17 is `row-000017`.

    Raises:
        DataError: the file cannot be read, its columns are not there, more than 5 % (and more
            than two) of its rows are unusable, or none is left.
        SettingsError: an unknown format or column role.
        MissingExtra: `hf:NAME` without the extra `hub`.
    """
    container, wanted = _format(format)
    chosen = check_roles(columns)
    usual = {r: name for r, name in check_roles(usual).items() if name not in chosen.values()}
    known = _class_tuple(classes)
    not_ids = {*(() if bank is None else BANK_ID)}
    while True:  # again where a column that was guessed from the first rows is no id after all
        name, opened = _opened(path, container)
        with _one_sentence(), _uncollected(), opened as table:
            given = {**plain_columns(usual, table.columns), **chosen}
            id = given.get("id") or guess_id(table.columns, table.head, [*not_ids, *given.values()])
            shape = shape_of(table, wanted, given, seed, known, bank, id)
            result = assemble(
                table.rows,
                shape,
                classes=known,
                bank=None if bank is None else bank.texts,
                max_candidates=max_candidates,
                strict=strict,
                lenient=lenient,
                guessed="label" not in given,
                own_ids="id" in chosen or not is_plain_id(id or "id"),
            )
            if id is None or not result.without_id:
                _check_enough(path, result, lenient)
                break
            if "id" in chosen:
                raise DataError(_no_id(named(id, table.columns), result.without_id))
        not_ids.add(id)
        usual.pop("id", None)
    warnings = warnings_of(table, shape, result, given) if warn else ()
    return _dataset(name, table, shape, result, given, tuple(map(one_line, warnings)))


def _no_id(column: str, rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    return (
        f"the id column '{column}' should have another value in every row, but is empty or repeats"
        f" an earlier row in row{'s' if len(rows) > 1 else ''} {shown}: correct the file, or name"
        " another column with --id-column"
    )


def as_written(dataset: Dataset) -> Dataset:
    """`dataset` as `write` and `read` would give it: without white space around its texts.

    Raises:
        DataError: an item cannot be read, as one without a prompt.
    """
    rows = (Row(number, row) for number, row in enumerate(native_rows(dataset), 1))
    classes = dataset.classes and tuple(name.strip() for name in dataset.classes)
    found = read(
        table_from("jsonl", None, rows),
        format="native",
        classes=classes,
        max_candidates=max((len(item.candidates) for item in dataset.items), default=2),
        strict=True,
        warn=False,
    )
    return replace(dataset, items=found.items, answers=found.answers, classes=found.classes)


def _opened(
    path: str | Path | Table, container: str | None
) -> tuple[str, AbstractContextManager[Table]]:
    """The name of a file or dataset, and its table while a context lasts."""
    if isinstance(path, Table):
        return "items", nullcontext(path)
    if str(path).startswith("hf:") or container == "hub":
        from stacksl.data.tables import open_hub

        return open_hub(str(path))
    path = Path(path)
    head = head_of(path)
    return stem(path), open_table(path, container or container_of(path, head), head)


def rows_of(
    path: str | Path, dataset: Dataset
) -> tuple[tuple[str, ...], list[tuple[Mapping[str, Any], Item | None]]]:
    """The columns of the file that `dataset` was read from, and all of its rows.

    Returns:
        The names of the columns, and each row's values with the item that was read from it, or
        None where the row was set aside.
    """
    left_out = {each.row for each in dataset.rejected}
    items = iter(dataset.items)
    _, opened = _opened(path, dataset.format.partition(":")[0])
    with _one_sentence(), opened as table:
        rows = [(row.values, None if row.number in left_out else next(items)) for row in table.rows]
    names = dict.fromkeys([*table.columns, *(name for values, _ in rows for name in values)])
    return tuple(names), rows


@contextmanager
def _uncollected() -> Iterator[None]:
    """Do without the search for cycles, of which rows have none: it takes a quarter of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Put errors on one line, since they quote names and labels that may hold line breaks."""
    try:
        yield
    except DataError as error:
        raise DataError(one_line(str(error))) from None


def _dataset(
    name: str,
    table: Table,
    shape: Shape,
    result: Assembled,
    given: Mapping[str, str],
    warnings: tuple[str, ...],
) -> Dataset:
    return Dataset(
        name=name,
        format=f"{table.container}:{shape.name}",
        items=tuple(result.items),
        answers=result.answers,
        classes=None if result.mixed else result.classes,
        columns=shape.columns if shape.name in _GUESSED else dict(given),
        rejected=tuple(result.rejected),
        warnings=warnings,
        unused=tuple(
            name
            for name in table.columns
            if name not in (*shape.columns.values(), *shape.also_read)
        ),
        unknown=result.unknown,
    )


def _format(format: str | None) -> tuple[str | None, str | None]:
    """The container and the shape that `format` names, each None where it does not."""
    container = shape = None
    for part in (format or "").split(":"):
        if part in CONTAINERS:
            container = part
        elif part in SHAPES:
            shape = part
        elif part:
            raise unknown_name("format", part, (*CONTAINERS, *SHAPES))
    return container, shape


def _class_tuple(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    known = classes if isinstance(classes, tuple) else tuple(classes)
    if len(known) < 2 or len(set(known)) < len(known):
        raise SettingsError(f"classes must be two or more different texts, not {list(known)[:5]}")
    return known


def _check_enough(path: str | Path | Table, result: Assembled, lenient: bool) -> None:
    what = "the data" if isinstance(path, Table) else f"'{path}'"
    bad, total = len(result.rejected), len(result.rejected) + len(result.items)
    if not total:
        raise DataError(f"{what} has a header but no rows: items were expected")
    if result.items and (lenient or bad <= 2 or bad <= 0.05 * total):
        return
    kinds = Counter(r.kind for r in result.rejected)
    if not result.items and set(kinds) == {"under two options"}:
        raise DataError(f"every item in {what} has fewer than two candidates: two are needed")
    [(commonest, _)] = kinds.most_common(1)
    worst = next(r for r in result.rejected if r.kind == commonest)
    counts = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())
    left = "none is left" if not result.items else "more than 5 % are too many"
    way = "; save the file as UTF-8" if worst.reason.endswith("not UTF-8") else ""
    raise DataError(
        f"{bad} of {total} rows in {what} cannot be used ({left}): {counts}; "
        f"the first is row {worst.row}: {worst.reason}{way}"
    )
