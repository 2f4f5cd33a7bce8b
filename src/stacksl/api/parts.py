"""Files in parts, each labeled to a file of its own: in this process, or by Ray on many nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stacksl.api.labeling import TO_PERSON, label_file, threshold_of
from stacksl.data import TABLES, kind_of_table
from stacksl.engine import on_ray, over_ray
from stacksl.errors import DataError, SettingsError
from stacksl.files.atomic import replace_file
from stacksl.models.linear import Model
from stacksl.runs.items.reading import read_again
from stacksl.runs.items.stored import how_read
from stacksl.runs.storage.derived import MODEL, digests

if TYPE_CHECKING:
    from stacksl.api.stored import Run


def in_parts(source: str) -> bool:
    """Whether `source` names files in parts: a pattern, a folder, or an address like `s3://...`."""
    pattern = any(sign in source for sign in "*?[") and not os.path.exists(source)
    return pattern or "://" in source or os.path.isdir(source)


def label_parts(
    run: Run, source: str, out: str, given: Mapping[str, str], right: str | None
) -> Iterator[dict[str, Any]]:
    """Label each file of `source` by the run's model, to a file of the same name in `out`.

    A file that is there already is kept, unless its part is newer. `source` is a pattern such as
    `parts/*.csv` or a folder, `out` a folder, on any file system of pyarrow; names that begin with
    `.` or `_` are left out. `given` is as for `Run.read`, `right` as for `Run.predict`.

    Returns:
        For each part `file`, `kept`, and, if it was not, the rows `n`, how many of them are `blank`
        for a person, and those `rejected`.

    Raises:
        StackslError: as `Run.predict`; or there is no part, or `out` has other files.
    """
    model, settings = run.model, how_read(run.folder)
    if not isinstance(model, Model):
        raise SettingsError("a language model labels one file at a time: give the name of a file")
    least = None if right is None else threshold_of(run, right)
    folder, (reads, origin, parts) = _parts_of(source)
    writes, target, files = _listed(out)
    if (reads.type_name, origin) == (writes.type_name, target):
        raise DataError(f"'{out}' is the folder of the parts: give --out another one")
    there = {file.base_name: file.mtime_ns or 0 for file in files}
    options = dict(digests(run.folder, [MODEL])), sorted(given.items()), least
    how = repr((reads.type_name, origin, *options))
    mark = f"_labeled-{sha256(how.encode()).hexdigest()[:16]}"  # an empty file
    if mark not in there and any(name[0] not in "._" for name in there):
        raise DataError(
            f"'{out}' has files of other parts, another model, other options or another program:"
            " give --out a folder that is new, empty or of the same command"
        )
    todo = []
    for name, part in parts.items():
        kind_of_table(name)  # before the work
        if name not in there or there[name] < (part.mtime_ns or 0):
            todo.append((part.path, name))
        else:
            yield {"file": name, "kept": True}

    def write(name: str, payload: bytes) -> None:  # a file appears when it is whole
        if writes.type_name == "local":
            replace_file(Path(target) / name, payload)
            return
        with writes.open_output_stream(f"{target}/{name}") as stream:
            stream.write(payload)

    def label(part: tuple[str, str]) -> dict[str, Any]:
        (path, name), temp = part, ""
        try:
            with TemporaryDirectory() as temp, reads.open_input_file(path) as stream:
                copy = Path(temp) / name
                copy.write_bytes(stream.read())
                data = read_again(settings, model, copy, given)
                table = label_file(model, copy, data, None, least)
            write(name, TABLES[kind_of_table(name)](table.columns, table.rows))
        except (DataError, OSError) as fault:
            text = str(fault)
            return {"file": name, "fault": text.replace(temp, folder or ".") if temp else text}
        rejected = [{"row": r.row, "id": r.id, "reason": r.reason} for r in data.rejected]
        counts = {"n": len(table.rows), "blank": table.blank.get(TO_PERSON, 0)}
        return {"file": name, "kept": False, **counts, "rejected": rejected}

    writes.create_dir(target, recursive=True)
    write(mark, b"")
    gpu = getattr(getattr(model.features, "encoder", None), "gpu", False)
    faults = []
    for row in over_ray(label, todo, gpu=gpu) if todo and on_ray() else map(label, todo):
        if "fault" in row:
            faults.append(f"in the part {row['file']}: {row['fault']}")
        else:
            yield row
    if faults:
        done = f"{len(todo) - len(faults)} of {len(todo)} parts were labeled"
        raise DataError(f"{'; '.join(faults)} ({done})")


def _parts_of(source: str) -> tuple[str, tuple[Any, str, dict[str, Any]]]:
    """The folder of the parts, as it was given; its file system, its path there, and its parts."""
    place, mark, options = source.partition("?") if "://" in source else (source, "", "")
    folder, _, pattern = (f"{place}/" if os.path.isdir(place) else place).rpartition("/")
    options = mark + options  # such as ?endpoint_override=HOST:PORT
    reads, origin, files = _listed((folder or ("/" if place.startswith("/") else ".")) + options)
    plain = "://" in source and not any(sign in pattern for sign in "*[")
    if plain and all(file.base_name != pattern for file in files):  # a folder without a last slash
        (reads, origin, files), folder, pattern = _listed(source), place, ""
    named = {file.base_name: file for file in files if fnmatchcase(file.base_name, pattern or "*")}
    parts = {name: named[name] for name in sorted(named) if name[0] not in "._"}
    if not parts:
        raise DataError(
            f"there is no file '{source}': give a folder, or a pattern of names in quotes such as"
            " 'parts/*.csv' (names that begin with . or _ are left out)"
        )
    return folder, (reads, origin, parts)


def _listed(folder: str) -> tuple[Any, str, list[Any]]:
    """A folder's file system, its path there, and its files."""
    from pyarrow.fs import FileSelector, FileSystem

    try:
        place = folder if "://" in folder else os.path.abspath(folder)
        system, path = FileSystem.from_uri(place)
        entries = system.get_file_info(FileSelector(path, allow_not_found=True))
    except (OSError, ValueError) as fault:
        raise DataError(f"the folder '{folder}' cannot be opened: {fault}") from None
    return system, path, [entry for entry in entries if entry.is_file]
