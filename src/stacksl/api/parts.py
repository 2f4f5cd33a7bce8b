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
from stacksl.runs.storage.folder import MODEL, digests

if TYPE_CHECKING:
    from stacksl.api.stored import Run


def in_parts(source: str) -> bool:
    """Whether `source` names files in parts: a pattern, a folder, or an address like `s3://...`."""
    pattern = "*" in source and not os.path.exists(source)
    return pattern or "://" in source or os.path.isdir(source)


def label_parts(
    run: Run, source: str, out: str, columns: Mapping[str, str], right: str | None
) -> Iterator[dict[str, Any]]:
    """Label each file of `source` by the run's model, to a file of the same name in `out`.

    A file that is there already is kept, unless its part is newer. `source` is a pattern such as
    `parts/*.csv` or a folder, `out` a folder, on any file system of pyarrow; names that begin with
    `.` or `_` are left out. `columns` are as for `Run.read`, `right` as for `Run.predict`.

    Returns:
        For each part `file`, `kept`, and, if it was not, the rows `n`, how many of them are `blank`
        for a person, and those `rejected`.

    Raises:
        StackslError: as `Run.predict`, for the first part that cannot be labeled, after which the
            others are not; or there is no part, or `out` has other files.
    """
    model, settings = run.model, how_read(run.folder)
    if not isinstance(model, Model):
        raise SettingsError("a language model labels one file at a time: give the name of a file")
    cut = None if right is None else threshold_of(run, right)
    (reads, origin, parts), (writes, target, present) = _listed(source), _listed(out)
    parts = {name: parts[name] for name in sorted(parts) if name[0] not in "._"}
    if not parts:
        raise DataError(
            f"there is no file '{source}': give a folder, or a pattern of names in quotes such as"
            " 'parts/*.csv' (names that begin with . or _ are left out)"
        )
    how = reads.type_name, origin, dict(digests(run.folder, [MODEL])), sorted(columns.items()), cut
    mark = f"_labeled-{sha256(repr(how).encode()).hexdigest()[:16]}"  # an empty file
    if mark not in present and any(name[0] not in "._" for name in present):
        raise DataError(
            f"'{out}' has files of other parts, another model, other options or another program:"
            " give --out a folder that is new, empty or of the same command"
        )
    todo = []
    for name, file in parts.items():
        kind_of_table(name)  # before the work
        if name not in present or (present[name].mtime_ns or 0) < (file.mtime_ns or 0):
            todo.append((name, file.path))
        else:
            yield {"file": name, "kept": True}

    def write(name: str, payload: bytes) -> None:  # a file appears when it is whole
        if writes.type_name == "local":
            replace_file(Path(target) / name, payload)
            return
        with writes.open_output_stream(f"{target}/{name}") as stream:
            stream.write(payload)

    def label(file: tuple[str, str]) -> dict[str, Any]:
        name, path = file
        with TemporaryDirectory() as temp:
            copy = Path(temp) / name
            try:
                with reads.open_input_file(path) as stream:
                    copy.write_bytes(stream.read())
                data = read_again(settings, model, copy, columns)
                table = label_file(model, copy, data, None, cut)
                write(name, TABLES[kind_of_table(name)](table.columns, table.rows))
            except (DataError, OSError) as fault:
                why = str(fault).replace(temp, origin)
                raise DataError(f"in the part {name}: {why}") from None
        rejected = [{"row": r.row, "id": r.id, "reason": r.reason} for r in data.rejected]
        counts = {"n": len(table.rows), "blank": table.blank.get(TO_PERSON, 0)}
        return {"file": name, "kept": False, **counts, "rejected": rejected}

    writes.create_dir(target, recursive=True)
    write(mark, b"")
    gpu = getattr(getattr(model.features, "encoder", None), "gpu", False)
    yield from over_ray(label, todo, gpu=gpu) if todo and on_ray() else map(label, todo)


def _listed(source: str) -> tuple[Any, str, dict[str, Any]]:
    """The file system of a folder or a pattern in one, its path there, and the files by name."""
    from pyarrow.fs import FileSelector, FileSystem

    path_or_uri, mark, options = source.partition("?") if "://" in source else (source, "", "")
    folder, pattern = os.path.split(path_or_uri) if "*" in path_or_uri else (path_or_uri, "*")
    uri = f"{folder}{mark}{options}"  # options such as ?endpoint_override=HOST:PORT
    try:
        system, path = FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
        entries = system.get_file_info(FileSelector(path, allow_not_found=True))
    except (OSError, ValueError) as fault:
        raise DataError(f"the folder '{uri}' cannot be opened: {fault}") from None
    files = {file.base_name: file for file in entries if file.is_file}
    return system, path, {name: files[name] for name in files if fnmatchcase(name, pattern)}
