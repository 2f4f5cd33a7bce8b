"""The items of a run and where they come from: files, the built-in samples, labels held before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from stacksl.data import Classes, Dataset, read, read_classes, sample
from stacksl.errors import DataError
from stacksl.items import Item
from stacksl.runs.folder import RunFolder
from stacksl.runs.settings import Settings

__all__ = [
    "CLASSES",
    "QUESTIONS",
    "SAMPLE",
    "Reading",
    "Stock",
    "given_classes",
    "load",
    "load_owned",
    "load_test",
    "read_again",
]

SAMPLE = "sample"  # the data source that is the built-in sample
QUESTIONS = "questions"  # the one that is the sample language model's own
CLASSES = "classes.csv"  # of a run's folder: the classes given to it, and those added since
OWNED = "owned/"  # before the id of an item whose label was held


@dataclass(frozen=True, slots=True)
class Stock:
    """All items of a run, in one order that never changes: more come behind.

    Attributes:
        pool: the items to choose from.
        dataset: those, then the items whose labels were held before.
        test: what the final model is tested on.
        owned: id to label of the items held before.
        descriptions: what the classes mean, where that was said.
    """

    pool: Dataset
    dataset: Dataset
    test: Dataset | None = None
    owned: Mapping[str, int] = field(default_factory=dict)
    descriptions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        pool: Dataset,
        test: Dataset | None = None,
        owned: Dataset | None = None,
        descriptions: tuple[str, ...] = (),
    ) -> Stock:
        """The stock of a pool, with the items of `owned` behind it, each with its label."""
        if owned is None:
            return cls(pool, pool, test, {}, descriptions)
        items = [
            Item(OWNED + item.id, item.prompt, pool.classes or item.candidates)
            for item in owned.items
        ]
        labels = {OWNED + name: index for name, index in owned.answers.items()}
        everything = replace(pool, items=(*pool.items, *items))
        return cls(pool, everything, test, labels, descriptions)

    @property
    def classes(self) -> Classes | None:
        """The fixed label set with its descriptions."""
        names = self.pool.classes
        if names is None:
            return None
        said = (*self.descriptions, *[""] * (len(names) - len(self.descriptions)))
        return Classes(names, said)

    @property
    def aside(self) -> frozenset[int]:
        """Rows that no label is bought of: owned items, and those of the same text."""
        held = {(i.prompt, i.candidates) for i in self.dataset.items if i.id in self.owned}
        rows = enumerate(self.dataset.items) if held else ()
        return frozenset(row for row, item in rows if (item.prompt, item.candidates) in held)


def load(
    source: str,
    test: str | None,
    settings: Settings,
    *,
    columns: Mapping[str, str] | None = None,
    classes: Classes | None = None,
) -> Stock:
    """The items that `source` names and the test set: paths, `hf:NAME`, or the built-in samples."""
    held: Dataset | None = None
    if source in (SAMPLE, QUESTIONS):
        dataset, own = sample() if source == SAMPLE else _questions()
        held = own if test == source else None
    else:
        dataset = _read(source, settings, columns, classes)
    if test is not None and held is None:
        held = load_test(test, dataset, settings)
    owned = load_owned(settings.owned, dataset, settings)
    return Stock.of(dataset, held, owned, () if classes is None else classes.descriptions)


def _read(
    source: str,
    settings: Settings,
    columns: Mapping[str, str] | None,
    classes: Classes | None,
) -> Dataset:
    wanted = dict(columns or {})
    if settings.prompt_column:
        wanted["prompt"] = settings.prompt_column
    if settings.label_column:
        wanted["label"] = settings.label_column
    return read(
        source,
        format=settings.format,
        columns=wanted or None,
        classes=None if classes is None else classes.names,
        max_candidates=settings.max_candidates,
        seed=settings.seed,
        strict=settings.strict,
    )


def load_test(source: str, train: Dataset, settings: Settings) -> Dataset:
    """The test file, read as the training file was; it never loses a row in silence."""
    test = _like(source, train, settings, "test file")
    if test.unlabelled:
        raise DataError(
            f"the test file {Path(source).name} should have an answer in every row, but"
            f" {test.unlabelled} of {len(test.items)} have none: label them or leave them out"
        )
    return test


def load_owned(source: str | None, train: Dataset, settings: Settings) -> Dataset | None:
    """Items with labels that are held already, read as `train` was; those without one are left out.

    Raises:
        DataError: no row has a label, or one is outside the classes of `train`.
    """
    if source is None:
        return None
    owned = _like(source, train, settings, "file of owned labels")
    if owned.unknown:
        raise DataError(
            f"{len(owned.unknown)} rows of the file of owned labels {Path(source).name} have a"
            f" class that is none of the {len(train.classes or ())} of the data: correct them, or"
            " name those classes with --classes"
        )
    if not owned.answers:
        raise DataError(f"no row of the file of owned labels {Path(source).name} has a label")
    held = tuple(item for item in owned.items if item.id in owned.answers)
    return replace(owned, items=held)


def given_classes(folder: RunFolder | None, settings: Settings) -> Classes | None:
    """The classes that a run was given: from its own folder where they lie there."""
    if folder is not None and (folder.path / CLASSES).is_file():
        return read_classes(folder.path / CLASSES)
    return None if settings.classes is None else read_classes(settings.classes)


def _like(path: str, train: Dataset, settings: Settings, what: str) -> Dataset:
    try:
        return read(
            path,
            format=settings.format,
            columns=dict(train.columns) or None,
            classes=train.classes,
            max_candidates=settings.max_candidates,
            seed=settings.seed,
            lenient=True,
        )
    except DataError as fault:
        raise DataError(f"in the {what} {Path(path).name}: {fault}") from None


def _questions() -> tuple[Dataset, Dataset]:
    from stacksl.lm.questions import questions

    return questions()


class Reading(Protocol):
    """What a model knows of the files it reads: its fixed classes, if any, and the columns."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The fixed label set."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Role to column."""


def read_again(
    folder: RunFolder, model: Reading, path: str | Path, given: Mapping[str, str] | None = None
) -> Dataset:
    """A file to predict or evaluate on, read as the run's own data was but for what is `given`.

    `given` may hold `format`, `prompt` and `label`.
    """
    table = folder.read_toml("resolved.toml")
    other = dict(given or {})
    form = other.pop("format", table.get("format"))
    return read(
        path,
        format=form,
        columns={**model.columns, **other} or None,
        classes=model.classes,
        max_candidates=int(table["max_candidates"]),
        seed=int(table["seed"]),
        lenient=True,
    )
