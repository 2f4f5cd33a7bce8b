"""The hashes of weights that were hashed before, by the size, time and inode of their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import time_ns

from stacksl.features.cache import cache_folder
from stacksl.files.atomic import make_private, write_atomic

_FILE = "weights.json"
_KINDS = ("config.json", "*.safetensors", "*.bin", "*.index.json")
_SETTLED = 2 * 10**9  # ns that a file must be old: a later write could leave the same time
_MOST = 200  # models remembered


def stamp(folder: Path, dtype: str) -> str | None:
    """What tells the weights in `folder` from others without reading them; None if none are there.

    Size, inode and times of each file, so that a file that is written anew has another stamp, even
    with the same bytes.
    """
    found = []
    newest = 0
    for path in _files(folder):
        known = path.stat()
        newest = max(newest, known.st_mtime_ns, known.st_ctime_ns)
        found.append((path.name, known.st_size, known.st_dev, known.st_ino, known.st_mtime_ns,
                      known.st_ctime_ns))  # fmt: skip
    if len(found) < 2 or time_ns() - newest < _SETTLED:
        return None
    return blake2b(repr((str(folder), dtype, found)).encode(), digest_size=32).hexdigest()


def recall(key: str | None) -> str | None:
    """The hash that was remembered under a stamp."""
    return None if key is None else _read().get(key)


def remember(key: str | None, fingerprint: str) -> None:
    """Keep a hash under a stamp; nothing where the cache is off or cannot be written."""
    place = cache_folder()
    if key is None or place is None:
        return
    kept = {**_read(), key: fingerprint}
    with suppress(OSError):
        make_private(place)
        write_atomic(place / _FILE, json.dumps(dict([*kept.items()][-_MOST:])))


def weight_files(folder: Path) -> list[Path]:
    """The files that hold weights."""
    return [path for path in _files(folder) if path.suffix in (".safetensors", ".bin")]


def _files(folder: Path) -> Iterator[Path]:
    names = {path for kind in _KINDS for path in folder.glob(kind)}
    return (path for path in sorted(names) if path.is_file())


def _read() -> dict[str, str]:
    place = cache_folder()
    if place is None:
        return {}
    try:
        table = json.loads((place / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: hashed anew
        return {}
    return {str(k): str(v) for k, v in table.items()} if isinstance(table, dict) else {}
