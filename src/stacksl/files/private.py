"""Folders and files that only their owner may look into: 0700 and 0600, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

FOLDER = 0o700
FILE = 0o600


def make_private(folder: Path) -> None:
    """Make `folder` and what is missing above it; `folder` itself is its owner's alone.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    _set(folder.chmod, folder.stat().st_mode, FOLDER)


def opened_private(path: Path) -> IO[bytes]:
    """`path`, opened to be written anew; from its first byte on it is its owner's alone.

    Raises:
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
    _set(lambda mode: os.fchmod(handle, mode), os.fstat(handle).st_mode, FILE)
    return os.fdopen(handle, "wb")


def keep_private(folder: Path) -> None:
    """Take from everybody but the owner what `folder` and all below it still grants them."""
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
    """Take the bits that are not `wanted`; a folder that is read-only stays so.

    A file system without such bits refuses that, and so does a folder that somebody else lent us:
    there the run goes on, since its owner has decided who may look into it.
    """
    if stat.S_IMODE(mode) & ~wanted:
        with suppress(PermissionError, NotImplementedError):
            change(mode & wanted)
