"""A folder that is written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from stacksl.errors import RunError
from stacksl.files.atomic import sync_folder

_MARKS = ("adapter_config.json", "config.json")  # a folder with one of them may be replaced


@contextmanager
def whole_folder(
    folder: Path, what: str = "model", marks: Sequence[str] = _MARKS
) -> Iterator[Path]:
    """A draft next to `folder` that takes its place once the block has ended well.

    Every file is on disk before the name changes. A folder of that name is replaced as a whole if
    it holds `what` is written, which one of the files `marks` shows; an empty one is filled.

    Raises:
        RunError: the disk is full, the place cannot be written, or `folder` holds something else.
    """
    from safetensors import SafetensorError  # what a full disk becomes in a weights file

    folder = Path(os.path.abspath(folder))
    try:
        _check_place(folder, what, marks)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = _beside(folder)
        draft.mkdir()
        try:
            yield draft
            for root, _, files in os.walk(draft):
                for name in files:
                    sync_folder(Path(root) / name)
                sync_folder(Path(root))
            _swap(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except (OSError, SafetensorError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise RunError(
            f"cannot write the {what} folder {folder}: {reason}; free some space or give another"
            " one"
        ) from fault


def _check_place(folder: Path, what: str, marks: Sequence[str]) -> None:
    if folder.is_dir() and (
        not any(folder.iterdir()) or any((folder / m).is_file() for m in marks)
    ):
        return
    if os.path.lexists(folder):
        raise RunError(
            f"{folder} exists and holds no {what}, so it is not replaced: give another folder"
        )


def _swap(draft: Path, folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        old = _beside(folder)
        os.replace(folder, old)
        os.replace(draft, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(draft, folder)
    sync_folder(folder.parent)


def _beside(folder: Path) -> Path:
    return folder.with_name(f".tmp-{os.getpid()}-{token_hex(4)}-{folder.name}")
