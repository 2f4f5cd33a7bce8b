"""Which weights a model has: their hash, and a stamp that shows without reading them that they are
the same.

Hashing reads every byte, so a run does it once and records both. Later the stamp alone is compared,
and the files are hashed again only where it differs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNSAID = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
_LENGTH = 8  # bytes at the start of a safetensors file: how long its header is
_LONGEST = 100 << 20  # bytes of a header, at most, by the format


@dataclass(frozen=True, slots=True)
class Weights:
    """What identifies the weights of a model.

    Attributes:
        fingerprint: hex BLAKE2b of the configuration and of every byte of the weight files.
        stamp: hex BLAKE2b of the configuration and of each file's name, size, time of its last
            change and safetensors header.
    """

    fingerprint: str
    stamp: str


def weight_files(folder: Path) -> list[Path]:
    """The files in `folder` that hold weights."""
    found = {path for kind in ("*.safetensors", "*.bin") for path in folder.glob(kind)}
    return sorted(path for path in found if path.is_file())


def identify(folder: Path, config: Any, known: Weights | None = None) -> Weights:
    """The weights in `folder`; the files are read unless their stamp is that of `known`.

    Args:
        folder: of the model.
        config: its configuration, of transformers.
        known: what was recorded of them before.
    """
    facts = {k: v for k, v in config.to_diff_dict().items() if k not in _UNSAID}
    start = json.dumps(facts, sort_keys=True, default=str).encode()
    stamp, digest = (hashlib.blake2b(start, digest_size=32) for _ in range(2))
    files = weight_files(folder)
    for path in files:
        about = path.stat()
        stamp.update(f"\n{path.name} {about.st_size} {about.st_mtime_ns}\n".encode())
        stamp.update(_header(path))
    if known is not None and known.stamp == stamp.hexdigest():
        return known
    for path in files:
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    return Weights(digest.hexdigest(), stamp.hexdigest())


def _header(path: Path) -> bytes:
    """The names, types and shapes at the start of a safetensors file; nothing of another file."""
    if path.suffix != ".safetensors":
        return b""
    with path.open("rb") as file:
        return file.read(min(int.from_bytes(file.read(_LENGTH), "little"), _LONGEST))
