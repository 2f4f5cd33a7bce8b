"""The data of a study: questions to label and to test on, and a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from stacksl.core.rng import generator
from stacksl.data import Dataset
from stacksl.errors import DataError
from stacksl.types import Item

HELD_SHARE = 0.2
"""The share of bought labels on which kl_weight and k are chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One set of questions.

    Attributes:
        name: such as `MedQA` or `Medical Genetics`.
        train: the stream, with the answers that a labeler may be asked for.
        test: what results are measured on.
        examples: labeled items for the prompt of 5-shot base rows; none of them is in `test`.
        paper_size: the items that the paper's stream has; None where it is not the paper's set.
    """

    name: str
    train: Dataset
    test: Dataset
    examples: tuple[tuple[Item, int], ...] = ()
    paper_size: int | None = None

    @property
    def options(self) -> int:
        """n, the most options that an item to label has."""
        return max(len(item.candidates) for item in self.train.items)

    @property
    def fingerprint(self) -> str:
        """A hash of all texts and answers."""
        digest = blake2b(digest_size=12)
        for dataset in (self.train, self.test):
            for item in dataset.items:
                gold = dataset.answers.get(item.id)
                digest.update(repr((item.id, item.prompt, item.candidates, gold)).encode())
        for item, gold in self.examples:
            digest.update(repr((item.prompt, item.candidates, gold)).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """A model with the tasks that the studies are played on.

    Attributes:
        model: a name or folder, as `--model` takes it.
        tasks: the first is MedQA (or its replacement), the others are MMLU's subjects.
        settings: settings of every run, over those of the studies.
        comparable: whether the paper's numbers are comparable: its model on its data.
        fingerprint: of the model's files.
        absent: why nothing can be measured, the same words on every machine; None where the model
            can be loaded. `fault` is what the loader said, for the user alone.
    """

    model: str
    tasks: tuple[Task, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    comparable: bool = False
    fingerprint: str = ""
    absent: str | None = None
    fault: str | None = None

    @property
    def main(self) -> Task:
        """The task that MedQA is in the paper."""
        return self.tasks[0]

    def task(self, name: str) -> Task:
        """The task called `name`."""
        return next(task for task in self.tasks if task.name == name)


def drawn(dataset: Dataset, count: int | None, seed: int) -> Dataset:
    """`count` items of `dataset`, drawn by `seed` without their answers being looked at."""
    if count is None or count >= len(dataset.items):
        return dataset
    order = generator(seed, "study items").permutation(len(dataset.items))[:count]
    return subset(dataset, sorted(order.tolist()))


def held_out(dataset: Dataset, labels: int, seed: int) -> tuple[Dataset, Dataset, int]:
    """A stream, labeled items kept out of it, and the labels left for the stream.

    Of `labels` that may be bought, a fifth goes to items drawn uniformly by `seed`: they are
    bought, count in the budget, and are never trained on.

    Raises:
        DataError: too few labels for both.
    """
    held = round(HELD_SHARE * labels)
    if held < 1 or labels - held < 2:
        raise DataError(
            f"choosing kl_weight and k keeps a fifth of the labels apart and needs at least 3"
            f" labels, and the budget is {labels}: give more data"
        )
    order = generator(seed, "study held out").permutation(len(dataset.items)).tolist()
    apart, stream = sorted(order[:held]), sorted(order[held:])
    return subset(dataset, stream), subset(dataset, apart), labels - held


def permuted(dataset: Dataset, seed: int) -> Dataset:
    """`dataset` with the options of every item in an order drawn by `seed` and the item's place."""
    items: list[Item] = []
    answers: dict[str, int] = {}
    for place, item in enumerate(dataset.items):
        order = generator(seed, "study option order", place).permutation(len(item.candidates))
        shown = tuple(item.candidates[int(index)] for index in order)
        items.append(replace(item, candidates=shown))
        if item.id in dataset.answers:
            answers[item.id] = order.tolist().index(dataset.answers[item.id])
    return replace(dataset, items=tuple(items), answers=answers, classes=None)


def subset(dataset: Dataset, places: Sequence[int]) -> Dataset:
    """The items of `dataset` at these places, with their answers."""
    items = tuple(dataset.items[place] for place in places)
    answers = {i.id: dataset.answers[i.id] for i in items if i.id in dataset.answers}
    return replace(dataset, items=items, answers=answers, rejected=(), warnings=())
