"""Atomic writes of files for their owner alone: after a crash a file is old or new, never a part.

Folders and files have the modes 0700 and 0600, independent of the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from stacksl.errors import RunError

DRAFT = ".tmp-"  # prefix of the name of a file that is not complete


def write_atomic(
    path: Path,
    content: str | bytes,
    more: Iterable[memoryview] = (),
    *,
    mode: int | None = None,
) -> None:
    """Write `content`, and `more` after it, to `path` of a run; see `replace_file`.

    Raises:
        RunError: the disk is full or the folder cannot be written.
    """
    try:
        first = content.encode() if isinstance(content, str) else content
        replace_file(path, first, mode, more)
    except OSError as fault:
        raise RunError(
            f"cannot write {path.name} in {path.parent}: {fault.strerror or fault};"
            " free some space or give another folder, then resume"
        ) from fault


def replace_file(
    path: Path, payload: bytes, mode: int | None = None, more: Iterable[memoryview] = ()
) -> None:
    """Write `payload` to `path` so that a reader, or a crash, sees the old file or the new one.

    What is long is given in parts, as `more` to write after it.

    Only its owner may read it, independent of the umask, unless `mode` gives other permissions.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    try:
        with opened_private(draft) as file:
            file.write(payload)
            file.writelines(more)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FOLDER = 0o700
FILE = 0o600


def make_private(folder: Path) -> None:
    """Create `folder` with missing parents; `folder` itself gets the mode 0700.

    Raises:
        OSError: it cannot be created.
    """
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    _set(folder.chmod, folder.stat().st_mode, FOLDER)


def opened_private(path: Path) -> IO[bytes]:
    """Open `path` to be overwritten, with the mode 0600 before the first byte is written.

    Raises:
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
    _set(lambda mode: os.fchmod(handle, mode), os.fstat(handle).st_mode, FILE)
    return os.fdopen(handle, "wb")


def keep_private(folder: Path) -> None:
    """Remove the permissions of group and others from `folder` and all below it."""
    for root, _, names in os.walk(folder):
        _tighten(Path(root), FOLDER)
        for name in names:
            _tighten(Path(root) / name, FILE)


def _tighten(path: Path, wanted: int) -> None:
    with suppress(FileNotFoundError):  # SQLite's log, gone with the last connection
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            _set(path.chmod, mode, wanted)


def _set(change: Callable[[int], None], mode: int, wanted: int) -> None:
    """Clear the bits that are not `wanted`; a read-only folder stays read-only.

    A file system without permission bits refuses this, and so does a folder of another owner: the
    run goes on there, since that owner decides who may read it.
    """
    if stat.S_IMODE(mode) & ~wanted:
        with suppress(PermissionError, NotImplementedError):
            change(mode & wanted)
