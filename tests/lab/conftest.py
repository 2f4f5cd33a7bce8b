"""A model that plays its part: runs that take no time, with numbers that follow from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stacksl.data import Dataset
from stacksl.types import Item
from stacksl_lab.language.cells import Result
from stacksl_lab.language.studies import LanguageBench
from stacksl_lab.language.tasks import Setup, Task
from stacksl_lab.study.store import Store


def dataset(name: str, count: int, options: int = 4) -> Dataset:
    """`count` items of so many options, the answers in turn."""
    items = tuple(
        Item(f"{name}{i}", f"{name} asks {i}", tuple(f"{name}{i}-{o}" for o in range(options)))
        for i in range(count)
    )
    return Dataset(name, "memory", items, {item.id: i % options for i, item in enumerate(items)})


def task(name: str, train: int, test: int, options: int = 4, paper_size: int | None = None) -> Task:
    """A task whose ids tell the stream (`NAME-train`) from the test (`NAME-test`)."""
    tested, extra = dataset(f"{name}-test", test, options), dataset(f"{name}-shots", 5, options)
    examples = tuple((item, extra.answers[item.id]) for item in extra.items)
    return Task(name, dataset(f"{name}-train", train, options), tested, examples, paper_size)


@dataclass
class Stage:
    """What was played and examined. Accuracies rise with labels and peak at 0.5 and k = 2."""

    played: list[tuple[Dataset, Dataset, Mapping[str, Any], Path]] = field(default_factory=list)
    examined: list[tuple[Dataset, int, Mapping[str, Any]]] = field(default_factory=list)
    fail: BaseException | None = None
    first: tuple[str, ...] = ("llf", "first", "always")

    def play(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], folder: Path
    ) -> Result:
        if self.fail is not None:
            raise self.fail
        self.played.append((train, test, dict(settings), folder))
        n, budget = len(train.items), settings["budget"]
        asked = n if budget == "all" else int(budget)
        accuracy = 0.4 + 0.2 * asked / n + 0.001 * settings["seed"]
        accuracy -= abs(settings.get("kl_weight", 0.5) - 0.5) / 100
        accuracy -= abs(settings.get("k", 2) - 2) / 100
        gate = settings["gate"]
        losses = (1.36, 5.0, 0.1) if settings.get("clip") == "literal" else (1.37, 23.5, 0.0)
        return Result(
            accuracy, accuracy / 2, len(test.items), asked, n, 1.0, gate in self.first, *losses
        )

    def evaluate_base(
        self, test: Dataset, examples: Sequence[tuple[Item, int]], settings: Mapping[str, Any]
    ) -> Result:
        self.examined.append((test, len(examples), dict(settings)))
        return Result(0.3, 0.25, len(test.items))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def setup() -> Setup:
    """The paper's tasks in small: MedQA of 60 items, MMLU's subjects as they are."""
    sizes = {"Medical Genetics": (11, 100), "Clinical": (29, 265), "College Biology": (16, 144)}
    subjects = [task(name, *size, paper_size=size[0]) for name, size in sizes.items()]
    return Setup("toy", (task("MedQA", 60, 40, paper_size=10_178), *subjects), comparable=True)


@pytest.fixture
def bench(setup: Setup, stage: Stage, tmp_path: Path) -> LanguageBench:
    store = Store(tmp_path / "cells.jsonl")
    return LanguageBench(
        store,
        setup=setup,
        play=stage.play,
        evaluate_base=stage.evaluate_base,
        folder=tmp_path / "cells",
    )


@pytest.fixture
def make_task() -> Callable[..., Task]:
    """`make_task(name, train, test, options)`."""
    return task
