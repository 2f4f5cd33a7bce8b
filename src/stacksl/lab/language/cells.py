"""A cell: one adaptation run, or one measurement of the base model, and its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any

from stacksl.lab.study.store import Found


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
        permuted: the options of every item stand in an order drawn by the seed.
        shots: the labelled examples in the prompt of a base row; None for a run.
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
        mean_loss, max_loss: of the labelled terms of the last refit as they were trained on, that
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
    def of(cls, found: Found) -> Result:
        """The result that `found` is the kept form of."""
        if isinstance(found, str):
            return cls(reason=found)
        kept: dict[str, Any] = {name: found[name] for name in found if name in _FIELDS}
        whole = {name: int(kept[name] or 0) for name in ("n", "asked", "rounds")}
        return cls(**{**kept, **whole, "first": bool(kept["first"])})

    def found(self) -> Found:
        """Its numbers, as a store keeps them, or its reason."""
        if self.reason is not None:
            return self.reason
        return {name: value for name, value in asdict(self).items() if name != "reason"}


_FIELDS = {each.name for each in fields(Result)}
