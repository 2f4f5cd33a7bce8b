from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("STACKSL_DATA", default))
    if not (folder / "README.md").is_file():
        pytest.skip(f"the shared data sets are not at {folder}; set STACKSL_DATA")
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file with this name and content; gives its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
