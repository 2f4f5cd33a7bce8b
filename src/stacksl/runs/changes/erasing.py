"""Removal of one item from the files of a run: its id, its texts, its rows.

Every function may be called again after an interruption, and does what is left to do.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from csv import Error as TornCells
from csv import reader as cells_of
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stacksl.errors import DataError
from stacksl.features.store import erase, has_block, items_in
from stacksl.files import arrays
from stacksl.files.atomic import write_atomic
from stacksl.labelers.chat.calls import without_item
from stacksl.labelers.sheets.workbook_erasing import texts_in, without_rows
from stacksl.runs.finish.finish import NO_TEXT, write_pages
from stacksl.runs.loop.final_model import GRAPH, SAID
from stacksl.runs.storage.folder import RunFolder, shown_facts

ERASED: Final = "(forgotten)"
LONG: Final = 12  # characters from which a text is looked for inside others
LARGE: Final = 100_000_000  # bytes from which a file is not searched
BOMS: Final = (b"\xff\xfe", b"\xfe\xff")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Marks:
    """What identifies the forgotten item in files.

    Attributes:
        id: the item's id.
        name: the id of its tombstone, which replaces the id.
        prompt: of the item.
        texts: its prompt, its own options, right texts and notes of its answers.
        keys: of its rows in sheets.
    """

    id: str
    name: str
    prompt: str
    texts: frozenset[str]
    keys: frozenset[str]

    def clean(self, sentence: str) -> str:
        """A sentence without the item's texts and id; a bare number is not taken for an id."""
        for text in self.texts:
            if len(text) >= LONG:
                sentence = sentence.replace(text, ERASED)
        sentence = sentence.replace(f"'{self.id}'", f"'{self.name}'")
        listed = r"(?<=[(,] )|(?<=\()" if self.id.isdecimal() else r"(?<![\w-])"
        return re.sub(rf"(?:{listed}){re.escape(self.id)}(?![\w-])", self.name, sentence)


def erase_features(
    folder: RunFolder, parts: Mapping[str, slice], row: int, ids: Sequence[str]
) -> None:
    """Zero the features of item number `row` everywhere, and drop interrupted trainings.

    They are not computed again: the map was fitted on this item too, and an encoder or a language
    model need not give the others the same bits.

    Args:
        folder: of the run.
        parts: the folders below `features/` and the items whose rows each of them holds.
        row: of the item.
        ids: of all items from now on.
    """
    for name, part in parts.items():
        if part.start <= row < part.stop and has_block(folder.features / name):
            erase(folder.features / name, row - part.start, ids[part])
    for epoch in sorted(folder.features.glob("epoch-*")):
        began = items_in(epoch) if has_block(epoch) else 0
        if row < began:
            erase(epoch, row, ids[:began])
        for name, part in parts.items():  # of items added during the epoch
            if began <= part.start <= row < part.stop and has_block(epoch / name):
                erase(epoch / name, row - part.start, ids[part])
    (folder.features / GRAPH).unlink(missing_ok=True)  # made again without the item
    if (said := folder.features / SAID).is_file():
        classes = arrays.load(said)["said"].copy()
        classes[row : row + 1] = -1
        arrays.save(said, {"said": classes})


def erase_state(folder: RunFolder, marks: Marks) -> list[str]:
    """Clean the sentences of the run's state; a word for it where any differs."""
    before = folder.read_state()
    sentences = {"warnings": [marks.clean(each) for each in before.get("warnings", [])]}
    after = before | (sentences if "warnings" in before else {})
    if isinstance(before.get("sentence"), str):
        after["sentence"] = marks.clean(before["sentence"])
    if after == before:
        return []
    folder.write_state(after.pop("state"), **after)
    return ["the state"]


def erase_facts(folder: RunFolder, marks: Marks) -> list[str]:
    """Leave the item out of the facts, then make the pages again; what changed.

    The pages are made whether the facts change or not: an interrupted call may have cleaned the
    facts alone.
    """
    if (before := shown_facts(folder)) is None:
        return []
    after = replace(
        before,
        contested=tuple(each for each in before.contested if each.item != marks.id),
        warnings=tuple(map(marks.clean, before.warnings)),
        asking=before.asking
        and replace(
            before.asking,
            disagreements=tuple(d for d in before.asking.disagreements if d.item != marks.id),
        ),
    )
    changed = ["report.html", "README.md"]
    if after != before:
        write_atomic(folder.path / "facts.json", after.to_json())
        changed.insert(0, "facts.json")
    write_pages(folder)
    if (folder.path / NO_TEXT).is_dir():
        write_pages(folder, text=False)
        changed.append(f"{NO_TEXT}/")
    return changed


