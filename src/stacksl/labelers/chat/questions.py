"""How a model is asked for labels: the requests for an item, and what they may cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Protocol

from stacksl.labelers.chat.prompts import (
    LIMIT,
    Question,
    Shot,
    Way,
    body_of,
    encoded,
    order_of,
    ways,
)

OVERHEAD = 100  # tokens that a server may add to a request


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of a million tokens that are read and written: micro-units of money a token."""

    read: Decimal
    written: Decimal

    def cost(self, read: int, written: int) -> int:
        """What so many tokens cost, in micro-units, rounded up."""
        exact = self.read * read + self.written * written
        return int(exact.to_integral_value(rounding=ROUND_CEILING))


class Nearby(Protocol):
    """What a prompt shows besides the item, by the item's id."""

    def shots(self, item: str) -> Sequence[Shot]:
        """Labeled examples."""

    def classes(self, item: str) -> Sequence[int] | None:
        """The nearest candidates by their indices in the item; None where no order is known."""


@dataclass(frozen=True, slots=True)
class Questions:
    """How a model is asked: its name, the template, the seed of the order, and its rates.

    An answer has at most `limit` tokens, or what the options need.
    """

    model: str
    template: str
    seed: int
    rates: Rates
    limit: int | None = None

    def of(
        self,
        prompt: str,
        candidates: Sequence[str],
        shots: Sequence[Shot] = (),
        nearest: Iterable[int] | None = None,
    ) -> dict[Way, Question]:
        """The requests that ask for a label, the best way first; the `nearest` are for texts."""
        order, found = order_of(self.seed, prompt, candidates), {}
        names = tuple(shot.item for shot in shots)
        for way in ways(candidates):
            if way == "text" and nearest is not None:
                listed = frozenset(nearest)
                order = tuple(place for place in order if place in listed)
            shown = [candidates[place] for place in order]
            body = body_of(self.model, self.template, prompt, shown, way, shots, self.limit)
            found[way] = Question(way, order, names, body)
        return found

    def most(self, body: dict[str, Any]) -> int:
        """The most that a request costs: a token has one byte at least."""
        return self.rates.cost(len(encoded(body)) + OVERHEAD, body[LIMIT])

    def dearest(self, prompt: str, candidates: Sequence[str], shots: Sequence[Shot] = ()) -> int:
        """The most that one call about an item costs, whichever way it is asked."""
        bodies = (
            body_of(self.model, self.template, prompt, candidates, way, shots, self.limit)
            for way in ways(candidates)
        )
        return max(map(self.most, bodies))
