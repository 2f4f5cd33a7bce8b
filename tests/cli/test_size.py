"""The size that a dry run tells of a small pretrained model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stacksl.lm import loading

for name in ("torch", "transformers", "peft"):
    pytest.importorskip(name, reason=f"{name} is not installed (the extra lm)")

ITEMS = 24


@pytest.fixture(scope="module")
def stories(root: Path) -> Path:
    named = os.environ.get("STACKSL_DATA")
    shared = Path(named).parent if named else root.parent / "shared"
    folder = shared / "models" / "stories260K"
    if not folder.is_dir():
        pytest.skip(f"the small pretrained model is not at {folder}")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Items with answers."""
    file = tmp_path / "items.jsonl"
    lines = [
        {
            "prompt": f"Tom has {n} cats" + " and a big dog" * (n % 7),
            "candidates": ["he", "she"],
            "answer": 0,
        }
        for n in range(ITEMS)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def dry(stacksl, data: Path, *words: str | Path) -> Any:
    """The size that a dry run prints as JSON."""
    done = stacksl.done(
        "run", data, "--adapt", "lora", "--budget", "10", *words, "--dry-run", "--json"
    )
    return json.loads(done.out)["size"]


def test_a_size_reads_no_weights(
    stacksl, stories: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "read_weights", lambda *given: pytest.fail("weights were read"))
    found = dry(stacksl, data, "--model", stories)
    assert (found["labels"], found["parameters"]) == (10, 260_032)
    assert found["training"]["total"] > found["training"]["weights"] == 4 * 260_032
    file = (stories / "model.safetensors").stat().st_size  # which begins with a table of names
    assert found["disk"]["weights"] == pytest.approx(file, rel=0.01)
    assert sorted(data.parent.iterdir()) == [data]
    words = ("--model", stories, "--budget", "10", "--labeler", "file", "--dry-run")
    shown = stacksl("run", data, *words).out
    assert "Memory to train" in shown


def test_settings_reach_the_size(stacksl, stories: Path, data: Path) -> None:
    plain = dry(stacksl, data, "--model", stories)
    again = dry(stacksl, data, "--model", stories, "--set", "lm.gradient_checkpointing=true")
    more = ("--set", "lm.lora_rank=4", "--dtype", "bfloat16", "--set", "lm.batch_tokens=64")
    other = dry(stacksl, data, "--model", stories, *more)
    assert again["training"]["activations"] < plain["training"]["activations"]
    assert other["moving"] * 4 == plain["moving"]
    assert other["dtype"] == "bfloat16"
    assert other["training"]["activations"] < plain["training"]["activations"]
    assert other["training"]["weights"] == 2 * other["parameters"]
