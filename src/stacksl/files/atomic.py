"""Atomic writes: after a crash a file or a model's folder is old or new, never a part.

Folders and files of a run are for their owner alone: they have the modes 0700 and 0600, independent
of the umask.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from stacksl.errors import RunError

DRAFT = ".tmp-"  # prefix of the name of a file that is not complete
_MODELS = ("adapter_config.json", "config.json")  # a folder with one of them may be replaced


def write_atomic(
    path: Path,
    content: str | bytes,
    tail: Iterable[memoryview] = (),
    *,
    mode: int | None = None,
) -> None:
    """Write `content`, and `tail` after it, to `path` of a run; see `replace_file`.

    Raises:
        RunError: the disk is full or the folder cannot be written.
    """
    try:
        payload = content.encode() if isinstance(content, str) else content
        replace_file(path, payload, mode, tail)
    except OSError as fault:
        raise RunError(
            f"cannot write {path.name} in {path.parent}: {fault.strerror or fault};"
            " free some space or give another folder, then resume"
        ) from fault


def replace_file(
    path: Path, payload: bytes, mode: int | None = None, tail: Iterable[memoryview] = ()
) -> None:
    """Write `payload` to `path` so that a reader, or a crash, sees the old file or the new one.

    What is long is given in parts, as `tail` to write after it.

    Only its owner may read it, independent of the umask, unless `mode` gives other permissions.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    draft = path.with_name(f"{DRAFT}{os.getpid()}-{path.name}")
    try:
        with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, FILE)) as file:
            file.write(payload)
            file.writelines(tail)
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


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A draft next to the `folder` of a model that takes its place once the block has ended well.

    Every file is on disk before the name changes. A model of that name is replaced as a whole; an
    empty folder is filled. The umask gives the permissions.

    Raises:
        RunError: the disk is full, the place cannot be written, or `folder` holds something else.
    """
    from safetensors import SafetensorError  # what a full disk becomes in a weights file

    folder = Path(os.path.abspath(folder))
    try:
        has_files = folder.is_dir() and any(folder.iterdir())
        if (os.path.lexists(folder) and not folder.is_dir()) or (
            has_files and not any((folder / mark).is_file() for mark in _MODELS)
        ):
            raise RunError(
                f"{folder} is there and holds no model, so it is not replaced: give another folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft, old = (
            folder.with_name(f"{DRAFT}{os.getpid()}-{token_hex(4)}-{folder.name}") for _ in range(2)
        )
        draft.mkdir()
        try:
            yield draft
            for root, _, files in os.walk(draft):
                for name in files:
                    sync_folder(Path(root) / name)
                sync_folder(Path(root))
            if has_files:
                os.replace(folder, old)
            os.replace(draft, folder)
            shutil.rmtree(old, ignore_errors=True)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except (OSError, SafetensorError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise RunError(
            f"cannot write the model folder {folder}: {reason}; free some space or give another one"
        ) from fault


FOLDER = 0o700
FILE = 0o600


def make_private(folder: Path) -> None:
    """Create `folder` with missing parents; `folder` itself gets the mode 0700.

    Raises:
        OSError: it cannot be created.
    """
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    _set(folder.chmod, folder.stat().st_mode, FOLDER)


def keep_private(folder: Path) -> None:
    """Remove the permissions of group and others from `folder` and all below it."""
    for root, _, names in os.walk(folder):
        for path in (Path(root), *(Path(root) / name for name in names)):
            with suppress(FileNotFoundError):  # SQLite's log, gone with the last connection
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode):
                    _set(path.chmod, mode, FOLDER if path == Path(root) else FILE)


def _set(change: Callable[[int], None], mode: int, allowed: int) -> None:
    """Clear the bits that are not `allowed`; a read-only folder stays read-only.

    A file system without permission bits refuses this, and so does a folder of another owner: the
    run goes on there, since that owner decides who may read it.
    """
    if stat.S_IMODE(mode) & ~allowed:
        with suppress(PermissionError, NotImplementedError):
            change(mode & allowed)
