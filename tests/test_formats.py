"""Every single flipped bit of a file with a digest is found, or changes nothing that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from stacksl.errors import RunError
from stacksl.files import arrays, formats

TABLE: dict[str, Any] = {
    "state": "finished", "n": 12, "share": 0.1, "on": True, "name": 'a "b" é\n', "none": -0.0,
}  # fmt: skip
ARRAYS = {
    "theta": np.random.default_rng(0).normal(size=(3, 4)),
    "kind": np.array([1], dtype=np.int64),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "scalar": np.array(7),
}


def flipped(data: bytes) -> Iterator[bytes]:
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def expect_found_or_harmless(data: bytes, read: Callable[[bytes], Any], same: Any) -> None:
    assert read(data) == same
    found = 0
    for damaged in flipped(data):
        try:
            assert read(damaged) == same
        except (ValueError, RunError):
            found += 1
    assert found > 0.9 * 8 * len(data), "but for white space every bit counts"


def test_a_json_file_of_a_format(tmp_path: Path) -> None:
    more = {"list": [1, (2, None)], "table": {10: "x", 9: "y"}}
    text = formats.to_json({formats.FORMAT: 3, **TABLE, **more})

    def read(data: bytes) -> dict[str, Any]:
        (tmp_path / "file").write_bytes(data)
        return formats.read(tmp_path / "file", 3)

    same = {**TABLE, "list": [1, [2, None]], "table": {"10": "x", "9": "y"}}
    expect_found_or_harmless(text.encode(), read, same)


def test_a_file_of_arrays() -> None:
    def read(data: bytes) -> dict[str, Any]:
        found = arrays.from_bytes(data)
        return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in sorted(found.items())}

    data = arrays.to_bytes(ARRAYS)
    same = {k: (a.dtype.str, a.shape, a.tobytes()) for k, a in sorted(ARRAYS.items())}
    expect_found_or_harmless(data, read, same)
    assert arrays.to_bytes(ARRAYS) == data, "the same arrays are the same bytes"


@pytest.mark.parametrize("data", [b"", b"12345678", bytes(64), b"\xff" * 64])
def test_what_is_no_file_of_arrays(data: bytes) -> None:
    with pytest.raises(ValueError, match=".+"):
        arrays.from_bytes(data)


def test_a_missing_digest_is_named() -> None:
    with pytest.raises(ValueError, match="it has no SHA-256"):
        formats.from_json("{}")
    bare = save({"a": np.zeros(1)})
    with pytest.raises(ValueError, match="it has no SHA-256"):
        arrays.from_bytes(bare)


@pytest.mark.parametrize("found", [None, 0, 2, True, "1", 1.0])
def test_another_format_is_refused(found: object, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(formats.to_json({formats.FORMAT: found}))
    with pytest.raises(RunError, match="file should have the format number 1, .*: use the st"):
        formats.read(tmp_path / "file", 1)
