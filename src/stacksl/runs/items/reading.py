"""How a run reads files: the first, those like it, and the answers that a bank gives each item.

An item of a run over a bank has the M answers nearest to its prompt as its candidates, the nearest
first. The encoder is fitted on the bank alone, so that a prompt retrieves the same answers in every
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stacksl.core.nearest import nearest
from stacksl.data import Bank, Classes, Dataset, Layout, read, read_classes
from stacksl.data.values import one_line
from stacksl.errors import DataError
from stacksl.runs.settings.fields import Settings


def retrieved(dataset: Dataset, bank: Bank, features: str, count: int) -> Dataset:
    """The data set with the `count` nearest answers of the bank as each item's candidates.

    Args:
        dataset: read with `bank`: answers are places in it.
        bank: the answers of all items.
        features: names the encoder.
        count: M; a smaller bank is given whole.

    Returns:
        Items with their own candidates; a gold that was not retrieved is in `unknown`.

    Raises:
        SettingsError: the features have no text encoder.
    """
    prompts = list(dict.fromkeys(item.prompt for item in dataset.items))
    known = dict(zip(prompts, _search(prompts, bank, features, count), strict=True))
    items, answers, unknown = [], {}, {}
    for item in dataset.items:
        places = known[item.prompt].tolist()
        items.append(replace(item, candidates=tuple(bank.texts[place] for place in places)))
        gold = dataset.answers.get(item.id)
        if gold in places:
            answers[item.id] = places.index(gold)
        elif gold is not None:
            unknown[item.id] = bank.texts[gold]
    return replace(dataset, items=tuple(items), answers=answers, unknown=unknown)


def _search(prompts: list[str], bank: Bank, features: str, count: int) -> NDArray[np.int32]:
    from stacksl.features import BANK, TextMap, make_features

    feature_map = make_features(features, classes=None, cosine=BANK)
    assert isinstance(feature_map, TextMap)
    feature_map.encoder.fit(bank.texts)
    vectors = feature_map.documents.encode(bank.texts)
    return nearest(feature_map.encoder.encode(prompts), vectors, count)[0]


def _read(path: str | Path, settings: Settings, bank: Bank | None, **how: Any) -> Dataset:
    """A file of the run's kind, `how` it is said; over a bank with what its prompts retrieve."""
    how = {"layout": layout_of(settings), **how, "bank": bank}
    how["max_candidates"] = settings.read.max_candidates
    dataset = read(path, **how)
    if bank is None:
        return dataset
    return retrieved(dataset, bank, settings.features, settings.top_k or len(bank.texts))


def layout_of(settings: Settings, *, first: bool = False) -> Layout:
    """Where the rows of a file are; a later one may have a header where the first has none."""
    header = settings.read.header
    return Layout(settings.read.worksheet, header if first else header or None, header is False)


def named_columns(settings: Settings) -> dict[str, str]:
    """The columns that the settings name, by their roles."""
    return {role: name for role, name in settings.columns if name}


def read_first(
    source: str, settings: Settings, classes: Classes | None, bank: Bank | None
) -> Dataset:
    """The first file of a run."""
    return _read(
        source,
        settings,
        bank,
        format=settings.read.format,
        layout=layout_of(settings, first=True),
        columns=named_columns(settings),
        classes=None if classes is None else classes.names,
        aside=settings.column,
    )


def load_test(source: str, train: Dataset, settings: Settings, bank: Bank | None = None) -> Dataset:
    """The test file, read as the training file was; see `answered`."""
    return answered(read_like(source, train, settings, "test file", bank))


def answered(test: Dataset) -> Dataset:
    """`test`, where every item has an answer.

    Raises:
        DataError: some have none.
    """
    if test.unlabeled:
        raise DataError(
            f"the test set {test.name} should have an answer in every row, but"
            f" {test.unlabeled} of {len(test.items)} have none: label them or leave them out"
        )
    return test


def load_owned(
    source: str | None, train: Dataset, settings: Settings, bank: Bank | None = None
) -> Dataset | None:
    """Owned items, read as `train` was; rows without a label are left out.

    Raises:
        DataError: no row has a label, or one is outside the classes of `train`.
    """
    if source is None:
        return None
    owned = read_like(source, train, settings, "file of owned labels", bank)
    if owned.unknown and train.classes is not None:
        raise DataError(
            f"{len(owned.unknown)} rows of the file of owned labels {Path(source).name} have a"
            f" class that is none of the {len(train.classes)} of the data"
            f" ({strange(owned.unknown, train.classes)}): correct them, or name those classes with"
            " --classes"
        )
    if not owned.answers:
        raise DataError(f"no row of the file of owned labels {Path(source).name} has a label")
    held = tuple(item for item in owned.items if item.id in owned.answers)
    return replace(owned, items=held)


def strange(unknown: Mapping[str, str], classes: Sequence[str]) -> str:
    """Some of the labels that are no class, with their rows and the nearest class."""
    first_rows: dict[str, str] = {}
    for name, label in unknown.items():
        first_rows.setdefault(label, name)
    examples = []
    for label, name in islice(first_rows.items(), 3):
        near = get_close_matches(label, classes, n=1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        examples.append(f"'{label}' in {name}{hint}")
    return one_line("; ".join(examples))


def given_classes(settings: Settings) -> Classes | None:
    """The classes that the settings of a new run name a file of."""
    return None if settings.classes is None else read_classes(settings.classes)


def read_like(
    path: str, train: Dataset, settings: Settings, what: str, bank: Bank | None = None
) -> Dataset:
    """A file read as `train` was; `what` it is, for messages."""
    how = {"usual": train.columns, "classes": train.classes, "lenient": True}
    try:
        return _read(path, settings, bank, format=settings.read.format, **how)
    except DataError as fault:
        raise DataError(f"in the {what} {Path(path).name}: {fault}") from None


class Reading(Protocol):
    """How a model reads files: its fixed classes, if any, and the columns."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The fixed label set."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Role to column."""


def read_again(
    settings: Settings,
    model: Reading,
    path: str | Path,
    bank: Bank | None,
    given: Mapping[str, Any] | None = None,
) -> Dataset:
    """A file to predict or evaluate on, read as the run's data was except for what is `given`.

    `given` may hold `format`, `worksheet`, `header`, `prompt`, `label` and `id`.
    """
    options = dict(given or {})
    form = options.pop("format", settings.read.format)
    changed = {name: options.pop(name) for name in ("worksheet", "header") if name in options}
    layout = layout_of(settings)._replace(**changed)
    how = {"usual": model.columns, "classes": model.classes, "lenient": True}
    named = {"format": form, "layout": layout, "columns": options or None}
    return _read(path, settings, bank, **named, **how)
