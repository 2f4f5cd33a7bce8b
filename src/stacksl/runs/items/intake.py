"""Items made in Python and test sets, converted to the form that a run uses."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stacksl.data import Dataset, overlap
from stacksl.data.dataset import Rejected
from stacksl.errors import DataError, SettingsError
from stacksl.runs.settings.resolve import Resolved
from stacksl.types import Item

LETTERS = 26
FEW_LABELS, FEW_ITEMS = 2_500, 100_000  # up to which a pool takes minutes
OF_SAMPLE = {
    "model": "sample",
    "template": "plain",
    "normalisation": "pmi",
    "pmi_context": "last_line",
    "learning_rate": 5e-4,
    "batch_tokens": 512,
}
"""How the sample language model is asked its own questions and trained on them.

Chosen on a quarter of the questions to label, held out, never on the test questions.
"""
WITHOUT_ENCODER = (
    "a sentence encoder makes more of each label (with 150 labels of 64 intents, accuracy 0.716"
    " against 0.557 with hashing): pip install 'stacksl[minilm]'"
)


def for_model(resolved: Resolved, *, without_data: bool) -> Resolved:
    """The settings of a run that adapts a language model, completed where nothing was chosen.

    Raises:
        SettingsError: data without a model to adapt to it.
    """
    named = resolved.settings.model
    if named is not None and named != "sample" and Path(named).is_dir():
        path = str(Path(named).resolve())  # a run may be resumed from another folder
        absolute = resolved.settings.model_copy(update={"model": path})
        resolved = Resolved(absolute, resolved.origin, resolved.preset)
    if resolved.settings.protocol == "letter":
        resolved = _lettered(resolved)
    if without_data:
        if named in (None, "sample"):
            return resolved.with_defaults(OF_SAMPLE, "sample")
        return resolved.with_defaults({"template": "plain"}, "sample")
    if named is None:
        raise SettingsError(
            "--adapt on data of yours needs the language model to adapt: give --model"
            " NAME_OR_DIR, a folder or a name on the hub"
        )
    return resolved


def _lettered(resolved: Resolved) -> Resolved:
    """The settings with as many candidates at most as there are letters."""
    most = min(resolved.settings.max_candidates, LETTERS)
    settings = resolved.settings.model_copy(update={"max_candidates": most})
    return Resolved(settings, resolved.origin, resolved.preset)


def with_features(resolved: Resolved) -> Resolved:
    """The settings with this machine's features where none were chosen.

    They are `$STACKSL_FEATURES`, else the packaged sentence encoder where it is installed, which is
    never downloaded; and they are recorded, so that a run keeps them on every machine.
    """
    from stacksl.features.weights import MINILM, packaged

    named = os.environ.get("STACKSL_FEATURES")
    found = named or (f"sentences:{MINILM}" if packaged() else "hashing")
    return resolved.with_defaults({"features": found}, "environment" if named else "installed")


def encoder_advice(resolved: Resolved) -> list[str]:
    """What the packaged encoder would bring, where `hashing` was taken since it is missing."""
    settings, origin = resolved.settings, resolved.origin["features"]
    return [WITHOUT_ENCODER] if (settings.features, origin) == ("hashing", "installed") else []


def within(dataset: Dataset, most: int) -> Dataset:
    """`dataset` without the items of more than `most` candidates, which are set aside."""
    long = {n: item for n, item in enumerate(dataset.items, 1) if len(item.candidates) > most}
    if not long or dataset.classes is not None:
        return dataset
    aside = [
        Rejected(n, item.id, f"too many options: {len(item.candidates)}, at most {most} are read")
        for n, item in long.items()
    ]
    if len(aside) == len(dataset.items):
        raise DataError(f"every item has more than {most} candidates: use protocol 'option'")
    gone = {item.id for item in long.values()}
    return replace(
        dataset,
        items=tuple(item for item in dataset.items if item.id not in gone),
        answers={name: answer for name, answer in dataset.answers.items() if name not in gone},
        rejected=(*dataset.rejected, *aside),
    )


def absolute(resolved: Resolved) -> Resolved:
    """The settings with absolute paths, since a run may be resumed from another folder."""
    named = {name: getattr(resolved.settings, name) for name in ("classes", "owned", "ask_dir")}
    whole = {name: str(Path(path).resolve()) for name, path in named.items() if path is not None}
    settings = resolved.settings.model_copy(update=whole)
    return Resolved(settings, resolved.origin, resolved.preset)


def for_file(resolved: Resolved, dataset: Dataset, labels: int) -> Resolved:
    """The settings of a run over a file: a pool, since all its items are there to choose from.

    So it was measured, for items with fixed classes (`docs/decisions.md`). A stream stays where
    nothing was, where the decisions on the way count, where the gate ranks nothing, and where a
    labeler that answers at once would wait long for so many batches to be ranked.
    """
    from stacksl.core.gates.registry import GATES

    wanted = resolved.settings
    chooses = wanted.aim == "model" and GATES[wanted.gate].ranks and not wanted.adapts
    people = wanted.labeler == "file"
    quick = labels <= FEW_LABELS and len(dataset.items) <= FEW_ITEMS
    if dataset.classes is None or not chooses or not (people or quick):
        return resolved
    return resolved.with_defaults({"mode": "pool"}, "file")


def in_memory(
    items: Dataset | Sequence[Item], answers: Mapping[str, int] | Sequence[int] | None
) -> Dataset:
    """A data set of items made in Python, with the gold `answers` by id or in their order.

    Raises:
        DataError: there is no item, ids repeat, or an answer fits no item.
    """
    if isinstance(items, Dataset):
        return items
    listed = tuple(items) if isinstance(items, Iterable) else ()
    if isinstance(items, Sequence) and not listed:
        raise DataError("at least one item was expected, but the list of items is empty")
    if not listed or not all(isinstance(item, Item) for item in listed):
        raise DataError("items should be a path, a data set, or a list of stacksl.Item")
    if len({item.id for item in listed}) != len(listed):
        raise DataError("every item needs an id of its own, but some are repeated")
    gold = _gold(listed, answers)
    first = listed[0].candidates
    if len(listed) < 2 or any(item.candidates != first for item in listed):
        return Dataset("items", "memory", listed, gold)
    # the same candidates everywhere are a fixed label set, as the readers have it
    listed = tuple(Item(item.id, item.prompt, first) for item in listed)
    return Dataset("items", "memory", listed, gold, first)


def answered(test: Dataset) -> Dataset:
    """`test`, where every item has an answer.

    Raises:
        DataError: some have none.
    """
    if test.unlabelled:
        raise DataError(
            f"every item of the test set should have an answer, but {test.unlabelled} of"
            f" {len(test.items)} have none: give test=(items, answers)"
        )
    return test


def like(dataset: Dataset, classes: tuple[str, ...] | None) -> Dataset:
    """`dataset` as the run's own data is: with its `classes`, or each item with its own options.

    Raises:
        DataError: an item has other candidates than the classes.
    """
    if classes is None or dataset.classes == classes:
        return replace(dataset, classes=classes)
    for item in dataset.items:
        if item.candidates not in ((), classes):
            raise DataError(
                f"the candidates of item '{item.id}' should be the {len(classes)} classes of the"
                " data in their order, but are others"
            )
    items = tuple(replace(item, candidates=classes) for item in dataset.items)
    return replace(dataset, items=items, classes=classes)


def warnings_of_test(dataset: Dataset, test: Dataset | None) -> list[str]:
    """What is odd about the test set, and how much of it the data holds already."""
    if test is None:
        return []
    shared = overlap(dataset.items, test.items)
    seen = [f"{shared} of {len(test.items)} test prompts are also in the data to label"]
    return [*(f"test set: {warning}" for warning in test.warnings), *(seen if shared else [])]


def _gold(
    items: Sequence[Item], answers: Mapping[str, int] | Sequence[int] | None
) -> dict[str, int]:
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        if len(answers) != len(items):
            raise DataError(f"{len(items)} items should have as many answers, not {len(answers)}")
        answers = {item.id: int(a) for item, a in zip(items, answers, strict=True)}
    sizes = {item.id: len(item.candidates) for item in items}
    for name, index in answers.items():
        if name not in sizes:
            raise DataError(
                f"expected answers for ids of the items, got one for '{name}': correct it"
            )
        if not 0 <= int(index) < sizes[name]:
            raise DataError(
                f"the answer of '{name}' should be an index from 0 to {sizes[name] - 1},"
                f" not {index}"
            )
    return {name: int(index) for name, index in answers.items()}
