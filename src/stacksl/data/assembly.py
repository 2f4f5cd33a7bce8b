"""Rows into items: ids, the faults that set a row aside, and the classes of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stacksl.data.dataset import Rejected
from stacksl.data.shapes import ClassShape, Draft, Shape
from stacksl.data.tables import Row
from stacksl.data.values import RowFault, named, one_line, text
from stacksl.errors import DataError
from stacksl.types import Item

_MANY = 10  # fewer distinct labels than this never look like free text


@dataclass(slots=True)
class Assembled:
    """The items, answers and rejected rows of a file."""

    items: list[Item] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    without_id: list[int] = field(default_factory=list)  # rows, where each needs an id of its own
    unknown: dict[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    mixed: int = 0  # items with options of their own in a file of classes


class _Sound(NamedTuple):
    """A row without a fault of its own."""

    number: int
    id: str
    draft: Draft


def assemble(
    rows: Iterable[Row],
    shape: Shape,
    *,
    classes: tuple[str, ...] | None,
    max_candidates: int,
    strict: bool,
    lenient: bool,
    guessed: bool,
    bank: tuple[str, ...] | None = None,
    own_ids: bool = False,
) -> Assembled:
    """Turn rows into items; what cannot be used is set aside with its reason.

    Args:
        rows: the rows of a table.
        shape: how to read one.
        classes: a label set known before, to which labels are mapped.
        max_candidates: an item with more is set aside; more classes are an error.
        strict: whether the first fault is an error.
        lenient: whether a label outside `classes` leaves an item without an answer instead of
            setting the row aside.
        guessed: whether the label's column was guessed, so that it has to look like one.
        bank: candidates that all items share and that were checked before; they are no classes.
        own_ids: whether each row needs an id of its own; else one without is called by its number,
            and one that repeats an id is set aside.

    Raises:
        DataError: a fault under `strict`; a label column that does not look like one.
    """
    result = Assembled()
    sound = list(_sound(rows, shape, max_candidates, strict, result, bank, own_ids))
    guessed = guessed and isinstance(shape, ClassShape)
    if bank is None:
        label = shape.columns.get("label")
        _set_classes(sound, classes, max_candidates, guessed, label, result)
    for row in sound:
        try:
            _add(row, result, lenient)
        except RowFault as fault:
            _reject(Rejected(row.number, row.id, one_line(str(fault))), strict, result)
    result.rejected.sort(key=lambda r: r.row)
    return result


def _reject(rejected: Rejected, strict: bool, result: Assembled) -> None:
    if strict:
        who = f" (id '{rejected.id}')" if rejected.id else ""
        raise DataError(f"row {rejected.row}{who} cannot be used: {rejected.reason}")
    result.rejected.append(rejected)


def _sound(
    rows: Iterable[Row],
    shape: Shape,
    max_candidates: int,
    strict: bool,
    result: Assembled,
    bank: tuple[str, ...] | None,
    own_ids: bool,
) -> Iterable[_Sound]:
    seen: set[str] = set()
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    labels: dict[str, str] = {}
    column = shape.columns.get("id")
    for row in rows:
        id = None
        try:
            if row.fault is not None:
                raise RowFault(row.fault)
            id = (text(row.values.get(column), "the id") if column else "") or None
            name = id or f"row-{row.number:06d}"
            draft = shape.draft(row.values, name)
            _check(draft, max_candidates, bank)
            if own_ids and (id is None or name in seen):
                result.without_id.append(row.number)
            elif name in seen:
                raise RowFault("repeated id")
        except RowFault as fault:
            _reject(Rejected(row.number, id, one_line(str(fault))), strict, result)
            continue
        seen.add(name)
        own = draft.candidates
        if own is not None and own is not bank:  # a bank would be hashed for each row
            own = shared.setdefault(own, own)
        label = labels.setdefault(draft.label, draft.label)
        yield _Sound(row.number, name, Draft(draft.prompt, own, draft.gold, label))


def _check(draft: Draft, max_candidates: int, bank: tuple[str, ...] | None) -> None:
    if not draft.prompt:
        raise RowFault("empty prompt")
    if draft.candidates is None or draft.candidates is bank:
        return
    count = len(draft.candidates)
    if count < 2:
        raise RowFault(f"under two options: {count}")
    if not all(draft.candidates):
        raise RowFault("empty option")
    if len(set(draft.candidates)) < count:
        twice = next(c for c, n in Counter(draft.candidates).items() if n > 1)
        first, second = [at for at, c in enumerate(draft.candidates, 1) if c == twice][:2]
        raise RowFault(f"equal options: number {first} and number {second} of {count}")
    if count > max_candidates:
        raise RowFault(f"too many options: {count}, at most {max_candidates} are read")


def _set_classes(
    sound: list[_Sound],
    classes: tuple[str, ...] | None,
    max_candidates: int,
    guessed: bool,
    column: str | None,
    result: Assembled,
) -> None:
    """Decide the file's classes: those given, those of its labels, or the options all share."""
    if classes is not None:
        result.classes = classes
        return
    labels = Counter(row.draft.label for row in sound if row.draft.candidates is None)
    own = {id(row.draft.candidates): row.draft.candidates for row in sound if row.draft.candidates}
    unlabelled = labels.pop("", 0)
    if not labels and not unlabelled:
        if len(own) == 1 and len(sound) > 1:
            result.classes = next(iter(own.values()))
        return
    _check_labels(labels, max_candidates, guessed, column)
    result.classes = tuple(sorted(labels))
    result.mixed = sum(row.draft.candidates is not None for row in sound)


def _check_labels(
    labels: Mapping[str, int], max_candidates: int, guessed: bool, column: str | None
) -> None:
    total = sum(labels.values())
    if not labels:
        raise DataError(
            "no row has a label, so the classes are not known: label some rows, or give the classes"
        )
    if len(labels) == 1:
        raise DataError(f"every row has the same label{_in(column)}: two or more are needed")
    if len(labels) > max_candidates or (
        guessed and len(labels) > _MANY and 2 * len(labels) > total
    ):
        raise DataError(
            f"{len(labels)} different labels in {total} rows{_in(column)} do not look like a label "
            "column: say which one it is with --label-column (or raise --max-candidates)"
        )


def _in(column: str | None) -> str:
    """The column of the labels for a message; a name that may be private is left out."""
    return f" in the column '{column}'" if column and named(column, (column,)) == column else ""


def _add(row: _Sound, result: Assembled, lenient: bool) -> None:
    draft, classes = row.draft, result.classes
    candidates, gold = draft.candidates, draft.gold
    if classes is None or (candidates is not None and result.mixed):
        assert candidates is not None  # classes are known wherever a row has no options
    elif candidates != classes:  # for many classes the search below takes long
        label = draft.label
        if candidates is not None:
            strange = next((at for at, c in enumerate(candidates, 1) if c not in classes), None)
            if strange is not None:
                raise RowFault(f"unknown class: option {strange} is none of {len(classes)} classes")
            label = candidates[gold] if gold is not None else ""
        candidates, gold = classes, None
        if label in classes:
            gold = classes.index(label)
        elif label:
            if not lenient:
                raise RowFault(f"unknown class: the label is none of {len(classes)} classes")
            result.unknown[row.id] = label
    result.items.append(Item(row.id, draft.prompt, candidates))
    if gold is not None:
        result.answers[row.id] = gold
