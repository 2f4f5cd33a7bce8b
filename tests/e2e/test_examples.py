"""Every example runs as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LINES = {"quickstart": 20, "first_day": 40}  # each example fits a screen
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "the report: " in done.stdout
    assert Path(done.stdout.split("the report: ")[1].strip()).is_file()
    assert len(script.read_text().splitlines()) < LINES[script.stem]
