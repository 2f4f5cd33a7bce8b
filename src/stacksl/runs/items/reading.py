"""How a run reads files: the first, and those like it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from stacksl.data import Classes, Dataset, Layout, expect_classes, read, read_classes, strange
from stacksl.data.columns import roles_of
from stacksl.errors import DataError, SettingsError
from stacksl.report.wording import plural
from stacksl.runs.settings.fields import Settings
from stacksl.runs.storage.folder import RunFolder


def _read(path: str | Path, settings: Settings, sheet: str | None = None, **kwargs: Any) -> Dataset:
    """A file of the run's kind, read with `kwargs`; a workbook if a `sheet` was named for it."""
    kwargs = {"layout": layout_of(settings), **kwargs}
    dataset = read(path, max_candidates=settings.read.max_candidates, **kwargs)
    if sheet is not None and not dataset.format.startswith("xlsx"):
        raise DataError(f"expected a workbook (.xlsx) with the sheet '{sheet}', got '{path}'")
    return dataset


def layout_of(settings: Settings, *, first: bool = False) -> Layout:
    """Where the rows of a file are; a later one may have a header where the first has none."""
    header = settings.read.header
    return Layout(settings.read.worksheet, header if first else header or None, header is False)


def named_columns(settings: Settings) -> dict[str, str]:
    """The columns that the settings name, by their roles."""
    owned = {} if settings.owned_column is None else {"label": settings.owned_column}
    return owned | {role: name for role, name in settings.columns if name}


def read_first(source: str, settings: Settings, classes: Classes | None) -> Dataset:
    """The first file of a run."""
    return _read(
        source,
        settings,
        settings.read.worksheet,
        format=settings.read.format,
        layout=layout_of(settings, first=True),
        columns=named_columns(settings),
        classes=None if classes is None else classes.names,
        without=settings.column,
    )


def load_test(source: str, train: Dataset, settings: Settings) -> Dataset:
    """The test file, read as the training file was; see `answered`."""
    return answered(read_like(source, train, settings, "test file", "test_columns"))


def answered(test: Dataset) -> Dataset:
    """`test`, where every item has an answer.

    Raises:
        DataError: some have none, or no answer is one of the classes.
    """
    expect_classes(test, f"the test set {test.name}")
    if test.unlabeled:
        raise DataError(
            f"the test set {test.name} should have an answer in every row, but has none in"
            f" {test.unlabeled} of {len(test.items)}: label them or leave them out"
        )
    return test


def load_owned(source: str | None, train: Dataset, settings: Settings) -> Dataset | None:
    """Owned items, of a file that is read as `train` was, or of a column of `train`.

    Rows without a label are left out.

    Raises:
        DataError: no row has a label, one is outside the classes of `train`, or `source` names
            neither a file nor the column of labels.
    """
    if source is None:
        return None
    if Path(source).is_absolute():  # a file, also one that is added to a run with such a column
        description = f"the file of owned labels {Path(source).name}"
        own = "owned_columns" if source == settings.owned else None  # and not of later files
        owned = read_like(source, train, settings, "file of owned labels", own)
    elif settings.owned_columns is not None:
        raise SettingsError(
            f"--owned-columns belongs to a file of owned labels, and '{source}' is none: leave it"
            " out, or name a file that exists"
        )
    elif train.columns.get("label") == source:
        description, owned = f"the column of owned labels '{source}'", train
    else:
        raise DataError(
            f"--owned names '{source}', which is neither a file nor the column of labels: name a"
            " file that exists, or the column"
        )
    if owned.unknown and train.classes is not None:
        raise DataError(
            f"{description} has {plural(len(owned.unknown), 'row')}"
            f" of a class that is none of the {len(train.classes)} of the data"
            f" ({strange(owned.unknown, train.classes)}): correct them, or name those classes with"
            " --classes"
        )
    expect_classes(owned, description)
    if not owned.answers:
        raise DataError(f"no row of {description} has a label")
    labeled_items = tuple(item for item in owned.items if item.id in owned.answers)
    return replace(owned, items=labeled_items)


def given_classes(settings: Settings) -> Classes | None:
    """The classes that the settings of a new run name a file of, or the run that has them.

    Raises:
        SettingsError: that run was given none.
    """
    if (place := settings.classes) is None:
        return None
    if not os.path.isdir(place):  # nor for too long a name
        return read_classes(place)
    if (classes := RunFolder.open(Path(place)).classes()) is None:
        raise SettingsError(
            f"--classes expects a file or a run that was given classes, and the run '{place}' was"
            " given none: name a file with a class on each line"
        )
    return classes


def read_like(
    path: str, train: Dataset, settings: Settings, description: str, own: str | None = None
) -> Dataset:
    """A file read as `train` was, with its `description` for messages.

    The setting `own` names its columns, where it has others.
    """
    named = getattr(settings, own) if own else None
    options: dict[str, Any] = {"usual": train.columns, "classes": train.classes, "lenient": True}
    options["columns"] = None if named is None else roles_of(named)
    try:
        return _read(path, settings, format=settings.read.format, **options)
    except DataError as fault:
        advice = f"name its columns as those of the data ({', '.join(train.columns.values())})"
        if own is not None:
            advice += f", or say which they are with --{own.replace('_', '-')} text=NAME,label=NAME"
        text = re.sub("say which with --worksheet.*", "keep the rows of one sheet only", str(fault))
        text = re.sub("say which with --.*|put a header on top.*", advice, text)
        raise DataError(f"in the {description} {Path(path).name}: {text}") from None


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
    given: Mapping[str, Any] | None = None,
) -> Dataset:
    """A file to predict or evaluate on, read as the run's data was except for what is `given`.

    `given` may hold `format`, `worksheet`, `header`, `prompt`, `label` and `id`.
    """
    options = dict(given or {})
    file_format = options.pop("format", settings.read.format)
    overrides = {name: options.pop(name) for name in ("worksheet", "header") if name in options}
    layout = layout_of(settings)._replace(**overrides)
    defaults: dict[str, Any] = {"usual": model.columns, "classes": model.classes, "lenient": True}
    explicit: dict[str, Any] = {"format": file_format, "layout": layout, "columns": options or None}
    return _read(path, settings, overrides.get("worksheet"), **explicit, **defaults)
