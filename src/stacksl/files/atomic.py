"""Atomic writes: after a crash a file has its old content or its new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from stacksl.errors import RunError
from stacksl.files.private import opened_private

DRAFT = ".tmp-"  # prefix of the name of a file that is not complete


def write_atomic(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write `content` to `path` of a run; see `replace_file`.

    Raises:
        RunError: the disk is full or the folder cannot be written.
    """
    try:
        replace_file(path, content.encode() if isinstance(content, str) else content, mode)
    except OSError as fault:
        raise RunError(
            f"cannot write {path.name} in {path.parent}: {fault.strerror or fault};"
            " free some space or give another folder, then resume"
        ) from fault


def replace_file(path: Path, payload: bytes, mode: int | None = None) -> None:
    """Write `payload` to `path` so that a reader, or a crash, sees the old file or the new one.

    Only its owner may read it, independent of the umask, unless `mode` gives other permissions.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    try:
        with opened_private(draft) as file:
            file.write(payload)
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
