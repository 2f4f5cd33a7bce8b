"""The audit: how good the final model is on new items, from answers that are never trained on.

Its items are drawn uniformly from the pool before anything is bought, are bought inside the budget,
and nothing is ever selected or fitted on them. `audit_size` gives their number, `draw` the items,
`expected_width` the width of the interval to expect, and `judge_audit` the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl.errors import SettingsError
from stacksl.ledger.purchases import Word
from stacksl.models.metrics import Powers, Z, moments, rows_of, wilson, z_of_look
from stacksl.models.second_look import UNCLEAR
from stacksl.report.quality import SecondLook
from stacksl.report.wording import plural

SMALLEST = 80  # labels of a budget below which an audit would cost more than it is worth
RESERVED = "labels are kept for an audit"
Estimate = tuple[float, float, float]  # with the ends of its 95% interval
_ROWS, _EXPECTED = "audit.rows", "audit.expected"  # names of saved arrays
NO_ANSWER = -1  # the gold index of none of these: no candidate matches it


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of a run: the rows of its items in the order drawn, and the answers by item id.

    An item without an answer is unanswered; `now` has the corrections made since the audit was
    shown, `revised` how many answers these changed. `second_left` is what a second look found of
    the rows that stand for those left. `number` counts the run's audits from 1; for
    `passed_over`, `second` and `waits` see `Audited`.
    """

    rows: tuple[int, ...]
    answers: Mapping[str, Word]
    passed_over: float = 0.0
    number: int = 1
    now: Mapping[str, Word] = field(default_factory=dict)
    revised: int = 0
    second: SecondLook | None = None
    second_left: SecondLook | None = None
    waits: bool = False

    def labels(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        """(row, candidate) of the items answered with a candidate; `ids` are those of all rows."""
        latest_answers = self.now or self.answers
        pairs = [(row, latest_answers.get(ids[row])) for row in self.rows]
        return [(row, word) for row, word in pairs if isinstance(word, int)]


def default_size(budget: int) -> int:
    """The default number of audit items: min(max(B/10, 50), 200, B/4), rounded down.

    It is 0 under 80 labels.

    >>> [default_size(labels) for labels in (79, 80, 200, 500, 800, 1000, 5000)]
    [0, 20, 50, 50, 80, 100, 200]
    """
    return 0 if budget < SMALLEST else min(max(budget // 10, 50), 200, budget // 4)


def audit_size(
    budget: int, *, asked_for: int | None, tested: bool, items: int, at_least: int = 1
) -> int:
    """The number of labels of the budget kept for the audit.

    Args:
        budget: B, the labels of the whole run, audit included.
        asked_for: the number that the user set (0: no audit); None for the default.
        tested: whether there is a test file; then there is no audit by default.
        items: those that an audit may be drawn from.
        at_least: labels that it must leave.

    Raises:
        SettingsError: no label would be left to train on, or there are fewer items.
    """
    if asked_for is None:
        return 0 if tested else min(default_size(budget), max(0, items - 1))
    if asked_for > items:
        raise SettingsError(
            f"the audit of {asked_for} is larger than the {plural(items, 'item')} it could be drawn"
            f" from: give at most {items}"
        )
    if asked_for > budget - at_least:
        condition = "leave labels to train on" if at_least else "be within the budget"
        raise SettingsError(
            f"the audit must {condition}, but {asked_for} of a budget of {budget} were"
            f" asked for: give at most {budget - at_least}, or a larger budget"
        )
    return asked_for


def draw(
    items: int, size: int, seed: int, exclude: Set[int] = frozenset(), epoch: int = 0
) -> list[int]:
    """The rows of an audit: uniform without replacement, in the order drawn.

    Args:
        items: their number in the pool.
        seed: the run's; the same arguments give the same rows.
        exclude: rows that are not in the pool: owned labels, and for a later audit all bought
            rows. The rows left by a selection are no longer a uniform sample of the source;
            `Audited.passed_over` measures that.
        epoch: 0 for the audit before the first purchase, 1 and on for later ones.

    Raises:
        SettingsError: fewer rows are left than wanted.
    """
    pool = np.setdiff1d(np.arange(items), np.fromiter(exclude, dtype=np.int64, count=len(exclude)))
    if size > len(pool):
        raise SettingsError(
            f"the audit needs {size} items that were not bought, got {len(pool)}: ask for"
            f" at most {len(pool)}, or add items"
        )
    positions = generator(seed, "audit", epoch).choice(len(pool), size, replace=False)
    return [int(row) for row in pool[positions]]


def expected_width(
    size: int, budget: int, measured: str = "accuracy on new items", reserved: str = ""
) -> str:
    """The sentence before a run: the audit's share of the budget, and the precision of `measured`.

    >>> expected_width(80, 800).split(":")[0]
    '80 of the 800 labels are kept for an audit'
    """
    if size:
        ends = (wilson(round(share * size), size) for share in (0.5, 0.9))
        half = [50 * (high - low) for low, high in ends]
        kept = (reserved or RESERVED).replace(" are ", " is " if size == 1 else " are ")
        return (
            f"{size:,} of the {budget:,} {kept}: it will measure the {measured}"
            f" to within {half[0]:.0f} points where it is near 50%, and within"
            f" {half[1]:.0f} where it is near 90% (half of a 95% interval; more where people err)"
        )
    reason = f" (under {SMALLEST} labels there is no audit)" if budget < SMALLEST else ""
    return (
        f"no labels are kept for an audit{reason}: the accuracy on new items will not be known;"
        " --audit N or --test FILE would measure it"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Audited:
    """The result of an audit of `n` items; those without a clear answer are `unknown`.

    The interval is for new items from the pool's source, not for the pool's own items, so it is
    Wilson's without a finite-population correction.

    Attributes:
        none_of_these: items whose answer is none of the candidates; they count as wrong.
        unknown: items answered as ambiguous or broken, or not at all.
        items: (n − unknown,) those with an answer; gold: their candidates, −1 for none of these.
        predicted: (n − unknown,) the model's choices for them.
        confidence: (n − unknown,) its probabilities of these choices.
        passed_over: the share of the source's items that the audit could not be drawn from, since
            they had been bought; 0 for an audit drawn before the first purchase.
        measures: the `accuracy`, or the `agreement with the annotators` (or one `annotator`).
        powered: the accuracy with its interval by the model's own probabilities of a number of
            reference rows, where there are some.
        second: what a second look found, once it is done: an `accuracy` is estimated from it.
        waits: whether a second look waits for answers.
        look: the number of the look at which it is judged; 0 where it is judged at the end alone.
    """

    n: int
    correct: int
    none_of_these: int
    unknown: int
    items: tuple[str, ...]
    gold: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: Array
    passed_over: float = 0.0
    powered: tuple[float, float, float] | None = None
    reference: int = 0
    measures: str = "accuracy"
    second: SecondLook | None = None
    waits: bool = False
    look: int = 0

    @property
    def answered(self) -> int:
        """Items with an answer, none of these among them."""
        return self.n - self.unknown

    @property
    def accuracy(self) -> float | None:
        """Correct / known, or prediction-powered; None where nothing is known."""
        if self.second is not None and self.measures == "accuracy":
            return self.second.accuracy[0]
        if self.powered is not None and self.answered:
            return self.powered[0]
        return self.correct / self.answered if self.answered else None

    @property
    def worst(self) -> float:
        """The accuracy if every unknown item were answered wrongly."""
        return self.correct / self.n if self.n else 0.0

    @property
    def best(self) -> float:
        """The accuracy if every unknown item were answered correctly."""
        return (self.correct + self.unknown) / self.n if self.n else 1.0

    @property
    def interval(self) -> tuple[float, float]:
        """95%, from the worst case's low end to the best's high; at a look a lower bound alone."""
        if self.second is not None and self.measures == "accuracy":
            low, high = self.second.accuracy[1:]
        elif self.powered is not None:
            low, high = self.powered[1:]
        else:
            low, _ = wilson(self.correct, self.n, z_of_look(self.look))
            _, high = wilson(self.correct + self.unknown, self.n)
        return low, 1.0 if self.look else high


@dataclass(slots=True)
class WouldBuy:
    """The `rows` of an audit that the run would have bought if it had not audited them.

    An audit is a random part of all items, and a batch the items that are worth most. So the run
    would have bought the same share of both, and the other audited items are like those that it
    left. `expected` is how many it would have bought until now.

    >>> would_buy = WouldBuy()
    >>> would_buy.note([3, 5, 8, 9], np.array([0.2, 0.9, 0.4, 0.1]), 0.25)
    >>> would_buy.rows
    [5]
    """

    rows: list[int] = field(default_factory=list)
    expected: float = 0.0

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> WouldBuy:
        """What `state` returned, among other `arrays`."""
        return cls(arrays[_ROWS].tolist(), float(arrays[_EXPECTED]))

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to be saved."""
        return {_ROWS: np.array(self.rows, np.int64), _EXPECTED: np.array(self.expected)}

    def note(self, audited: Sequence[int], statistics: Array, share: float) -> None:
        """Note those of the `audited` rows that a batch of this `share` of all items would have.

        The `statistics` say what the batch thinks of them, (len(audited),), and the largest are
        taken. Those noted before take no part.
        """
        left = np.flatnonzero(~np.isin(audited, self.rows))
        self.expected += share * len(left)
        count = max(0, round(self.expected) - len(self.rows))
        best = left[np.argsort(-statistics[left], kind="stable")[:count]]
        self.rows += [audited[position] for position in best]

    def others(self, audited: Sequence[int]) -> list[int]:
        """The `audited` rows that are like those which the run leaves; none where all are."""
        noted = {*self.rows}
        rows = [row for row in audited if row not in noted]
        return rows if len(rows) < len(audited) else []


def powered(
    right: Array, clear: NDArray[np.bool_], powers: Powers, z: float = Z
) -> tuple[float, float, float]:
    """A prediction-powered accuracy with its interval, by default one of 95%.

    It is of the `clear` rows; `right` is 0 of the others, which the low end counts as wrong and the
    high end as right.
    """
    value, _ = moments(right[clear], Powers(powers.sure[clear], powers.reference))
    ends = (moments(r, powers) for r in (right, np.maximum(right, ~clear)))
    (low, low_n), (high, high_n) = ((share, rows_of(share, var, len(right))) for share, var in ends)
    return value, wilson(low * low_n, low_n, z)[0], wilson(high * high_n, high_n, z)[1]


def right_in_table(
    people: int, model: int, accuracy: Estimate, errors: Estimate = (0.0, 0.0, 0.0), n: int = 0
) -> Estimate:
    """The share of right labels in a table, of which people and the model gave so many.

    `errors` is the share of people's that is wrong. The distances of the ends are added in squares
    (MOVER; Zou and Donner 2008); those of the model's `accuracy` grow by √(1 + n/M), since its M
    labels are of other rows than the `n` audited ones.

    >>> right_in_table(0, 9, (0.8, 0.7, 0.9)), right_in_table(5, 5, (0.8, 0.7, 0.9))
    ((0.8, 0.7, 0.9), (0.9, 0.85, 0.95))
    """
    people_share, widening = people / (people + model), math.sqrt(1 + n / max(1, model))
    value, low, high = ((1 - people_share) * share for share in accuracy)
    wrong, low_wrong, high_wrong = (people_share * rate for rate in errors)
    share = people_share - wrong + value
    below = math.hypot(widening * (value - low), high_wrong - wrong)
    above = math.hypot(widening * (high - value), wrong - low_wrong)
    return share, max(0.0, share - below), min(1.0, share + above)


def stand_for_left(audited: Array, remaining: Array) -> NDArray[np.bool_]:
    """Which `audited` labels of a column, (n,), stand for the labels `remaining`, (m,).

    Both are given by their probabilities. People were asked about doubtful labels, so an audited
    one that is less probable than 499 in 500 of those left stands for none of them.

    >>> stand_for_left(np.array([0.2, 0.6, 0.9]), np.array([0.5, 0.7, 0.8]))
    array([False,  True,  True])
    """
    return audited >= np.quantile(remaining, 0.002)


def judge_audit(
    policies: Mapping[str, Array],
    answers: Mapping[str, Word],
    reference: Array | None = None,
    **fields: Any,
) -> Audited:
    """The result of an audit, from the model's (K,) probabilities and the answers by item id.

    An item without an answer is unanswered. `reference` has the model's probabilities of its own
    answers to the reference rows; for `fields` see `Audited`.
    """
    words = [answers.get(item) for item in policies]
    clear = np.array([word not in (*UNCLEAR, None) for word in words], dtype=np.bool_)
    said = [word if isinstance(word, int) else NO_ANSWER for word in words]
    choices = [int(np.argmax(policy)) for policy in policies.values()]
    gold, predicted = (np.array(rows, dtype=np.int64)[clear] for rows in (said, choices))
    confidence = np.array([float(np.max(policy)) for policy in policies.values()])
    if reference is not None and len(policies):
        hits = np.zeros(len(policies))
        hits[clear] = gold == predicted
        z = z_of_look(fields.get("look", 0))
        fields |= {"powered": powered(hits, clear, Powers(confidence, reference), z)}
        fields |= {"reference": len(reference)}
    return Audited(
        n=len(policies),
        correct=int((gold == predicted).sum()),
        none_of_these=words.count("none"),
        unknown=int((~clear).sum()),
        items=tuple(compress(policies, clear)),
        gold=gold,
        predicted=predicted,
        confidence=confidence[clear],
        **fields,
    )