def erase_tables(folder: RunFolder, marks: Marks) -> list[str]:
    """Clean the JSONL files of a run but its copy of the data; the names of those that changed."""

    def is_asked(row: Line) -> Line | None:
        return {**row, "item": marks.name} if row.get("item") == marks.id else row

    def is_rejected(row: Line) -> Line | None:
        return {**row, "id": None} if row.get("id") == marks.id else row

    def is_tested(row: Line) -> Line | None:
        return None if row.get("prompt") == marks.prompt else row

    changes = {"metrics": is_asked, "rejected": is_rejected, "test": is_tested}
    names = {f"{stem}.jsonl": change for stem, change in changes.items()}
    changed = [name for name, change in names.items() if rewrite(folder.path / name, change)]
    return [*changed, *["the requests to a model"] * without_item(folder.database, marks.id)]


def rewrite(path: Path, change: Callable[[Line], Line | None]) -> bool:
    """Rewrite a JSONL file, each line as `change` makes it; whether any differs.

    A line that becomes None is left out; a file that is not there has no lines.
    """
    if not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    written = []
    for line in lines:
        row = json.loads(line)
        after = change(row)
        if after != row:
            line = "" if after is None else json.dumps(after, ensure_ascii=False) + "\n"
        written.append(line)
    if written == lines:
        return False
    write_atomic(path, "".join(written))
    return True


def erase_sheets(folder: Path, marks: Marks) -> list[str]:
    """Delete the item's rows from every sheet in the folder of sheets.

    A sheet that an annotator saved there keeps its encoding, its separator and all other rows. A
    workbook that cannot be read is left, for `left_untouched` to name.
    """
    if not folder.is_dir():
        return []
    changed = []
    for key in marks.keys:
        if (long := folder / f"{key}.txt").exists():
            long.unlink()
            changed.append(long.name)
    without = {".csv": _without_lines, ".tsv": _without_lines, ".xlsx": without_rows}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in without):
        with suppress(DataError):
            if (left := without[path.suffix.lower()](path, marks.keys)) is not None:
                write_atomic(path, left, mode=path.stat().st_mode & 0o777)
                changed.append(path.name)
    return changed


def _without_lines(path: Path, keys: Collection[str]) -> bytes | None:
    """A sheet as text without the rows of `keys`, every other byte as it is; None without any."""
    payload = path.read_bytes()
    # keys are ASCII, and Latin-1 gives every byte back as it was
    encoding = _wide(payload) or "latin-1"
    # cut at line feeds alone: other breaks belong to cells
    lines = io.StringIO(payload.decode(encoding, "surrogatepass"), newline="\n").readlines()
    head = lines[0] if lines else ""
    separator = max(",;\t", key=head.count)
    kept, start, wanted = [], 0, set(keys)
    reader = cells_of(lines, delimiter=separator)
    while True:
        try:
            row = next(reader, None)
        except TornCells:
            row = "".join(lines[start : reader.line_num]).split(separator)
        if row is None:
            break
        if not any(cell.strip(' "\r\n').lower() in wanted for cell in row):
            kept += lines[start : reader.line_num]
        start = reader.line_num
    return None if kept == lines else "".join(kept).encode(encoding, "surrogatepass")


def _wide(payload: bytes) -> str | None:
    """The UTF-16 encoding of a file that begins with its mark, else None."""
    if payload[:2] not in BOMS:
        return None
    return "utf-16-le" if payload[:1] == b"\xff" else "utf-16-be"


def left_untouched(folder: Path, marks: Marks) -> Iterator[str]:
    """The files below the folder of sheets that hold the item, or may, after `erase_sheets`.

    These are copies in subfolders, under other names, or without their keys, in which the prompt, a
    long note or a key is found; and files that cannot be searched (large, or no text).
    """
    texts = {marks.prompt, *(text for text in marks.texts if len(text) >= LONG), *marks.keys}
    wanted = {_letters(text) for text in texts}
    for root, _, names in os.walk(folder):
        for path in sorted(Path(root) / name for name in names):
            if path.is_file() and _may_hold(path, wanted):
                yield path.relative_to(folder).as_posix()


def _may_hold(path: Path, wanted: Iterable[str]) -> bool:
    try:
        if path.stat().st_size > LARGE:
            return True
        book = path.suffix.lower() == ".xlsx"
        text = "\n".join(texts_in(path)) if book else _text_of(path.read_bytes())
    except (OSError, UnicodeDecodeError, DataError):
        return True
    found = _letters(f"{path.stem} {text}")
    return any(each in found for each in wanted)


def _text_of(payload: bytes) -> str:
    """The text of a file in Unicode or in the encoding that spreadsheet programs save in.

    Raises:
        UnicodeDecodeError: it is in neither.
    """
    try:
        return payload.decode(_wide(payload) or "utf-8")
    except UnicodeDecodeError:
        if b"\0" in payload:  # no text
            raise
        return payload.decode("cp1252")


def _letters(text: str) -> str:
    """Letters and digits alone: quotes, escapes and line breaks differ between copies."""
    return "".join(filter(str.isalnum, text.casefold()))
