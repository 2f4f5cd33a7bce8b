"""The official files of real data sets run through unchanged, with the default features."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stacksl.cli.entry import call

SLOW = pytest.mark.slow
MEDQA = "medqa/US/4_options"
FILES: dict[str, tuple[str, str, int, str]] = {
    # data, test, rows that are played (all of the smallest; 77 classes need more), format
    "medqa": (f"{MEDQA}/train_sample1000.jsonl", f"{MEDQA}/test.jsonl", 40, "jsonl:options"),
    "mmlu": (
        "mmlu/test/clinical_knowledge_test.csv", "mmlu/val/clinical_knowledge_val.csv", 265,
        "csv:mmlu",
    ),
    "openbookqa": ("openbookqa/train.jsonl.gz", "openbookqa/test.jsonl.gz", 40, "jsonl:options"),
    "banking77": ("banking77/train.csv", "banking77/test.csv", 600, "csv:classes"),
}  # fmt: skip


def some_of(path: Path, rows: int, folder: Path) -> Path:
    """Rows from all over the file, byte for byte, under its own name; a header comes along."""
    folder.mkdir(exist_ok=True)
    content = path.read_bytes()
    lines = (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines(True)
    step = max(1, len(lines) // rows)
    out = folder / path.name.removesuffix(".gz")
    out.write_bytes(b"".join([lines[0], *lines[step::step]]))
    return out


def ran(capfd: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capfd.readouterr()
    code = call([*map(str, words), "--json"])
    out, err = capfd.readouterr()
    assert code == 0, err
    return dict(json.loads(out))


def data_set(shared_data: Path, name: str) -> Path:
    if not (shared_data / name).exists():
        pytest.skip(f"the shared data sets lack {name}")
    return shared_data / name


@pytest.mark.parametrize(
    "name", ["medqa", *(pytest.param(n, marks=SLOW) for n in ("mmlu", "openbookqa", "banking77"))]
)
def test_some_rows_of_an_official_file(shared_data, tmp_path, capfd, name) -> None:
    data, test, rows, form = FILES[name]
    few = some_of(data_set(shared_data, data), rows, tmp_path / "data")
    held = some_of(data_set(shared_data, test), 40, tmp_path / "test")
    out = tmp_path / "run"
    words = ("--budget", 12, "--out", out, "--test", held, "--set", "order=file", "--quiet")
    told = ran(capfd, "run", few, *words)
    assert (told["state"], told["budget"], told["asked"], told["left"]) == ("finished", 12, 12, 0)
    streamed = told["mode"] == "stream"
    assert told["rounds"] >= rows - 5 if streamed else told["rounds"] == 12
    planned = ran(capfd, "run", few, "--dry-run")
    assert planned["data"]["format"] == form
    evaluated = ran(capfd, "evaluate", out, held)
    for measure in ("n", "accuracy", "interval"):
        assert evaluated[measure] == told["test"][measure]
    assert ran(capfd, "ledger", "replay", out)["labels"] == 12
