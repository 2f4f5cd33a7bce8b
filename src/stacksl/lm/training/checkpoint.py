"""The training checkpoint of a refit, from which a killed one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stacksl.errors import RunError
from stacksl.files.atomic import replace_file
from stacksl.files.formats import sign_arrays, verified_arrays

Tensor: TypeAlias = Any

_FILE = "training.safetensors"


class TrainingCheckpoint:
    """The last training checkpoint in a folder: one safetensors file with JSON in its header.

    Tensors and facts are in one file, which replaces the previous one atomically.

    Args:
        folder: where; None keeps nothing.
        arguments: a fingerprint of what the refit was called with. A checkpoint of other arguments
            is ignored.
    """

    def __init__(self, folder: Path | None, arguments: str) -> None:
        self._path = None if folder is None else Path(folder) / _FILE
        self._arguments = arguments

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the last checkpoint.

        Raises:
            RunError: the folder cannot be written.
        """
        if self._path is None:
            return
        from safetensors.torch import save

        header = {"arguments": self._arguments, "facts": json.dumps(dict(facts))}
        whole = sign_arrays(
            save({name: value.contiguous() for name, value in tensors.items()}, header)
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, whole)
        except OSError as error:
            raise RunError(
                f"the training checkpoint cannot be written to {self._path}: {error.strerror}; "
                "make room there, or save none (save_every 0)"
            ) from None

    def last(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and facts of the last checkpoint; None where there is none of these arguments.

        A file that cannot be read counts as none: the refit begins again.
        """
        if self._path is None or not self._path.is_file():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            verified_arrays(self._path.read_bytes())
            with safe_open(self._path, framework="pt") as file:
                header = file.metadata() or {}
                if header.get("arguments") != self._arguments:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError):
            return None
        return tensors, json.loads(header["facts"])
