"""The report and the cards of a run that really adapted a language model, a tiny random one."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.report import Facts

from ..runs.lm_cases import tiny_model
from .test_html import read

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

COLORS = ("red", "blue", "green", "pale yellow")


def items(count: int, seed: int) -> tuple[list[Item], dict[str, int]]:
    draw = random.Random(seed)
    golds = [draw.randrange(4) for _ in range(count)]
    made = [
        Item(f"i{seed}-{n}", f"{'x' * (3 * n)} the {COLORS[gold]} ball {n} is", COLORS)
        for n, gold in enumerate(golds)
    ]
    return made, {item.id: gold for item, gold in zip(made, golds, strict=True)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    base = tiny_model(tmp_path_factory.mktemp("base") / "tiny")
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
    return run(
        *items(20, 0),
        test=items(10, 1),
        budget=6,
        out=tmp_path_factory.mktemp("run") / "run",
        lm={
            "model": str(base),
            "adapt": "lora",
            "lora_rank": 2,
            "epochs": 1,
            "refit_at": "0.5,1",
            "state_dim": 8,
            "max_len_prompt": 40,
            "device": "cpu",
        },
        update={"learning_rate": 1e-2},
    )


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The items that the run was tested on, as a file."""
    path, (found, golds) = tmp_path_factory.mktemp("test") / "test.jsonl", items(10, 1)
    with path.open("w", encoding="utf-8") as file:
        for item in found:
            row = {"id": item.id, "prompt": item.prompt, "candidates": item.candidates}
            file.write(json.dumps({**row, "answer": golds[item.id]}) + "\n")
    return path


@pytest.fixture(scope="module")
def facts(made: Run) -> Facts:
    return Facts.from_json((made.path / "facts.json").read_text(encoding="utf-8"))


def test_the_facts_are_those_of_the_run(made: Run, facts: Facts) -> None:
    model = facts.language
    assert (model.base.name, model.base.license) == ("tiny", "apache-2.0")
    assert (model.scoring.answer_format, model.scoring.max_len_prompt) == ("option", 40)
    assert (model.computed.device, model.computed.dtype) == ("cpu", "float32")
    assert (model.computed.threads, model.computed.processes) == (1, 1)
    assert 50 * 2**20 < model.computed.peak_memory < 64 * 2**30
    assert [row.labels for row in model.refits] == [3, 6]
    assert all(row.seconds > 0 for row in model.refits)
    assert facts.method.scorer == "newton"
    assert (
        "refit 2, trained from the initial adapter on all 6 labels bought." in facts.refit.sentence
    )


def test_the_curve_is_the_base_then_each_refit(facts: Facts) -> None:
    assert facts.language is not None
    assert [point.labels for point in facts.curve] == [0, 3, 6]
    assert facts.curve[-1].accuracy == facts.test.accuracy


def test_the_test_is_what_evaluate_finds(made: Run, facts: Facts, tested: Path) -> None:
    found = made.evaluate(tested)
    assert (facts.test.accuracy, facts.test.macro_f1) == (found["accuracy"], found["macro_f1"])
    assert [facts.test.low, facts.test.high] == found["interval"]


def test_page_and_card_are_whole_and_written_again_alike(made: Run) -> None:
    page = (made.path / "report.html").read_text(encoding="utf-8")
    written = (made.path / "README.md").read_text(encoding="utf-8")
    text = read(page).text
    assert "The license of the base model tiny is apache-2.0" in text
    assert "The license of the base model tiny is apache-2.0" in written
    assert 'license: "apache-2.0"' in written
    assert not re.search(r"\b(nan|inf)\b", text + written, re.IGNORECASE)
    made.report()
    assert (made.path / "report.html").read_text(encoding="utf-8") == page
    assert (made.path / "README.md").read_text(encoding="utf-8") == written
