"""How a run reads its files: the first, those like it, and the answers that a bank gives each item.

An item of a run over a bank has the M answers nearest to its prompt as its candidates, the nearest
first. The encoder is fitted on the bank alone, so that a prompt retrieves the same answers in every
file. What was retrieved is kept in the run's folder: a resumed run encodes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stacksl.data import Bank, Classes, Dataset, read, read_bank, read_classes
from stacksl.errors import DataError, RunError
from stacksl.files import arrays
from stacksl.runs.settings.fields import Settings
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item

RETRIEVED = "retrieved.safetensors"  # in a run's folder: what its prompts retrieved from its bank
_KEY = 16  # bytes of BLAKE2b of a prompt


@dataclass(frozen=True, slots=True)
class Kept:
    """What prompts retrieved from a bank: the places of the nearest answers, by `_key` of a prompt.

    `bank` is the digest of the bank's texts.
    """

    bank: bytes
    places: Mapping[bytes, NDArray[np.int32]]

    @classmethod
    def read(cls, folder: RunFolder) -> Kept | None:
        """What the run kept; None where it has no such file."""
        path = folder.path / RETRIEVED
        if not path.is_file():
            return None
        found = arrays.load(path)
        keys = (key.tobytes() for key in found["keys"])
        return cls(found["bank"].tobytes(), dict(zip(keys, found["places"], strict=True)))

    @classmethod
    def of(cls, items: Iterable[Item], bank: Bank) -> Kept:
        """What the items of a run retrieved, found again from their candidates."""
        held = {
            _key(item.prompt): np.array([bank.places[text] for text in item.candidates], np.int32)
            for item in items
        }
        return cls(_digest(bank), held)

    def write(self, folder: RunFolder) -> None:
        """Write it into the run's folder."""
        keys = np.frombuffer(b"".join(self.places), np.uint8).reshape(-1, _KEY)
        places = np.array(list(self.places.values()), np.int32).reshape(len(keys), -1)
        bank = np.frombuffer(self.bank, np.uint8)
        arrays.save(folder.path / RETRIEVED, {"bank": bank, "keys": keys, "places": places})

    def without(self, prompt: str) -> Kept:
        """The same without what `prompt` retrieved."""
        key = _key(prompt)
        return Kept(self.bank, {k: places for k, places in self.places.items() if k != key})


def keep_retrieved(
    folder: RunFolder, settings: Settings, dataset: Dataset, test: Dataset | None
) -> None:
    """Write what the prompts of a run retrieved, if it is over a bank."""
    if settings.bank is not None:
        items = (*dataset.items, *(() if test is None else test.items))
        Kept.of(items, read_bank(settings.bank)).write(folder)


def _key(prompt: str) -> bytes:
    return blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=_KEY).digest()


def _digest(bank: Bank) -> bytes:
    whole = blake2b(digest_size=32)
    for text in bank.texts:
        whole.update(text.encode("utf-8", "surrogatepass") + b"\x1e")
    return whole.digest()


def retrieved(
    dataset: Dataset,
    bank: Bank,
    features: str,
    count: int,
    kept: Kept | None = None,
    *,
    search: bool = True,
) -> Dataset:
    """The data set with the `count` nearest answers of the bank as each item's candidates.

    Args:
        dataset: read with `bank`: answers are places in it.
        bank: the answers of all items.
        features: names the encoder.
        count: M; a smaller bank is given whole.
        kept: what is known already.
        search: whether other prompts are encoded; else they are of forgotten items, or of a
            changed file that the ledger will refuse, and get the bank's first answers.

    Returns:
        Items with their own candidates; a gold that was not retrieved is in `unknown`.

    Raises:
        SettingsError: the features have no text encoder.
        RunError: the bank is not the one of the run.
    """
    if kept is not None and kept.bank != _digest(bank):
        raise RunError(
            "the bank of answers should be as it was when the run began, but its texts or their"
            " order differ: restore the file, or start a new run"
        )
    known = {} if kept is None else dict(kept.places)
    prompts = dict.fromkeys(item.prompt for item in dataset.items)
    if new := [prompt for prompt in prompts if _key(prompt) not in known]:
        found = _search(new, bank, features, count) if search else _first(len(new), bank, count)
        known.update(zip(map(_key, new), found, strict=True))
    items, answers, unknown = [], {}, {}
    for item in dataset.items:
        places = known[_key(item.prompt)].tolist()
        items.append(replace(item, candidates=tuple(bank.texts[place] for place in places)))
        gold = dataset.answers.get(item.id)
        if gold in places:
            answers[item.id] = places.index(gold)
        elif gold is not None:
            unknown[item.id] = bank.texts[gold]
    return replace(dataset, items=tuple(items), answers=answers, unknown=unknown)


def _first(rows: int, bank: Bank, count: int) -> NDArray[np.int32]:
    return np.tile(np.arange(min(count, len(bank.texts)), dtype=np.int32), (rows, 1))


