"""Where questions and models come from: the official files, and what is said where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import DataError, SettingsError
from stacksl_lab.language import sources
from stacksl_lab.language.sources import setup_of


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_fault", lambda model: None)


def medqa(folder: Path, train: str = "train.jsonl", rows: int = 12, dev: bool = True) -> Path:
    folder.mkdir(parents=True)
    names = [(train, rows), ("test.jsonl", 6), *([("dev.jsonl", 7)] if dev else [])]
    for name, count in names:
        lines = [
            {
                "question": f"{name} {i}?", "answer": f"b{i}", "answer_idx": "B",
                "options": {"A": f"a{i}", "B": f"b{i}", "C": f"c{i}", "D": f"d{i}"},
            }
            for i in range(count)
        ]  # fmt: skip
        (folder / name).write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_the_official_files(shared_data: Path) -> None:
    setup = setup_of("mmlu", "Qwen/Qwen3-4B-Base", str(shared_data / "mmlu"))
    sizes = {t.name: (len(t.train.items), len(t.test.items), len(t.examples)) for t in setup.tasks}
    assert sizes == {
        "MedQA": (999, 1273, 5),  # one of the sample's 1,000 rows has two equal options
        "Medical Genetics": (11, 100, 5),
        "Clinical": (29, 265, 5),
        "College Biology": (16, 144, 5),
    }
    assert setup.comparable
    assert setup.main.options == 4


def test_medqas_files_are_found(tmp_path: Path) -> None:
    medqa(tmp_path / "a" / "US" / "4_options")
    [task] = setup_of("kl", "m", str(tmp_path / "a")).tasks
    assert (task.name, len(task.train.items), len(task.test.items)) == ("MedQA", 12, 6)
    assert [item.prompt for item, _ in task.examples] == [f"dev.jsonl {i}?" for i in range(5)]
    medqa(tmp_path / "b", "phrases_no_exclude_train.jsonl")
    assert setup_of("kl", "m", str(tmp_path / "b")).main.paper_size == 10_178


def test_without_a_dev_file_examples_leave_the_stream(tmp_path: Path) -> None:
    [task] = setup_of("kl", "m", str(medqa(tmp_path / "a", dev=False))).tasks
    assert len(task.train.items) == 7
    shown = {item.prompt for item, _ in task.examples}
    assert len(shown) == 5
    assert not shown & {item.prompt for item in task.train.items}


def test_a_file_needs_its_test_file(tmp_path: Path) -> None:
    folder = medqa(tmp_path / "a")
    with pytest.raises(DataError, match="--test"):
        setup_of("kl", "m", str(folder / "train.jsonl"))
    setup = setup_of("kl", "m", str(folder / "train.jsonl"), str(folder / "test.jsonl"))
    assert setup.main.name == "MedQA"
    assert not setup.comparable, "6 test questions are not the paper's"


def test_model_and_data_go_together(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--data"):
        setup_of("kl", "m")
    with pytest.raises(SettingsError, match="--model"):
        setup_of("kl", None, str(tmp_path))


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="MedQA's official files"):
        setup_of("kl", "m", str(tmp_path))
    with pytest.raises(DataError, match="--medqa"):
        setup_of("mmlu", "m", str(tmp_path))
    medqa(tmp_path / "medqa")
    with pytest.raises(DataError, match="MMLU's official folders"):
        setup_of("mmlu", "m", str(tmp_path), medqa=str(tmp_path / "medqa"))


def test_the_papers_model_is_known_by_its_shape(tmp_path: Path) -> None:
    folder = tmp_path / "any"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36})
    )
    assert sources._is_paper_model(str(folder))
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3", "hidden_size": 256, "num_hidden_layers": 6})
    )
    assert not sources._is_paper_model(str(folder))
    assert sources._is_paper_model("Qwen/Qwen3-4B-Base")
    assert not sources._is_paper_model("Qwen/Qwen3-0.6B-Base")


def test_the_samples_own_set(monkeypatch: pytest.MonkeyPatch, make_task: Any) -> None:
    made = make_task("docstrings", 100, 20)
    monkeypatch.setattr("stacksl_lab.sample.questions.questions", lambda: (made.train, made.test))
    setup = setup_of("mmlu")
    assert setup.model == "sample"
    assert [(t.name, len(t.train.items)) for t in setup.tasks] == [
        ("docstrings", 95), ("29 items", 29), ("16 items", 16), ("11 items", 11),
    ]  # fmt: skip
    small = [{item.id for item in task.train.items} for task in setup.tasks[1:]]
    assert len(set.union(*small)) == 56, "no item is in two of them"
    assert (setup.settings["protocol"], setup.settings["normalization"]) == ("option", "pmi")
    assert not setup.comparable
