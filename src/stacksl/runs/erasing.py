"""Taking one item out of the files of a run: its id, its texts, its rows.

Every function may be called again after a crash, and then has nothing left to do.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from csv import Error as TornCells
from csv import reader as cells_of
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stacksl import formats
from stacksl.errors import RunError
from stacksl.runs.folder import RunFolder, write_atomic
from stacksl.runs.frozen import erase, is_frozen, items_in

__all__ = [
    "Marks",
    "erase_features",
    "erase_lines",
    "erase_records",
    "erase_sheets",
    "erase_tables",
]

ERASED: Final = "(forgotten)"
LONG = 12  # characters from which a text is looked for inside others, too
NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Marks:
    """What tells that something is of the forgotten item.

    Attributes:
        id: the item's id.
        name: that of its tombstone, which takes the id's place.
        texts: its prompt, its own options, and what was said of it in words.
        keys: of the rows of sheets on which it was asked.
    """

    id: str
    name: str
    texts: frozenset[str]
    keys: frozenset[str]

    def clean(self, value: Any) -> Any:
        """A JSON value without what is of the item: entries of it are left out."""
        kept = self._clean(value)
        return None if kept is NOTHING else kept

    def _clean(self, value: Any) -> Any:
        if isinstance(value, dict):
            if self.id in (value.get("item"), value.get("id")):
                return NOTHING
            pairs = {key: self._clean(each) for key, each in value.items()}
            return {key: each for key, each in pairs.items() if each is not NOTHING}
        if isinstance(value, list):
            return [each for each in map(self._clean, value) if each is not NOTHING]
        return self._said(value) if isinstance(value, str) else value

    def _said(self, sentence: str) -> str:
        """A sentence without the item's texts and its id; a bare number is no id by itself."""
        for text in self.texts:
            whole = sentence == text or (len(sentence) >= LONG and text.startswith(sentence))
            if whole:  # a report shows the beginning of a long prompt
                return ERASED
            if len(text) >= LONG:
                sentence = sentence.replace(text, ERASED)
        sentence = sentence.replace(f"'{self.id}'", f"'{self.name}'")
        listed = r"(?<=[(,] )|(?<=\()" if self.id.isdecimal() else r"(?<![\w-])"
        return re.sub(rf"(?:{listed}){re.escape(self.id)}(?![\w-])", self.name, sentence)


def erase_features(
    folder: RunFolder, parts: Mapping[str, slice], row: int, ids: Sequence[str]
) -> None:
    """Zero the features of item number `row` everywhere, and drop trainings that were cut off.

    Args:
        folder: of the run.
        parts: the folders below `features/` and the items whose rows each of them holds.
        row: of the item.
        ids: of all items from now on.
    """
    for name, part in parts.items():
        if part.start <= row < part.stop and is_frozen(folder.features / name):
            erase(folder.features / name, row - part.start, ids[part])
    for epoch in sorted(folder.features.glob("epoch-*")):
        began = items_in(epoch) if is_frozen(epoch) else 0
        if row < began:
            erase(epoch, row, ids[:began])
        for name, part in parts.items():  # of items that came in the middle of it
            if began <= part.start <= row < part.stop and is_frozen(epoch / name):
                erase(epoch / name, row - part.start, ids[part])
    for training in folder.adapters.glob("*.part"):
        shutil.rmtree(training, ignore_errors=True)


def erase_records(folder: RunFolder, marks: Marks) -> list[str]:
    """Clean the JSON files of a run; the names of those that changed."""
    changed = []
    for name in ("facts.json", "state.json"):
        path = folder.path / name
        if path.is_file():
            before = _json(path)
            after = marks.clean(before)
            if after != before:
                write_atomic(path, formats.to_json(after))
                changed.append(name)
    return changed


def erase_tables(folder: RunFolder, marks: Marks) -> list[str]:
    """Put the tombstone's name in the place of the id in the tables of a run."""
    changed = []
    for name, field in (("metrics.jsonl", "item"), ("rejected.jsonl", "id")):
        given = marks.name if field == "item" else None

        def renamed(row: dict[str, Any], field: str = field, given: str | None = given) -> Any:
            return {**row, field: given} if row.get(field) == marks.id else row

        if _rewrite(folder.path / name, renamed):
            changed.append(name)
    if _rename_rounds(folder.path / "rounds.parquet", marks):
        changed.append("rounds.parquet")
    return changed


def erase_lines(path: Path, is_mine: Callable[[dict[str, Any]], bool]) -> bool:
    """Leave the items that are the forgotten one out of a JSONL file of the run's own."""
    return _rewrite(path, lambda row: None if is_mine(row) else row)


def _rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> bool:
    """Write the lines of a JSONL file anew, each as `change` gives it; whether any differs."""
    if not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    written, changed = [], False
    for line in lines:
        row = json.loads(line) if line.strip() else None
        after = change(row) if isinstance(row, dict) else row
        if after == row:
            written.append(line)
            continue
        changed = True
        if after is not None:
            written.append(json.dumps(after, ensure_ascii=False) + "\n")
    if changed:
        write_atomic(path, "".join(written))
    return changed


def _rename_rounds(path: Path, marks: Marks) -> bool:
    if not path.is_file():
        return False
    import pyarrow as pa
    from pyarrow import compute, parquet

    table = parquet.read_table(path)
    at = table.column_names.index("item")
    mine = compute.equal(table["item"], marks.id)
    if not compute.any(mine).as_py():
        return False
    renamed = compute.if_else(mine, pa.scalar(marks.name), table["item"])
    buffer = io.BytesIO()
    parquet.write_table(table.set_column(at, table.schema.field(at), renamed), buffer)
    write_atomic(path, buffer.getvalue())
    return True


def erase_sheets(folder: Path, marks: Marks) -> list[str]:
    """Leave the item's rows out of every sheet in the folder they were handed out in.

    A sheet that somebody saved there keeps its encoding, its separator and all other rows.
    """
    if not folder.is_dir():
        return []
    changed = []
    for key in marks.keys:
        if (long := folder / f"{key}.txt").exists():
            long.unlink()
            changed.append(long.name)
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in (".csv", ".tsv")):
        before = path.read_bytes()
        after = _without_rows(before, marks.keys)
        if after != before:
            mode = path.stat().st_mode & 0o777
            write_atomic(path, after)
            path.chmod(mode)
            changed.append(path.name)
    return changed


def _without_rows(payload: bytes, keys: Iterable[str]) -> bytes:
    """A sheet without the rows of `keys`; every other byte stays."""
    wide = payload[:2] in (b"\xff\xfe", b"\xfe\xff")
    # keys are ASCII, and Latin-1 gives every byte back as it was
    encoding = ("utf-16-le" if payload[:1] == b"\xff" else "utf-16-be") if wide else "latin-1"
    lines = _physical(payload.decode(encoding, "surrogatepass"))
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
    return "".join(kept).encode(encoding, "surrogatepass")


def _physical(text: str) -> list[str]:
    """The lines of a text, cut at line feeds alone: other breaks belong to cells."""
    return io.StringIO(text, newline="\n").readlines()


def _json(path: Path) -> Any:
    try:
        return formats.from_json(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): restore it from a copy") from fault
