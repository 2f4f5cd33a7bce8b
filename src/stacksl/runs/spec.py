"""The specification of a run: all that is known before its first round.

The run's database has every setting with its origin, the place of the data, and the versions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from stacksl.data import Dataset
from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.settings import Setting
from stacksl.runs.items.sources import Sources
from stacksl.runs.items.stored import read_sources, stamps_of
from stacksl.runs.settings.budget import Budget
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import (
    Resolved,
    known_settings,
    load_plugins,
    plugin_versions,
    validated,
)
from stacksl.runs.storage.folder import RunFolder
from stacksl.version import __version__

LIBRARIES = (
    "numpy", "scipy", "scikit-learn", "onnxruntime", "torch", "sentence-transformers",
    "transformers", "peft", "accelerate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: settings with their origin, items, budget and folder.

    `data` and `test_source` say where the items are from: a path, `sample`, or nothing for items
    made in Python. `budget` is that at the start of the run, and `terms` the present one. `stamps`
    are those of the files of another run whose items are taken. `evaluates` is the way from this
    run's folder to that of the run whose model's labels it audits, in a new one.
    """

    folder: RunFolder
    resolved: Resolved
    sources: Sources
    budget: Budget
    terms: Budget
    data: str
    test_source: str | None
    stamps: Mapping[str, list[Any]] | None = None
    evaluates: str | None = None

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

    @property
    def files(self) -> list[str]:
        """Where the items of each part are from; nothing for items made in Python."""
        owned = [] if self.settings.owned is None else [self.settings.owned]
        return [self.data, *owned, *(part.path for part in self.sources.added)]

    def table(self) -> dict[str, Setting]:
        """All that the run is made with: settings, data, budget, columns, versions."""
        facts: dict[str, Any] = {"data": self.data or None, "test": self.test_source}
        facts |= {"data_name": self.dataset.name, "data_format": self.dataset.format}
        facts |= {"numeric_ids": self.dataset.numeric_ids}
        facts["test_name"] = None if self.test is None else self.test.name
        files = (self.data, self.test_source, self.settings.owned)
        paths = [file for file in files if file]
        stamps = self.stamps
        facts["files"] = (
            stamps_of(paths) if stamps is None else {k: stamps[k] for k in paths if k in stamps}
        )
        facts |= {"preset": self.resolved.preset, "labels": self.budget.labels}
        facts |= {"price_micro": self.budget.price, "money_micro": self.budget.money}
        facts["audit_labels"] = self.budget.audits[0]
        facts |= {"further_labels": self.budget.further or None, "evaluates": self.evaluates}
        facts["budget_now"] = self.terms.as_setting
        facts["columns"] = [list(pair) for pair in self.dataset.columns.items()]  # in their order
        facts |= versions(self.settings.plugins)
        origin = self.resolved.origin
        values = self.settings.flat().items()
        settings = {name: Setting(value, origin.get(name)) for name, value in values}
        settings |= {name: Setting(value) for name, value in facts.items()}
        return {name: setting for name, setting in settings.items() if setting.value is not None}

    @classmethod
    def open(cls, folder: RunFolder) -> RunSpec:
        """The spec of an existing run.

        Raises:
            RunError: if the settings cannot be read.
            SettingsError: a plugin of the run cannot be imported.
            LedgerError: the database cannot be read.
        """
        stored = folder.settings()
        table = {name: setting.value for name, setting in stored.items()}
        load_plugins(table.get("plugins"))
        names, mistakes = known_settings(), list[str]()
        settings = validated({name: table[name] for name in names if name in table}, mistakes)
        if mistakes:  # such as of a plugin's gate that has changed since
            raise RunError(
                f"the settings of the run {folder.path} are not of this version of stacksl"
                f" ({__version__}): {'; '.join(mistakes)}"
            )
        origins = {name: setting.origin for name, setting in stored.items()}
        origin = {name: origins.get(name) or "default" for name in settings.flat()}
        labels, money, audits, further_labels = table["budget_now"]
        price, first_audit = int(table["price_micro"]), (int(table["audit_labels"]),)
        start_terms = int(table["labels"]), table.get("money_micro"), price, first_audit
        return cls(
            folder,
            Resolved(settings, origin, table.get("preset")),
            read_sources(folder, settings, table),
            Budget(*start_terms, int(table.get("further_labels", 0))),
            Budget(labels, money, price, tuple(audits), further_labels),
            str(table.get("data", "")),
            table.get("test"),
        )

    def note(self, facts: Mapping[str, Any], renewed: Sequence[str] = ()) -> None:
        """Add `facts` on how the run computes to its settings; known ones change if `renewed`."""
        table = self.folder.resolved()
        changes = {
            name: Setting(value)
            for name, value in facts.items()
            if name not in table or (name in renewed and table[name] != value)
        }
        if changes:
            with Ledger.open(self.folder.database) as ledger:
                ledger.change_settings(changes)

    def changed(self, facts: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
        """A warning for each of the `facts` under `names` that is another since the run began."""
        table = self.folder.resolved()
        return [
            f"this run began with {names[name]} {table[name]} and continues with {value}: its"
            " numbers may differ from an uninterrupted run's"
            for name, value in facts.items()
            if name in names and table.get(name, value) != value
        ]


def versions(plugins: str | None) -> dict[str, str]:
    """The versions that results depend on: Python, stacksl, libraries and the `plugins`."""
    table = {
        "version_python": ".".join(str(part) for part in sys.version_info[:3]),
        "version_stacksl": __version__,
    }
    table |= {f"version_{name}": number for name in LIBRARIES if (number := _installed(name))}
    return table | ({"version_plugins": plugin_versions(plugins)} if plugins else {})


@cache
def _installed(name: str) -> str | None:
    """The version of a library, read once a process; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
