"""The size that a dry run tells of a language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from stacksl.lm import loading

from ..runs.lm_cases import tiny_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base") / "model")


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
        for n in range(24)
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
    stacksl, base: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "read_weights", lambda *given: pytest.fail("weights were read"))
    found = dry(stacksl, data, "--model", base)
    count = sum(each.size for each in load_file(base / "model.safetensors").values())
    assert (found["labels"], found["parameters"]) == (10, count)
    assert found["training"] > found["fixed"] > found["weights"] == 4 * count
    assert sorted(data.parent.iterdir()) == [data]
    words = ("--model", base, "--budget", "10", "--labeler", "file", "--dry-run")
    shown = stacksl("run", data, *words).out
    assert "Memory to train" in shown


def test_settings_reach_the_size(stacksl, base: Path, data: Path) -> None:
    plain = dry(stacksl, data, "--model", base)
    again = dry(stacksl, data, "--model", base, "--set", "lm.gradient_checkpointing=true")
    more = ("--set", "lm.lora_rank=4", "--dtype", "bfloat16", "--set", "lm.batch_tokens=64")
    other = dry(stacksl, data, "--model", base, *more)
    assert again["training"] < plain["training"]
    assert other["moving"] * 4 == plain["moving"]
    assert other["dtype"] == "bfloat16"
    assert other["training"] - other["fixed"] < plain["training"] - plain["fixed"]
    assert other["weights"] == 2 * other["parameters"]
