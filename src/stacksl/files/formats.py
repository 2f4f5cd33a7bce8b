"""Format numbers and digests of the files that a run keeps and reads again.

A file that decides a prediction or a number carries the SHA-256 of its own content, so that one
write holds both: a JSON table under the key `sha256`, a file of arrays in an array of that name.
The content is hashed, not its layout: a table may be indented differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from stacksl.errors import RunError

MODEL = 8  # of a linear model's folder, in its `model.json`
LANGUAGE_MODEL = 6  # of an adapted language model's folder, in its `lm.json`
PORTABLE = 3  # of a model that is handed over, in its `stacksl.json`

DIGEST = "sha256"
FORMAT = "format_number"


def to_json(table: Mapping[str, Any]) -> str:
    """A table as JSON text in ASCII with its digest."""
    plain = json.loads(json.dumps(table))  # as it is read again: keys are texts, tuples are lists
    return json.dumps({**plain, DIGEST: _digest(plain)}, indent=1)


def from_json(text: str | bytes) -> dict[str, Any]:
    """The table that `to_json` wrote.

    Raises:
        ValueError: it is not a JSON object, or its content does not match its digest.
    """
    return verified(parsed(text))


def parsed(text: str | bytes) -> dict[str, Any]:
    """A JSON object in UTF-8, without a check of its digest.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        table = json.loads(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError("it is not a JSON object")
    return table


def read(path: Path, expected: int) -> dict[str, Any]:
    """The table in a file without its digest and its format number, which should be the `expected`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no JSON object, or the digest is missing or does not match.
        RunError: it is of another format.
    """
    content = verified(parsed(path.read_bytes()))
    number = content.pop(FORMAT, None)
    if type(number) is not int or number != expected:
        actual = "no format number" if number is None else f"the format number {number}"
        raise RunError(
            f"{path} should have the format number {expected}, which this version of stacksl reads,"
            f" but has {actual}: use the stacksl that wrote it, or start a new run"
        )
    return content


def verified(table: Mapping[str, Any]) -> dict[str, Any]:
    """`table` without its digest.

    Raises:
        ValueError: the digest is missing or does not match.
    """
    content = {name: value for name, value in table.items() if name != DIGEST}
    expect_digest(table.get(DIGEST), _digest(content))
    return content


def _digest(table: Mapping[str, Any]) -> str:
    """The SHA-256 of `table`, independent of its order."""
    return sha256(json.dumps(table, sort_keys=True, default=str).encode() + b"\n").hexdigest()


def expect_digest(digest: object, expected: object) -> None:
    """Check that a digest is there and is the `expected` one.

    Raises:
        ValueError: it is not.
    """
    if digest is None:
        raise ValueError("it has no SHA-256")
    if digest != expected:
        raise ValueError("its content does not match its SHA-256")
