"""Settings, the rows that a study asks for, and cells, the measurements behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any

from stacksl.runs.settings.fields import GROUPS
from stacksl.runs.settings.resolve import RENAMED, known_settings, named
from stacksl_lab.baselines.registry import BASELINES
from stacksl_lab.study.store import Measurement
from stacksl_lab.study.study import Line

PLUGIN = {"plugins": "stacksl_lab.baselines.plugin"}


@dataclass(frozen=True, slots=True)
class Setting(Line):
    """One row of a table, as it is asked for.

    Attributes:
        settings: those of its run (`stacksl.Settings`), before k is cut to the options there are
            and before a choice on held-out labels.
        budget_fraction: β; 0 for a base row.
        items: N, the items of the stream at most; None for all there are.
        task: the set of questions; None for the first.
        shots: labeled examples in the prompt of a base row; None where there is a run.
        permuted: whether the order of options is drawn again (a control).
        chosen: whether kl_weight and k are those chosen on held-out bought labels.
        twin: the setting whose result this row takes where that bought what `first` buys.
    """

    budget_fraction: float = 1.0
    items: int | None = None
    task: str | None = None
    shots: int | None = None
    permuted: bool = False
    chosen: bool = False
    twin: Setting | None = None

    @property
    def repeats(self) -> bool:
        """Whether another seed could give another number: not for the base model as it is."""
        return self.shots is None or self.permuted


@dataclass(frozen=True, slots=True)
class Cell:
    """What one measurement is of; two cells of the same key are the same measurement.

    Attributes:
        task: the name of the set of questions (`tasks.Task`).
        seed: of the stream's draw and order, the gate's uniforms and the adapter.
        settings: settings of the run, explicit and flat (`stacksl.Settings`).
        budget_fraction: labels / items in the stream, rounded down; 0 for a base row.
        items: how many items the stream has at most; None for all.
        held: measured on labels of its own budget that were kept out of training, never on the
            test set: how kl_weight and k are chosen.
        permuted: the options of every item are in an order drawn by the seed.
        shots: the labeled examples in the prompt of a base row; None for a run.
    """

    task: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_fraction: float = 1.0
    items: int | None = None
    held: bool = False
    permuted: bool = False
    shots: int | None = None

    def key(self, *with_: str) -> str:
        """A hash of everything above and of `with_` (the model's and the data's fingerprints)."""
        text = json.dumps([asdict(self), *with_], sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=12).hexdigest()


def name_in_study(name: str) -> str:
    """What a setting of a run is called in a study and in its results."""
    former = {now: old for old, now in RENAMED.items()}
    return former.get(name) or name.rpartition(".")[2]


def names_in_run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a study by their names in a run, which takes a gate of ours as a plugin.

    The follower of a study is what `k` says in a run.
    """
    known = {*known_settings(), *GROUPS}
    settings = {name: value for name, value in settings.items() if name != "follower"}
    names = {name if name in known else named(name)[0]: value for name, value in settings.items()}
    return names | PLUGIN if settings.get("gate") in BASELINES else names


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of a cell.

    Attributes:
        accuracy, macro_f1: on the `n` items that it is measured on; F1 is averaged over the gold
            classes, which in multiple choice are the positions of the options. None where it
            could not be measured.
        asked: labels bought.
        rounds: items in the stream.
        seconds: of the run, wall clock.
        first: the labels bought were those of the first rounds, as the gate `first` buys them.
        mean_loss, max_loss: of the labeled terms of the last refit as they were trained on, that
            is after clipping (nats); None where the run does not say.
        clipped: the share of these terms that was clipped.
        reason: why there is no number, one sentence; None where there is one.
    """

    accuracy: float | None = None
    macro_f1: float | None = None
    n: int = 0
    asked: int = 0
    rounds: int = 0
    seconds: float = 0.0
    first: bool = False
    mean_loss: float | None = None
    max_loss: float | None = None
    clipped: float | None = None
    reason: str | None = None

    @classmethod
    def of(cls, stored: Measurement) -> Result:
        """The result of which `stored` is the form in a store."""
        if isinstance(stored, str):
            return cls(reason=stored)
        values: dict[str, Any] = {name: stored[name] for name in stored if name in _FIELDS}
        counts = {name: int(values[name] or 0) for name in ("n", "asked", "rounds")}
        return cls(**{**values, **counts, "first": bool(values["first"])})

    def measurement(self) -> Measurement:
        """Its numbers, as a store keeps them, or its reason."""
        if self.reason is not None:
            return self.reason
        return {name: value for name, value in asdict(self).items() if name != "reason"}


_FIELDS = {entry.name for entry in fields(Result)}
