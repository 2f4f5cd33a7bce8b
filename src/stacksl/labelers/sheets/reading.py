"""A returned sheet, a workbook or text with separators: its answers, and its faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path

from stacksl.data.columns import is_named_id
from stacksl.data.files import WORKBOOK, csv_records, head_of, open_text
from stacksl.data.tables import delimiter_of
from stacksl.data.workbooks import sheets_of
from stacksl.errors import DataError
from stacksl.labelers.sheets.cells import Misread, plain, understood, visible
from stacksl.labelers.sheets.rows import Fault, Reply, Sheet, SheetRow, clean_key, has_form

_Line = tuple[int, Mapping[str, str], str | None]  # row as shown, cells, why none is to be used

_NEEDED = ("key", "answer")
_IDS = ("id", "item")  # columns that stand in place of the key
_READ = (*_NEEDED, *_IDS, "note", "prompt")
_HEADER = "(key, prompt, options, answer, note)"
_TOO_MANY = "the row has more cells than the header: put a text that holds the separator in quotes"
_DIGEST = 400  # letters and digits of a prompt that are compared


def read_sheet(
    path: Path,
    questions: Mapping[str, SheetRow],
    ids: Mapping[str, Sequence[str]] | None = None,
    id_column: str = "id",
) -> Sheet:
    """Read a file of answers: a workbook, or CSV with columns in any order.

    Rows may be missing, moved or repeated, and answers may be missing. A key that has two
    different answers in the file has none: each of its rows is a fault. The `questions` are what
    was shown with each key; `ids` are the keys of each item, for sheets with ids in their place,
    and `id_column` is where the run's data has them.

    Raises:
        DataError: the file as a whole cannot be read (a missing column, damage, ...).
    """
    replies: list[Reply] = []
    faults: list[Fault] = []
    empty_keys: set[str] = set()
    answered_keys: set[str] = set()
    owners, head = _owners(questions), head_of(path, ".xlsx or CSV")
    workbook = head.startswith(WORKBOOK)
    lines = _of_workbook(path, id_column) if workbook else _of_csv(path, head, id_column)
    for row, cells, unusable in lines:
        cell = cells.get("answer", "")
        keys: Sequence[str] = [clean_key(cells.get("key", ""))]
        if "key" not in cells:
            keys = (ids or {}).get(next(cells[name] for name in _IDS if name in cells), ())
        if not cell.replace("\ufeff", "").strip():
            empty_keys.update(keys)
            continue
        if not keys:
            faults.append(Fault(row, "id", "no answer to an item of this id was accepted"))
        for key in keys:
            answered_keys.add(key)
            fault = _misplaced(row, key, unusable, cells, questions, owners)
            outcome = fault or _reply(row, key, cells, questions[key])
            faults.append(outcome) if isinstance(outcome, Fault) else replies.append(outcome)
    all_keys = empty_keys | answered_keys
    if all_keys.isdisjoint(questions) and (len(all_keys) > 1 or empty_keys):  # one may be mistyped
        faults = [Fault(1, "key", "this run knows none of the keys: take the file of this run")]
    agreeing, contradictions = _one_a_key(replies)
    return Sheet(
        tuple(agreeing),
        tuple(sorted([*faults, *contradictions], key=lambda fault: fault.row)),
        len((empty_keys - answered_keys) & questions.keys()),
    )


def _misplaced(
    row: int,
    key: str,
    unusable: str | None,
    cells: Mapping[str, str],
    questions: Mapping[str, SheetRow],
    owners: Mapping[str, str],
) -> Fault | None:
    """Why the row's answer may be that of another key; None if nothing suggests it."""
    if unusable is not None:
        return Fault(row, "row", unusable)
    if key not in questions:
        return Fault(row, "key", _why_unknown(key))
    why = _why_foreign(key, _digest(cells.get("prompt", "")), questions[key], owners)
    return Fault(row, "prompt", why) if why else None


def _why_unknown(key: str) -> str:
    if not has_form(key):
        return "the cell holds no key: copy the key from the file that was given out"
    return (
        f"the key '{key}' was not given out by this run: copy it again if it was typed, or take the"
        " file of this run"
    )


def _reply(row: int, key: str, cells: Mapping[str, str], question: SheetRow) -> Reply | Fault:
    try:
        meaning = understood(cells["answer"], question.options, question.first, question.classes)
    except Misread as fault:
        return Fault(row, "answer", str(fault))
    note = cells.get("note")
    remark = plain(visible(note)).strip() if note else None
    return Reply(row, key, meaning.kind, meaning.position, meaning.text, remark or None)