def _search(prompts: list[str], bank: Bank, features: str, count: int) -> NDArray[np.int32]:
    from stacksl.features import BANK, TextMap, make_features
    from stacksl.features.retrieval import nearest

    found = make_features(features, classes=None, cosine=BANK)
    assert isinstance(found, TextMap)
    found.encoder.fit(bank.texts)
    vectors = found.encoder.documents.encode(bank.texts)
    return nearest(found.encoder.encode(prompts), vectors, count)


def _read(
    path: str | Path, settings: Settings, kept: Kept | None, *, search: bool, **how: Any
) -> Dataset:
    """A file of the run's kind, `how` it is said; over a bank with what its prompts retrieve."""
    bank = None if settings.bank is None else read_bank(settings.bank)
    how |= {"bank": bank, "max_candidates": settings.max_candidates, "seed": settings.seed}
    dataset = read(path, **how)
    if bank is None:
        return dataset
    count = settings.k or len(bank.texts)
    return retrieved(dataset, bank, settings.features, count, kept, search=search)


def named_columns(settings: Settings) -> dict[str, str]:
    """The columns that the settings name, by their roles."""
    roles = ("prompt", "label", "id")
    named = {role: getattr(settings, f"{role}_column") for role in roles}
    return {role: name for role, name in named.items() if name}


def as_before(columns: Mapping[str, str]) -> dict[str, Any]:
    """The columns of an earlier file as arguments of `read`: another one may have no such ids."""
    others = {role: name for role, name in columns.items() if role != "id"}
    return {"columns": others, "usual": {r: columns[r] for r in columns if r == "id"}}


def read_first(
    source: str,
    settings: Settings,
    columns: Mapping[str, str] | None,
    classes: Classes | None,
    warn: bool,
    kept: Kept | None,
    *,
    own: bool = False,
) -> Dataset:
    """The first file of a run; its `own` copy of items has columns of its own."""
    named = named_columns(settings)
    how = as_before({} if own or columns is None else columns)
    how["columns"] |= {} if own else named
    found = _read(
        source,
        settings,
        kept,
        search=kept is None,
        format="native" if own and settings.bank is None else settings.format,
        classes=None if classes is None else classes.names,
        strict=settings.strict,
        warn=warn,
        **how,
    )
    named = {**(columns or {}), **named}
    return replace(found, columns=named) if own and named else found


def load_test(source: str, train: Dataset, settings: Settings, kept: Kept | None = None) -> Dataset:
    """The test file, read as the training file was.

    Raises:
        DataError: a row has no answer.
    """
    test = read_like(source, train, settings, "test file", kept)
    if test.unlabelled:
        raise DataError(
            f"the test file {Path(source).name} should have an answer in every row, but"
            f" {test.unlabelled} of {len(test.items)} have none: label them or leave them out"
        )
    return test


def load_owned(
    source: str | None, train: Dataset, settings: Settings, kept: Kept | None = None
) -> Dataset | None:
    """Owned items, read as `train` was; rows without a label are left out.

    Raises:
        DataError: no row has a label, or one is outside the classes of `train`.
    """
    if source is None:
        return None
    owned = read_like(source, train, settings, "file of owned labels", kept)
    if owned.unknown and train.classes is not None:
        raise DataError(
            f"{len(owned.unknown)} rows of the file of owned labels {Path(source).name} have a"
            f" class that is none of the {len(train.classes or ())} of the data: correct them, or"
            " name those classes with --classes"
        )
    if not owned.answers:
        raise DataError(f"no row of the file of owned labels {Path(source).name} has a label")
    held = tuple(item for item in owned.items if item.id in owned.answers)
    return replace(owned, items=held)


def given_classes(settings: Settings) -> Classes | None:
    """The classes that the settings of a new run name a file of."""
    return None if settings.classes is None else read_classes(settings.classes)


def read_like(
    path: str, train: Dataset, settings: Settings, what: str, kept: Kept | None = None
) -> Dataset:
    """A file read as `train` was; `what` it is, for messages."""
    how = as_before(train.columns) | {"classes": train.classes, "lenient": True}
    try:
        return _read(path, settings, kept, search=kept is None, format=settings.format, **how)
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
    folder: RunFolder, model: Reading, path: str | Path, given: Mapping[str, str] | None = None
) -> Dataset:
    """A file to predict or evaluate on, read as the run's data was except for what is `given`.

    `given` may hold `format`, `prompt`, `label` and `id`.
    """
    table, other = folder.resolved(), dict(given or {})
    known = {name: table[name] for name in Settings.model_fields if name in table}
    settings = Settings.model_construct(**known)
    form = other.pop("format", settings.format)
    kept = None if settings.bank is None else Kept.read(folder)
    how = {"usual": model.columns, "classes": model.classes, "lenient": True}
    return _read(path, settings, kept, search=True, format=form, columns=other or None, **how)
