"""`stacksl size` on a small pretrained model, with weights and without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from stacksl.cli.options import command_class
from stacksl.cli.verbs.planning import _time, size
from stacksl.errors import SettingsError
from stacksl.lm import ModelChoices, TokenItem, TrainSettings
from stacksl.lm.size import forecast
from stacksl.lm.worker import Worker

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
    """Items without answers: a size needs none."""
    file = tmp_path / "items.jsonl"
    lines = [
        {"prompt": f"Tom has {n} cats" + " and a big dog" * (n % 7), "candidates": ["he", "she"]}
        for n in range(ITEMS)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def said(*words: str | Path) -> Result:
    app = typer.Typer()
    app.command(cls=command_class(size))(size)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_size_without_weights_as_json(stories: Path, data: Path) -> None:
    done = said(data, "--model", stories, "--budget", "10", "--no-time", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["items"], found["labels"], found["parameters"]) == (ITEMS, 10, 260_032)
    assert found["training"]["total"] > found["training"]["weights"] == 4 * 260_032
    file = (stories / "model.safetensors").stat().st_size  # which begins with a table of names
    assert found["disk"]["weights"] == pytest.approx(file, rel=0.01)
    assert found["scoring_seconds"] is None
    assert found["training_seconds"] is None
    assert sorted(data.parent.iterdir()) == [data]


def test_options_reach_the_plan(stories: Path, data: Path) -> None:
    words: list[str | Path] = [data, "--model", stories, "--budget", "10", "--no-time", "--json"]
    plain = json.loads(said(*words).stdout)
    again = json.loads(said(*words, "--adapt", "lora", "--checkpointing").stdout)
    other = json.loads(
        said(*words, "--lora-rank", "4", "--dtype", "bfloat16", "--batch-tokens", "64").stdout
    )
    assert again["checkpointing"] is True
    assert again["training"]["activations"] < plain["training"]["activations"]
    assert other["moving"] * 4 == plain["moving"]
    assert (other["dtype"], other["batch_tokens"]) == ("bfloat16", 64)
    assert other["training"]["weights"] == 2 * other["parameters"]


def test_a_size_for_people(stories: Path, data: Path) -> None:
    done = said(data, "--model", stories, "--budget", "10", "--no-time")
    assert "Memory to train" in done.stdout
    assert "Time to" not in done.stdout


def test_mistakes_are_sentences(data: Path, stories: Path) -> None:
    cases: list[tuple[list[str | Path], str]] = [
        ([], "--model"),
        (["--model", "/nowhere"], "not a folder that there is"),
        (["--model", stories, "--set", "lora_targets=nothing"], "no linear layer"),
    ]
    for words, sentence in cases:
        fault = said(data, *words, "--no-time").exception
        assert isinstance(fault, SettingsError)
        assert sentence in str(fault)


def test_times_are_found_within_the_calibration(
    stories: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs through the model's own passes: they alone take time on it."""
    from stacksl.data import read

    items = read(str(data)).items
    choices = ModelChoices(str(stories), training=TrainSettings(epochs=3, batch_size=4))
    found = forecast(choices, items, (2, 4), seconds=0.5)
    assert found.scoring_seconds is not None
    assert found.training_seconds is not None

    passes: list[int] = []
    states = Worker.states

    def counting(self: Worker, rows: list[TokenItem]) -> Any:
        passes.append(len(rows))
        return states(self, rows)

    monkeypatch.setattr(Worker, "states", counting)
    least = forecast(choices, items, (2, 4), seconds=0.0)
    assert passes == [1, 1]  # no time for more than the shortest item
    assert least.scoring_seconds is not None
    assert least.scoring_seconds > 0
    assert least.training_seconds is not None
    assert least.training_seconds > 0


@pytest.mark.slow
def test_the_time_to_score_is_about_right(stories: Path, data: Path) -> None:
    from stacksl.data import read
    from stacksl.lm.model import LanguageModel

    items = read(str(data)).items * 10
    choices = ModelChoices(str(stories))
    found = forecast(choices, items, (4,), seconds=10.0)
    model = LanguageModel(choices)
    model.fit(items)
    begun = monotonic()
    model.transform(items)
    took = monotonic() - begun
    assert found.scoring_seconds is not None
    assert took / 3 < found.scoring_seconds < took * 3  # other jobs may run beside it


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.123, "about 0.12 seconds (x)"),
        (90, "about 1.5 minutes (x)"),
        (9000, "about 2.5 hours (x)"),
    ],
)
def test_times_have_two_digits(seconds: float, shown: str) -> None:
    assert _time(seconds, "x") == shown
