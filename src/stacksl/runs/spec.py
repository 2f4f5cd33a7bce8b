"""The specification of a run: all that is known before its first round.

The run's database has every setting with its origin, the place of the data, and the versions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stacksl.data import Classes, Dataset
from stacksl.errors import RunError, SettingsError
from stacksl.ledger.store.settings import Setting
from stacksl.runs.items.reading import Kept
from stacksl.runs.items.sources import More, Sources, load, with_more
from stacksl.runs.settings.budget import Budget
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import (
    Resolved,
    load_plugins,
    plugin_versions,
    resolve,
    settings_type,
)
from stacksl.runs.storage.folder import OWN, RunFolder
from stacksl.runs.storage.tombstones import as_it_was
from stacksl.types import Item
from stacksl.version import __version__

CHANGEABLE = {
    "batch_size", "batch_tokens", "checkpointing", "epochs", "learning_rate", "warmup_share",
    "weight_decay",
}  # fmt: skip
"""Settings that may change during a run: how its refits are trained."""


LIBRARIES = (
    "numpy", "scipy", "scikit-learn", "numba", "torch", "sentence-transformers",
    "transformers", "peft", "accelerate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Terms:
    """The budget of a run after a change.

    `labels` in all, `money` in micro-units (None where only labels count), and the labels of each
    audit in `audits`: a new audit is drawn where the last result was shown.
    """

    labels: int
    money: int | None
    audits: tuple[int, ...]

    @property
    def train(self) -> int:
        """The labels that train: all but those of audits."""
        return self.labels - sum(self.audits)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: settings with their origin, items, budget and folder.

    `data` and `test_source` name the sources: a path, or `sample`; items made in Python are written
    into the run's folder and read from there. `budget` (but for its price, the present one) and
    `audit` (the labels that measure the final model) are those at the start of the run, `more` the
    files added since, and `now` the changed budget, if any.
    """

    folder: RunFolder
    resolved: Resolved
    sources: Sources
    budget: Budget
    data: str
    test_source: str | None
    audit: int = 0
    more: tuple[More, ...] = ()
    now: Terms | None = None

    @property
    def terms(self) -> Terms:
        """The current budget."""
        return self.now or Terms(self.budget.labels, self.budget.money, (self.audit,))

    @property
    def settings(self) -> Settings:
        """The resolved settings."""
        return self.resolved.settings

    @property
    def dataset(self) -> Dataset:
        """All items of the run; see `Sources`."""
        return self.sources.dataset

    @property
    def test(self) -> Dataset | None:
        """The test set of the final model."""
        return self.sources.test

    def table(self) -> dict[str, Setting]:
        """All that the run is made with: settings, data, budget, columns, versions."""
        facts: dict[str, Any] = {"data": self.data, "test": self.test_source}
        facts |= {"preset": self.resolved.preset, "labels": self.budget.labels}
        facts |= {"price_micro": self.budget.price, "money_micro": self.budget.money}
        facts["audit_labels"] = self.audit
        facts |= {f"column_{role}": name for role, name in self.dataset.columns.items()}
        facts |= versions(self.settings.plugins)
        origin = self.resolved.origin
        values = self.settings.model_dump().items()
        found = {name: Setting(value, origin.get(name)) for name, value in values}
        found |= {name: Setting(value) for name, value in facts.items()}
        return {name: each for name, each in found.items() if each.value is not None}

    @classmethod
    def open(cls, folder: RunFolder, data: str | None = None) -> RunSpec:
        """The spec of an existing run; `data` is the new path of its file, if that was moved.

        Raises:
            RunError: if the settings cannot be read.
            SettingsError: a plugin of the run cannot be imported.
            DataError: if the data file is missing.
        """
        stored = folder.settings()
        table = {name: setting.value for name, setting in stored.items()}
        load_plugins(table.get("plugins"))
        kind = settings_type(table["gate"])
        try:
            settings = kind(**{k: table[k] for k in kind.model_fields if k in table})
        except ValueError as fault:  # such as of a plugin's gate that has changed since
            raise RunError(
                f"the settings of the run {folder.path} are not of this version of stacksl"
                f" ({__version__}): {fault}"
            ) from fault
        origins = {name: setting.origin for name, setting in stored.items()}
        origin = {name: origins.get(name) or "default" for name in kind.model_fields}
        budget = Budget(int(table["labels"]), table.get("money_micro"), int(table["price_micro"]))
        source = data or _beside(folder, str(table["data"]))
        columns = {
            k.removeprefix("column_"): v for k, v in table.items() if k.startswith("column_")
        }
        held = None if table.get("test") is None else _beside(folder, str(table["test"]))
        kept = folder.classes()
        classes = _began(kept, table)
        near = Kept.read(folder)
        sources = load(
            source,
            held,
            settings,
            columns=columns,
            classes=classes,
            warn=False,
            kept=near,
            own_copy=Path(source) == (folder.path / OWN).resolve(),
        )
        sources = sources if kept is None else sources.with_classes(kept)
        resolved = Resolved(settings, origin, table.get("preset"))
        more = tuple(More(*each) for each in table.get("more", ()))
        for each in more:
            sources = with_more(sources, each, settings)
        sources = as_it_was(folder, sources)
        audit = int(table["audit_labels"])
        now = _terms(table)
        return cls(folder, resolved, sources, budget, source, held, audit, more, now)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add `facts` on how the run computes to its settings; known ones are not changed."""
        known = self.folder.resolved()
        if new := {name: value for name, value in facts.items() if name not in known}:
            self.folder.change_settings(new)

    def with_training(self, settings: Mapping[str, Any]) -> Settings:
        """The run's settings with changed settings of training.

        Raises:
            SettingsError: a setting that a run cannot change once it has begun, or a wrong value.
        """
        if fixed := sorted(settings.keys() - CHANGEABLE):
            raise SettingsError(
                f"a run that has begun keeps its {', '.join(fixed)}; what can be changed is"
                f" {', '.join(sorted(CHANGEABLE))}: start a new run for the rest"
            )
        if settings and not self.settings.adapts:
            raise SettingsError("this run trains no language model: resume it without --set")
        resolved = resolve(dict(settings), self.resolved.explicit()).settings
        return self.settings.model_copy(update={name: getattr(resolved, name) for name in settings})

    def changed(self, settings: Mapping[str, Any]) -> tuple[RunSpec, list[str]]:
        """This spec with changed settings of training, and a warning for each change.

        The bought labels are kept, so that a refit which ran out of memory or diverged loses none;
        later purchases depend on the new model. The caller must hold the run's lock.

        Raises:
            SettingsError: see `with_training`.
        """
        values = self.with_training(settings)
        pairs = {name: (getattr(self.settings, name), getattr(values, name)) for name in settings}
        differ = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if not differ:
            return self, []
        self.folder.change_settings({name: new for name, (_, new) in differ.items()}, "resume")
        origin = {**self.resolved.origin, **dict.fromkeys(differ, "resume")}
        said = [
            f"{name} was {old} until the run was resumed with {new}"
            for name, (old, new) in differ.items()
        ]
        return replace(self, resolved=Resolved(values, origin, self.resolved.preset)), said

    def changed_versions(self) -> list[str]:
        """A warning for each library whose version differs from that at the start of the run."""
        table = self.folder.resolved()
        return [
            f"this run began with {name.removeprefix('version_')} {table[name]} and continues with"
            f" {now}: its numbers may differ from an undisturbed run's"
            for name, now in versions(self.settings.plugins).items()
            if name in table and table[name] != now
        ]


def _began(kept: Classes | None, table: Mapping[str, Any]) -> Classes | None:
    """The classes at the start of the run, of those in its folder."""
    first = table.get("classes_began")
    if kept is None or first is None:
        return kept
    known = slice(int(first))
    return Classes(kept.names[known], kept.descriptions[known], kept.examples[known])


def _terms(table: Mapping[str, Any]) -> Terms | None:
    if "labels_now" not in table:
        return None
    return Terms(int(table["labels_now"]), table.get("money_now"), tuple(table["audits_now"]))


def _beside(folder: RunFolder, source: str) -> str:
    """`source`, or the file of its name in the run's own folder where that was moved."""
    mine = folder.path / Path(source).name
    return str(mine.resolve()) if mine.is_file() and not Path(source).exists() else source


def content(item: Item, answer: int | None = None) -> str:
    """The canonical text by which the ledger recognises an item at resume.

    It includes the `answer` where the labeler reads it from the file, so that a changed answer is
    detected. Only a salted hash of the text is stored.
    """
    known = () if answer is None else (f"\x1d{answer}",)
    return "\x1e".join((item.prompt, *item.candidates, *known))


def versions(plugins: str | None) -> dict[str, str]:
    """The versions that results depend on: Python, stacksl, libraries and the `plugins`."""
    found = {
        "version_python": ".".join(str(part) for part in sys.version_info[:3]),
        "version_stacksl": __version__,
    }
    found |= {f"version_{name}": known for name in LIBRARIES if (known := _installed(name))}
    return found | ({"version_plugins": plugin_versions(plugins)} if plugins else {})


@cache
def _installed(name: str) -> str | None:
    """The version of a library, read once a process; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
