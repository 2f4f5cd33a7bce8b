"""`read`: a file of items, of any supported kind, to a `Dataset`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stacksl.data.checking import other_labels, warnings_of
from stacksl.data.columns import check_roles, guess_id, is_plain_id, usual_columns
from stacksl.data.dataset import AS_USUAL, Dataset, Layout, Rejected
from stacksl.data.files import container_of, encoding_of, head_of, stem
from stacksl.data.shapes import SHAPES, Draft, Shape, shape_of
from stacksl.data.tables import Row, Table, open_table, table_from
from stacksl.data.values import RowFault, named, one_line, text
from stacksl.errors import DataError, SettingsError, unknown_name
from stacksl.types import Item

TEXTS = ("csv", "tsv", "jsonl", "json", "lines")
CONTAINERS = (*TEXTS, "parquet", "xlsx")
_MANY = 10  # fewer distinct labels than this never look like free text


def read(
    path: str | Path | Table,
    *,
    format: str | None = None,
    layout: Layout = AS_USUAL,
    columns: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    max_candidates: int = 2000,
    lenient: bool = False,
    without: str | None = None,
) -> Dataset:
    """The items and answers in a file, recognized by its content and then by its name.

    Args:
        path: the file, or rows in memory.
        format: overrides what is recognized: a container (`csv`, `tsv`, `jsonl`, `json`,
            `parquet`, `xlsx`, `lines`), a shape (`options`, `mmlu`, `classes`), or both as
            `csv:classes`.
        layout: where the rows are, where the content does not tell.
        columns: overrides what is guessed: `prompt`, `label`, `id` or `candidates` to a column.
            Every usable row needs an id of its own in a column that is named here.
        usual: the columns of an earlier file of the kind, for roles that `columns` does not name.
            Where the file has no such prompt, the column with a usual name of prompts is read;
            where it has no such id, the id is guessed.
        classes: a label set known before (a model's): labels are mapped to it, every item's
            candidates is it, and no label column is needed.
        max_candidates: items with more options are unusable.
        lenient: any number of rows may be unusable (while one is left), and an item with a
            label outside `classes` is kept without an answer and noted in `Dataset.unknown`.
        without: a column that is not read, under any name.

    Returns:
        The items in the order of the file. Where the file gives no id, row 17 is `row-000017`.

    Raises:
        DataError: the file cannot be read, its columns are not there, more than 5% (and more
            than two) of its rows are unusable, or none is left.
        SettingsError: an unknown format or column role.
    """
    container, shape_name = _format(format)
    user_roles = check_roles(columns)
    usual = {r: name for r, name in check_roles(usual).items() if name not in user_roles.values()}
    labels = None if classes is None else tuple(classes)
    if labels is not None and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise SettingsError(f"classes must be two or more different texts, not {list(labels)[:5]}")
    not_ids: set[str] = set()
    while True:  # again where a column that was guessed from the first rows is no id after all
        known_columns = [n for n in (*user_roles.values(), *usual.values(), without) if n]
        with _opened(path, container, layout, known_columns) as table:
            table = replace(table, columns=tuple(c for c in table.columns if c != without))
            roles = {**usual_columns(usual, table.columns), **user_roles}
            id = roles.get("id") or guess_id(table.columns, table.head, [*not_ids, *roles.values()])
            shape = shape_of(table, shape_name, roles, labels, id)
            reader = _Items(
                shape,
                max_candidates,
                lenient=lenient,
                own_ids="id" in user_roles or not is_plain_id(id or "id"),
            )
            reader.read(table.rows, labels, guessed="label" not in roles)
            if id is None or not reader.without_id:
                break
            if "id" in user_roles:
                raise _no_id(named(id, table.columns), reader.without_id)
        not_ids.add(id)
        usual.pop("id", None)
    read_columns = (*shape.columns.values(), *shape.also_read)
    dataset = Dataset(
        name="items" if isinstance(path, Table) else stem(Path(path)),
        format=f"{table.container}:{shape.name}",
        items=tuple(reader.items),
        answers=reader.answers,
        classes=reader.classes,
        columns={r: name for r, name in shape.columns.items() if name in table.columns},
        rejected=tuple(reader.rejected),
        unused=tuple(column for column in table.columns if column not in read_columns),
        unknown=reader.unknown,
        layout=layout,
        other_labels=other_labels(table, shape),
        numeric_ids=reader.numeric_ids,
    )
    if not lenient or not dataset.items:
        subject = "the data" if isinstance(path, Table) else f"'{path}'"
        _expect_enough(dataset, subject, table.columns)
    warnings = [*warnings_of(dataset, table, shape, roles)]
    read_text = not isinstance(path, Table) and table.container in TEXTS
    if read_text and encoding_of(Path(str(path))) == "cp1252":
        warnings.append("the file is not UTF-8: its letters are read as Windows-1252")
    return replace(dataset, warnings=tuple(map(one_line, warnings)))


def _no_id(column: str, rows: Sequence[int]) -> DataError:
    """The fault that a `column` named for ids has none of its own in some `rows`."""
    numbers = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    return DataError(
        f"the id column '{column}' should have another value in every row, but is empty or repeats"
        f" an earlier row in {'rows' if len(rows) > 1 else 'row'} {numbers}: correct the file, or"
        " name another column with --id-column"
    )


def _expect_enough(dataset: Dataset, subject: str, columns: Sequence[str]) -> None:
    """Check that enough rows of `subject` could be used."""
    bad_count, total = len(dataset.rejected), dataset.total
    if not total:
        raise DataError(f"{subject} has a header but no rows: items were expected")
    if dataset.items and (bad_count <= 2 or bad_count <= 0.05 * total):
        return
    kinds = Counter(r.kind for r in dataset.rejected)
    if not dataset.items and set(kinds) == {"under two options"}:
        raise DataError(f"every item in {subject} has fewer than two candidates: two are needed")
    [(commonest, _)] = kinds.most_common(1)
    worst = next(r for r in dataset.rejected if r.kind == commonest)
    counts = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())
    limit = "none is left" if not dataset.items else "more than 5% are too many"
    remedy = "; save the file as UTF-8" if worst.reason.endswith("not UTF-8") else ""
    if commonest == "empty prompt" and "prompt" in dataset.columns:
        column = named(dataset.columns["prompt"], columns)
        remedy = f" in the column '{column}' (--prompt-column names another)"
    sentence = (
        f"{bad_count} of {total} rows in {subject} cannot be used ({limit}): {counts}; "
        f"the first is row {worst.row}: {worst.reason}{remedy}"
    )
    raise DataError(sentence, dataset)


def as_written(dataset: Dataset) -> Dataset:
    """`dataset` as a file of its items would be read: without white space around its texts.

    Raises:
        DataError: an item cannot be read, as one without a prompt.
    """
    rows = []
    for number, item in enumerate(dataset.items, 1):
        values = {"id": item.id, "prompt": item.prompt, "candidates": item.candidates}
        rows.append(Row(number, {**values, "answer": dataset.answers.get(item.id)}))
    classes = dataset.classes and tuple(name.strip() for name in dataset.classes)
    reread = read(
        table_from("jsonl", None, rows),
        format="options",
        classes=classes,
        max_candidates=max((len(item.candidates) for item in dataset.items), default=2),
    )
    for row in reread.rejected:
        raise DataError(f"item {row.row} (id '{row.id}') cannot be used: {row.reason}; correct it")
    return replace(dataset, items=reread.items, answers=reread.answers, classes=reread.classes)


def rows_of(
    path: str | Path, dataset: Dataset
) -> tuple[tuple[str, ...], list[tuple[Mapping[str, Any], Item | None]]]:
    """The columns of the file that `dataset` was read from, and all of its rows.

    Returns:
        The names of the columns, and each row's values with the item that was read from it, or
        None where the row is unusable.
    """
    left_out = {rejected.row for rejected in dataset.rejected}
    items = iter(dataset.items)
    container, columns = dataset.format.partition(":")[0], [*dataset.columns.values()]
    with _opened(path, container, dataset.layout, columns) as table:
        rows = [(row.values, None if row.number in left_out else next(items)) for row in table.rows]
    names = dict.fromkeys([*table.columns, *(name for values, _ in rows for name in values)])
    return tuple(names), rows


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


def _opened(
    path: str | Path | Table, container: str | None, layout: Layout, columns: Sequence[str] = ()
) -> AbstractContextManager[Table]:
    """The table of a file or dataset, while the context lasts."""
    if isinstance(path, Table):
        return nullcontext(path)
    path = Path(path)
    head = head_of(path)
    container = container or container_of(path, head, columns)
    return open_table(path, container, head, layout, columns)


# --- rows into items ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Items:
    """The items, answers and rejected rows of a table.

    Args:
        shape: how to read a row.
        max_candidates: an item with more is unusable; more classes are an error.
        lenient: whether a label outside the classes leaves an item without an answer instead of
            making the row unusable.
        own_ids: whether each row needs an id of its own; else one without is called by its number,
            and one that repeats an id is unusable.

    Attributes:
        without_id: the rows without an id of their own, where each needs one.
        numeric_ids: whether all ids so far are whole numbers.
    """

    shape: Shape
    max_candidates: int
    lenient: bool
    own_ids: bool
    items: list[Item] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    without_id: list[int] = field(default_factory=list)
    numeric_ids: bool = True
    unknown: dict[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    _checked: tuple[str, ...] | None = None

    def read(self, rows: Iterable[Row], classes: tuple[str, ...] | None, *, guessed: bool) -> None:
        """Turn rows into items; what is unusable is kept with its reason.

        Labels are mapped to `classes` that are known; a column that was `guessed` has to look like
        one of labels.

        Raises:
            DataError: a label column that does not look like one.
        """
        sound_rows = list(self._sound(rows))
        self.classes = classes or self._classes([draft for *_, draft in sound_rows], guessed)
        for number, id, draft in sound_rows:
            try:
                self._add(id, draft)
            except RowFault as fault:
                self._reject(number, id, fault)
        self.rejected.sort(key=lambda r: r.row)

    def _sound(self, rows: Iterable[Row]) -> Iterator[tuple[int, str, Draft]]:
        """Number, id and content of each row without a fault of its own."""
        names: set[str] = set()
        shared_options: dict[tuple[str, ...], tuple[str, ...]] = {}
        column = self.shape.columns.get("id")
        for row in rows:
            id = None
            try:
                if row.fault is not None:
                    raise RowFault(row.fault)
                cell = row.values.get(column) if column else None
                self.numeric_ids &= type(getattr(cell, "value", cell)) is int
                id = text(cell, "the id") or None
                name = id or f"row-{row.number:06d}"
                draft = self.shape.draft(row.values, name)
                self._check(draft)
                if self.own_ids and (id is None or name in names):
                    self.without_id.append(row.number)
                elif name in names:
                    raise RowFault("repeated id")
            except RowFault as fault:
                self._reject(row.number, id, fault)
                continue
            names.add(name)
            texts = draft.candidates
            if texts is not None:
                draft = draft._replace(candidates=shared_options.setdefault(texts, texts))
            yield row.number, name, draft

    def _check(self, draft: Draft) -> None:
        if not draft.prompt:
            raise RowFault("empty prompt")
        if draft.candidates is None or draft.candidates == self._checked:
            return
        count = len(draft.candidates)
        if count < 2:
            raise RowFault(f"under two options: {count}")
        if not all(draft.candidates):
            raise RowFault("empty option")
        if len(set(draft.candidates)) < count:
            repeated = next(c for c, n in Counter(draft.candidates).items() if n > 1)
            first, second = [i for i, c in enumerate(draft.candidates, 1) if c == repeated][:2]
            raise RowFault(f"equal options: number {first} and number {second} of {count}")
        if count > self.max_candidates:
            raise RowFault(f"too many options: {count}, at most {self.max_candidates} are read")
        self._checked = draft.candidates

    def _classes(self, drafts: Sequence[Draft], guessed: bool) -> tuple[str, ...] | None:
        """The file's classes: those of its labels, or the options that all items share."""
        if self.shape.name != "classes":
            distinct = {id(draft.candidates): draft.candidates for draft in drafts}
            return next(iter(distinct.values())) if len(distinct) == 1 and len(drafts) > 1 else None
        if not drafts:
            return None
        labels = Counter(draft.label for draft in drafts)
        del labels[""]
        total = sum(labels.values())
        column = self.shape.columns.get("label")
        source = (
            f" in the column '{column}'" if column and named(column, (column,)) == column else ""
        )
        if not labels:
            raise DataError(
                f"no row has a label{source}, so the classes are not known: label some rows, name"
                " the classes in a file with --classes, or let `stacksl topics` propose some"
            )
        if len(labels) == 1:
            raise DataError(f"every row has the same label{source}: two or more are needed")
        if len(labels) > self.max_candidates or (
            guessed and len(labels) > _MANY and 2 * len(labels) > total
        ):
            raise DataError(
                f"{len(labels)} different labels in {total} rows{source} do not look like a label "
                "column: say which one it is with --label-column (or raise --max-candidates)"
            )
        return tuple(sorted(labels))

    def _add(self, id: str, draft: Draft) -> None:
        prompt, candidates, gold, label = draft
        if self.classes is not None and candidates != self.classes:
            classes = self.classes
            if candidates is not None:
                number = next((n for n, c in enumerate(candidates, 1) if c not in classes), None)
                if number is not None:
                    raise RowFault(
                        f"unknown class: option {number} is none of {len(classes)} classes"
                    )
                label = candidates[gold] if gold is not None else ""
            candidates = classes
            gold = classes.index(label) if label in classes else None
            if label and gold is None:
                if not self.lenient:
                    raise RowFault(f"unknown class: the label is none of {len(classes)} classes")
                self.unknown[id] = label
        assert candidates is not None  # classes are known wherever a row has no options
        self.items.append(Item(id, prompt, candidates))
        if gold is not None:
            self.answers[id] = gold

    def _reject(self, row: int, id: str | None, fault: RowFault) -> None:
        self.rejected.append(Rejected(row, id, one_line(str(fault))))