def _one_a_key(replies: list[Reply]) -> tuple[list[Reply], list[Fault]]:
    """The first reply of each key whose replies agree, or the first with a note; the faults."""
    by_key: defaultdict[str, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_key[reply.key].append(reply)
    agreeing: list[Reply] = []
    faults: list[Fault] = []
    for key, group in by_key.items():
        if len({(r.kind, r.position, r.text) for r in group}) == 1:
            agreeing.append(next((r for r in group if r.note is not None), group[0]))
            continue
        rows = ", ".join(str(r.row) for r in group)
        sentence = f"the key {key} has different answers in the rows {rows}: leave one of them"
        faults.extend(Fault(r.row, "answer", sentence) for r in group)
    return agreeing, faults


# --- columns moved apart ---------------------------------------------------------------------


def _owners(questions: Mapping[str, SheetRow]) -> dict[str, str]:
    """The key of each prompt, by its digest; prompts of several keys are left out."""
    owners: dict[str, str] = {}
    shared_digests: set[str] = set()
    for key, question in questions.items():
        digest = _digest(question.prompt)
        if digest and owners.setdefault(digest, key) != key:
            shared_digests.add(digest)
    return {digest: key for digest, key in owners.items() if digest not in shared_digests}


def _why_foreign(key: str, digest: str, row: SheetRow, owners: Mapping[str, str]) -> str | None:
    """Why the prompt in a row, by its `digest`, cannot be that of its key, even edited."""
    owner = owners.get(digest, key)
    if owner != key:
        return (
            f"the prompt belongs to the row {owner}: one column was sorted or moved without the "
            "others; sort whole rows"
        )
    if not _alike(digest, _digest(row.prompt)):
        return (
            "the prompt does not belong to this key: is the file from another run, or "
            "was a column moved without the others?"
        )
    return None


def _alike(first: str, second: str) -> bool:
    """Whether two digests begin and end alike for half of the shorter, as after an edit."""
    shorter = min(len(first), len(second))
    shared_count = _shared(first, second) + _shared(first[::-1], second[::-1])
    return 2 * shared_count >= shorter


def _shared(first: str, second: str) -> int:
    """The number of characters with which both begin."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _digest(prompt: str) -> str:
    """What encodings and spreadsheets leave of a prompt: its first ASCII letters and digits."""
    return "".join(islice((c for c in prompt if c.isascii() and c.isalnum()), _DIGEST)).lower()


# --- files to rows of cells ------------------------------------------------------------------


def _of_csv(path: Path, head: bytes, id_column: str) -> Iterator[_Line]:
    """The rows below the header with their cells by the column's name, in small letters.

    A row's number counts as spreadsheets do: the header is row 1 and line breaks in cells do not
    count. Rows without any text are left out, but counted.
    """
    with open_text(path, mixed=False) as stream:
        records = csv_records(path, stream, delimiter_of(path, head, ","), strict=True)
        rows = enumerate((cells for _, cells in records), 1)
        filled_rows = ((number, cells) for number, cells in rows if _has_text(cells))
        _, header = next(filled_rows, (0, []))
        names = _names(header, id_column)
        if not _is_ours(names):
            missing = " and ".join(f"'{name}'" for name in _NEEDED if name not in names)
            raise DataError(
                f"'{path}' has no column {missing} in its first row: the header of the file that"
                f" was given out was expected {_HEADER}; corrections may have 'id' and 'answer'"
            )
        _refuse_twice(path, names)
        for number, cells in filled_rows:
            yield (
                number,
                _named(names, cells),
                _TOO_MANY if _has_text(cells[len(names) :]) else None,
            )


def _of_workbook(path: Path, id_column: str) -> Iterator[_Line]:
    """The rows of the one sheet with our header; sheets may have been renamed."""
    sheets = []
    for _, rows in sheets_of(path):
        names = _names(rows[0][1], id_column) if rows else []
        if _is_ours(names):
            _refuse_twice(path, names)
            sheets.append((names, rows[1:]))
    if len(sheets) != 1:
        raise DataError(
            f"'{path}' has {len(sheets)} sheets with the columns 'key' and 'answer' in their first "
            f"row, one was expected {_HEADER}: "
            + ("delete the copies" if sheets else "take the file that was given out")
        )
    names, rows = sheets[0]
    for number, cells in rows:
        yield number, _named(names, cells), None


def _is_ours(names: list[str]) -> bool:
    return "answer" in names and not {"key", *_IDS}.isdisjoint(names)


def _named(names: list[str], cells: list[str]) -> dict[str, str]:
    return {name: cell for name, cell in zip(names, cells, strict=False) if name in _READ}


def _names(header: list[str], id_column: str) -> list[str]:
    """The columns by name; without a key the run's own, or the only one like an id, is the `id`."""
    names = [cell.replace("\ufeff", "").strip().casefold() for cell in header]
    if {"key", *_IDS}.isdisjoint(names):
        ids = [n for n, name in enumerate(names) if name == id_column.strip().casefold()]
        ids = ids or [n for n, cell in enumerate(header) if is_named_id(cell)]
        names = ["id" if ids == [column] else name for column, name in enumerate(names)]
    return names


def _refuse_twice(path: Path, names: list[str]) -> None:
    repeated_names = [name for name, times in Counter(names).items() if times > 1 and name in _READ]
    if repeated_names:
        raise DataError(f"'{path}' has the column '{repeated_names[0]}' twice: delete one of them")


def _has_text(cells: list[str]) -> bool:
    return any(cell.strip() for cell in cells)
