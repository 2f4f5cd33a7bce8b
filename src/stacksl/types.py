"""The types that all parts share: items, labels and decisions.

Indices (`choice`, `label`, `presented`) always refer to the item's full list of candidates, so an
answer given after a restart, or outside the presented candidates, keeps its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

T = TypeVar("T")

Status = Literal["wanted", "reserved", "skipped", "refused"]


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt with its candidate answers (the paper's z_t with all it could choose from).

    It never holds its answer. Where the candidates are a fixed set of classes, all items share
    one tuple object.
    """

    id: str
    prompt: str
    candidates: tuple[str, ...]

    @property
    def content(self) -> tuple[str, tuple[str, ...]]:
        """All of it but its id, which duplicates have in common."""
        return self.prompt, self.candidates


@dataclass(frozen=True, slots=True)
class Label:
    """The gold answer: an index into the item's full list of candidates."""

    index: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The record of one round: what was chosen, and the numbers that decided about asking.

    Attributes:
        round: 1-based number of the round.
        item: the id of the item seen.
        presented: the candidates C_t that the learner saw.
        choice: the action played, x̂_t.
        statistic, threshold: the gate asked if statistic > threshold (score units). Under
            `coverage` the item's gain and the best gain left out of its batch; under `rank` the
            largest statistic left out, or the smallest of a batch that was spread below it; −∞
            where something else decided.
        reason: `gate`; `must` (as many labels left as rounds); `spent` (no label left); in a pool
            `coverage` (its label tells most about uncertain items), `rank` (among the largest
            statistics), `doubt` (its label in a column is the most doubtful), `order` (the first
            items) or `drawn` (at random).
        score: θᵀφ of the choice (score units); its probability under a head that ranks a pool.
        probability: the policy's probability of the choice, within `presented`.
        state: the gate's state after this round.
        skip_state: what the gate's state would be had the round been skipped; a refused
            decision adopts it.
        status: `wanted` or `skipped` when decided; a wanted one is `reserved` or `refused` by the
            ledger.
    """

    round: int
    item: str
    presented: tuple[int, ...]
    choice: int
    statistic: float
    threshold: float
    reason: str
    score: float
    probability: float
    state: tuple[float, ...]
    skip_state: tuple[float, ...]
    status: Status

    @property
    def asked(self) -> bool:
        """Whether a label of this round's item was reserved."""
        return self.status == "reserved"

    def reserved(self) -> Decision:
        """This decision with its label reserved."""
        return replace(self, status="reserved")

    def refused(self) -> Decision:
        """This decision with its label refused: the gate goes on as if it had skipped."""
        return replace(self, status="refused", state=self.skip_state)


def copied(kind: type[T], source: object, /, **values: Any) -> T:
    """A dataclass of `kind` with these `values`, and for its other fields those of `source`.

    Fields that `source` does not have keep their defaults.
    """
    names = (field.name for field in fields(kind) if field.name not in values)  # type: ignore[arg-type]
    return kind(**{n: getattr(source, n) for n in names if hasattr(source, n)}, **values)
