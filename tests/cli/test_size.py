"""The size that a dry run tells of a small pretrained model, with weights and without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stacksl.lm import ModelChoices, TokenItem, TrainSettings, loading
from stacksl.lm.size import forecast
from stacksl.lm.worker import Worker

for name in ("torch", "transformers", "peft"):
    pytest.importorskip(name, reason=f"{name} is not installed (the extra lm)")

ITEMS = 24
FREE = 10**12


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


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has a model's configuration and not its weights."""
    monkeypatch.setattr(loading, "weight_files", lambda folder: [])


@pytest.mark.usefixtures("untimed")
def test_a_size_without_weights(stacksl, stories: Path, data: Path) -> None:
    found = dry(stacksl, data, "--model", stories)
    assert (found["items"], found["labels"], found["parameters"]) == (ITEMS, 10, 260_032)
    assert found["training"]["total"] > found["training"]["weights"] == 4 * 260_032
    file = (stories / "model.safetensors").stat().st_size  # which begins with a table of names
    assert found["disk"]["weights"] == pytest.approx(file, rel=0.01)
    assert found["scoring_seconds"] is None
    assert found["training_seconds"] is None
    assert sorted(data.parent.iterdir()) == [data]
    words = ("--model", stories, "--budget", "10", "--labeler", "file", "--dry-run")
    shown = stacksl("run", data, *words).out
    assert "Memory to train" in shown
    assert "Time to train    not measured: the weights are not on this machine" in shown


@pytest.mark.usefixtures("untimed")
def test_settings_reach_the_size(stacksl, stories: Path, data: Path) -> None:
    plain = dry(stacksl, data, "--model", stories)
    again = dry(stacksl, data, "--model", stories, "--set", "lm.gradient_checkpointing=true")
    more = ("--set", "lm.lora_rank=4", "--dtype", "bfloat16", "--set", "lm.batch_tokens=64")
    other = dry(stacksl, data, "--model", stories, *more)
    assert again["checkpointing"] is True
    assert again["training"]["activations"] < plain["training"]["activations"]
    assert other["moving"] * 4 == plain["moving"]
    assert (other["dtype"], other["batch_tokens"]) == ("bfloat16", 64)
    assert other["training"]["weights"] == 2 * other["parameters"]


def test_times_are_found_within_the_calibration(stories: Path, data: Path, monkeypatch) -> None:
    """The clock runs through the model's own passes: they alone take time on it."""
    from stacksl.data import read

    items = read(str(data)).items
    choices = ModelChoices(str(stories), training=TrainSettings(epochs=3, batch_size=4))
    found = forecast(choices, items, (2, 4), FREE, seconds=0.5)
    assert None not in (found.scoring_seconds, found.training_seconds)

    passes: list[int] = []
    states = Worker.states

    def counting(self: Worker, rows: list[TokenItem]) -> Any:
        passes.append(len(rows))
        return states(self, rows)

    monkeypatch.setattr(Worker, "states", counting)
    least = forecast(choices, items, (2, 4), FREE, seconds=0.0)
    assert passes == [1, 1]  # no time for more than the shortest item
    assert least.scoring_seconds > 0
    assert least.training_seconds > 0
