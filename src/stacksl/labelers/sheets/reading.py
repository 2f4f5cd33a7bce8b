"""A returned sheet: its answers, and every cell that was not understood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice, takewhile
from pathlib import Path

from stacksl.labelers.sheets.cells import plain, visible
from stacksl.labelers.sheets.decoding import lines_of
from stacksl.labelers.sheets.keys import clean_key, has_form, is_key
from stacksl.labelers.sheets.meaning import Meaning, Misread, understood
from stacksl.labelers.sheets.rows import Asked, Fault, Reply, Sheet

_DIGEST = 400  # letters and digits of a prompt that are compared


def read_sheet(path: Path, known: Mapping[str, Asked]) -> Sheet:
    """Read a file of answers: a workbook, or CSV with columns in any order.

    Rows may be missing, moved or repeated, and answers may be missing. A key that has two
    different answers in the file has none: each of its rows is a fault.

    Args:
        path: the file.
        known: what was shown with each key that may be returned.

    Raises:
        DataError: the file as a whole cannot be read (a missing column, damage, ...).
    """
    replies: list[Reply] = []
    faults: list[Fault] = []
    empty: set[str] = set()
    answered: set[str] = set()
    owners = _owners(known)
    for row, cells, unusable in lines_of(path):
        cell = cells.get("answer", "")
        key = clean_key(cells.get("key", ""))
        if not cell.replace("\ufeff", "").strip():
            empty.add(key)
            continue
        answered.add(key)
        fault = _misplaced(row, key, unusable, cells, known, owners)
        read = fault or _reply(row, key, cells, known[key])
        faults.append(read) if isinstance(read, Fault) else replies.append(read)
    kept, contradictions = _one_a_key(replies)
    return Sheet(
        tuple(kept),
        tuple(sorted([*faults, *contradictions], key=lambda fault: fault.row)),
        len((empty - answered) & known.keys()),
    )


def _misplaced(
    row: int,
    key: str,
    unusable: str | None,
    cells: Mapping[str, str],
    known: Mapping[str, Asked],
    owners: Mapping[str, str],
) -> Fault | None:
    """Why the row's answer may be that of another key; None if nothing suggests it."""
    if unusable is not None:
        return Fault(row, "row", unusable)
    if key not in known:
        return Fault(row, "key", _why_unknown(key))
    why = _why_foreign(key, _digest(cells.get("prompt", "")), known[key], owners)
    return Fault(row, "prompt", why) if why else None


def _why_unknown(key: str) -> str:
    if not key:
        return "the answer's key is missing: copy it from the file that was given out"
    if not has_form(key):
        return (
            f"the cell ({len(key)} characters) is no key: copy it from the file that was given out"
        )
    if not is_key(key):
        return f"'{key}' is mistyped, its last letter does not fit: copy it again"
    return f"the key '{key}' was not given out by this run: is the file of another one?"


def _reply(row: int, key: str, cells: Mapping[str, str], shown: Asked) -> Reply | Fault:
    cell, note = cells["answer"], cells.get("note", "")
    meanings: dict[Meaning, None] = {}
    why = ""
    for count in dict.fromkeys((shown.first, None)):  # as its first file had it, and as it is now
        try:
            meanings[understood(cell, shown.options[:count])] = None
        except Misread as fault:
            why = str(fault)
    if len(meanings) > 1:
        why = "the answer means another option since options were added: write the option's text"
    if len(meanings) != 1:
        return Fault(row, "answer", why)
    (meaning,) = meanings
    remark = plain(visible(note)).strip() or None
    said = (meaning.said, meaning.position, meaning.text)
    return Reply(row, key, *said, remark)


def _one_a_key(replies: list[Reply]) -> tuple[list[Reply], list[Fault]]:
    """The first reply of each key whose replies agree, or the first with a note; the faults."""
    by_key: defaultdict[str, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_key[reply.key].append(reply)
    kept: list[Reply] = []
    faults: list[Fault] = []
    for key, same in by_key.items():
        if len({(r.said, r.position, r.text) for r in same}) == 1:
            kept.append(next((r for r in same if r.note is not None), same[0]))
            continue
        rows = ", ".join(str(r.row) for r in same)
        sentence = f"the key {key} has different answers in the rows {rows}: leave one of them"
        faults.extend(Fault(r.row, "answer", sentence) for r in same)
    return kept, faults


# --- columns moved apart ---------------------------------------------------------------------


def _owners(known: Mapping[str, Asked]) -> dict[str, str]:
    """The key of each prompt, by its digest; prompts of several keys are left out."""
    owners: dict[str, str] = {}
    several: set[str] = set()
    for key, shown in known.items():
        digest = _digest(shown.prompt)
        if digest and owners.setdefault(digest, key) != key:
            several.add(digest)
    return {digest: key for digest, key in owners.items() if digest not in several}


def _why_foreign(key: str, found: str, shown: Asked, owners: Mapping[str, str]) -> str | None:
    """Why the prompt `found` in a row cannot be that of its key, even edited."""
    owner = owners.get(found, key)
    if owner != key:
        return (
            f"the prompt is that of the row {owner}: one column was sorted or moved without the "
            "others; sort whole rows"
        )
    if not _alike(found, _digest(shown.prompt)):
        return (
            "the prompt is not that of this key: is the file of another run, or "
            "was a column moved without the others?"
        )
    return None


def _alike(one: str, two: str) -> bool:
    """Whether two digests begin and end alike for half of the shorter, as after an edit."""
    shorter = min(len(one), len(two))
    same = _shared(one, two) + _shared(one[::-1], two[::-1])
    return 2 * same >= shorter


def _shared(one: str, two: str) -> int:
    """The number of characters with which both begin."""
    pairs = zip(one, two, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _digest(prompt: str) -> str:
    """What encodings and spreadsheets leave of a prompt: its first ASCII letters and digits."""
    return "".join(islice((c for c in prompt if c.isascii() and c.isalnum()), _DIGEST)).lower()
