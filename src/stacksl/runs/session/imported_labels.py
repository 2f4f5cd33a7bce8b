"""What a model says of the items of a run: read from a file, or from a run that it labeled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stacksl.data import Dataset
from stacksl.errors import DataError, StackslError
from stacksl.ledger.ledger import Ledger
from stacksl.report.wording import plural
from stacksl.runs.items.reading import read_like, strange
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item


def load_model_labels(
    source: str, train: Dataset, settings: Settings, items: Sequence[Item]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The class that a model gave each of the `items`, −1 for none, by their prompts; warnings.

    Args:
        source: the folder of a run that the model labeled, or a file with the prompts and the
            model's labels, read as `train` was.
        train: the first data set of the run, which has classes.
        settings: of the run.
        items: all items of the run.

    Raises:
        DataError: it cannot be read, its classes are others, or it labels none of the items.
    """
    path, warnings = Path(source), tuple[str, ...]()
    if path.is_dir():
        labels = _bought(path, train)
    else:
        dataset = read_like(source, train, settings, "file of a model's labels")
        texts = {item.id: item.prompt for item in dataset.items}
        labels = {texts[id]: label for id, label in dataset.answers.items()}
        if unlike := dataset.unknown:
            warnings = (
                f"{plural(len(unlike), 'label')} in {path.name} left out as none of the"
                f" {len(train.classes or ())} classes: {strange(unlike, train.classes or ())}",
            )
    classes = tuple(labels.get(item.prompt, -1) for item in items)
    if max(classes, default=-1) < 0:
        what = "model's run" if path.is_dir() else "file of a model's labels"
        raise DataError(
            f"the {what} {path.name} should have prompts of the data with one of its classes each,"
            " got none: make it from the same file"
        )
    return classes, warnings


def _bought(path: Path, train: Dataset) -> dict[str, int]:
    """The class of each prompt whose label was bought in the run at `path` and trains its model.

    Owned labels, which the model may have been shown, are none of them.
    """
    run = f"the model's run {path.name}"
    try:
        spec = RunSpec.open(RunFolder.open(path))
        with Ledger.open(spec.folder.database, readonly=True) as ledger:
            labels = {item: ledger.label_of(item) for item in ledger.bought("train")}
    except StackslError as fault:
        raise DataError(f"in {run}: {fault}") from None
    names, classes = spec.dataset.classes, {name: n for n, name in enumerate(train.classes or ())}
    if names is None:
        raise DataError(f"{run} should have fixed classes, got options of each item's own")
    if unknown := [name for name in names if name not in classes]:
        raise DataError(
            f"{run} has the class '{unknown[0]}', which is none of the {len(classes)} of the data:"
            " give both runs the same classes"
        )
    if not any(label is not None for label in labels.values()):
        raise DataError(f"{run} has no label yet: `stacksl resume {path}` first")
    items = spec.sources.usable
    return {
        items[item].prompt: classes[names[label]]
        for item, label in labels.items()
        if label is not None and item in items
    }
