"""The promise that so many rows of a delivered table are right, and the audit that it needs.

People label some of the N rows and the final model the M others. The model is fixed, n of its rows
are drawn at random and asked of people: `wrong` of them are wrong. `most_wrong` is the largest
number of wrong rows among the M that shows so few with a probability above the level; people's own
errors are bounded in the same way from rows that are asked of a second person. A promise stands
where both together are at most (1 − right)·N.

At most three models are looked at, each by newly drawn rows, at `MODEL`/3 and `PEOPLE`/3: a promise
is broken in at most 5% of runs. What decides when to look reads no audit, so that it is not part
of this. Source: exact hypergeometric limits, Buonaccorsi (1987); Vishwakarma et al., Promises and
pitfalls of threshold-based auto-labeling (2023); Angelopoulos et al., Learn then test (2021).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stacksl.core.blocks import Array
from stacksl.report.wording import money

LOOKS = 3  # models that are looked at, at most
MODEL, PEOPLE = 0.04, 0.01  # chance that one of all looks errs, of the model's part and of people's
WORTH = 0.8
CHANCE = 0.8  # that an audit of the size chosen is good enough
FEWEST = 30  # rows of an audit
SAMPLES = (30, 60, 100, 150, 200, 300, 400, 600, 800, 1_200)  # rows of people that are asked again
GUESSED, WEIGHT = 0.03, 33  # people's rate of errors before it is known, and in how many answers
BEFORE, AHEAD = 3, (1, 2, 3, 4, 6, 8, 12, 16, 20)  # stages that a forecast is from, and is for
SUREST = 0.985  # that an answer of a model is taken to be, if it learned labels of people who err
RANGE = 1.0, 3.0  # of the estimate of a first look: 20 and 75 of 78 promises took no more
PULL = 0.5  # of the slope of a calibration toward 1, in squared units of labels' log-likelihood
SPREAD = 0.5  # of a guess of the wrong rows, as a standard deviation of its logarithm


def most_wrong(wrong: int, n: int, rows: int, level: float) -> int:
    """The largest number of wrong rows among `rows` that explains so few of n drawn of them.

    At most `wrong` of the n are wrong with a probability above the `level` then.

    >>> most_wrong(0, 142, 1_000_000, MODEL / LOOKS) < 30_000
    True
    """
    possible = range(wrong, rows - (n - wrong) + 1)
    index = bisect_left(possible, -level, key=lambda bad: -at_most(wrong, rows, bad, n))
    return possible[max(0, index - 1)]


def at_most(wrong: int, rows: int, bad: int, n: int) -> float:
    """The probability that at most `wrong` of n rows drawn are of the `bad` ones among `rows`.

    scipy.stats has this distribution, but its import takes as long as what a run computes with it.
    """
    from scipy.special import gammaln

    def choose(total: Any, chosen: Any) -> Any:
        return gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)

    drawn = np.arange(max(0, n - (rows - bad)), min(wrong, bad, n) + 1)
    logs = choose(bad, drawn) + choose(rows - bad, n - drawn) - choose(rows, n)
    return float(np.exp(logs).sum())


def audit_size(expected: float, rows: int, allowed: int) -> int | None:
    """The fewest rows of an audit that is good enough in `CHANCE` of draws; None if there are none.

    There are none where more than `WORTH` of the wrong rows that are allowed are expected: such an
    audit would take most rows.

    Args:
        expected: of the `rows` of the model, how many are wrong.
        rows: M; those drawn are people's afterwards, so that no wrong row is left among them.
        allowed: how many wrong rows may be left.
    """
    bad = round(expected)
    return None if bad > WORTH * allowed else _good_size(bad, rows, allowed)


@lru_cache(maxsize=10_000)
def _good_size(bad: int, rows: int, allowed: int) -> int | None:
    from scipy.stats import hypergeom

    def good(n: int) -> bool:
        wrong = np.arange(min(n, bad) + 1)
        bad_now = np.minimum(rows, allowed + wrong + 1)
        passing = wrong[hypergeom.cdf(wrong, rows, bad_now, n) <= MODEL / LOOKS]
        return len(passing) > 0 and hypergeom.cdf(passing[-1], rows, bad, n) >= CHANCE

    sizes = range(min(FEWEST, rows), rows + 1)
    index = bisect_left(sizes, True, key=good)
    return sizes[index] if index < len(sizes) else None


@lru_cache
def first_look(share: float, rows: int, *, several: bool) -> int | None:
    """The labels that the first look at a table of so many rows takes, those before it included.

    None where no look is likely to show the `share`. It is taken to come after three refits, when
    the model makes half of the errors that are allowed. Of `several` people each is taken to err as
    often as is guessed.
    """
    rows = min(rows, 10_000)  # a look at more rows is hardly larger, and takes long to compute
    people, allowed = min(rows, 3 * step_of(rows)), allowed_wrong(share, rows)
    model, errors = rows - people, GUESSED if several else None
    look = planned(allowed / 2 * model / rows, people, model, allowed, errors) if model else None
    return None if look is None else people + look.labels


def expected_look(
    share: float, rows: int, labels: int, price: int | None = None, answers: int = 1
) -> str:
    """The sentence before a run: how large an audit of the model's part shows the `share`.

    The model's part is taken to be the `rows` but those of three refits, and but half of the
    `labels` that can be paid if these are fewer, at a `price` in micro-units, with no error, a
    quarter and half of those allowed. Each audited row takes so many `answers`.
    """
    model = max(1, rows - min(labels // 2, 3 * step_of(rows)))
    max_audit = max(1, labels // 2 // answers)
    allowed = allowed_wrong(share, model)
    errors = sorted({0, allowed // 4, allowed // 2})
    audits = [(wrong, audit_size(wrong, model, allowed)) for wrong in errors]

    def so_many(n: int) -> str:
        return f"{n:,}" if price is None else f"{n:,} rows for {money(n * price * answers)}"

    intro = (
        f"each look has an audit, to show that {100 * share:.4g}% of the rows that people do not"
        " label"
    )
    if (wrong_left := left_wrong(0, min(max_audit, model), model, MODEL)) > allowed:
        provable_share = 1 - wrong_left / model
        most_shown = f"{100 * provable_share:.1f}% at most, even if it finds no error"
        return f"{intro} are right: an audit for half of this budget can show {most_shown}"
    sizes = [
        f"{so_many(n)} if {f'{wrong:,}' if wrong else 'none'} of the {model:,}"
        f" {'are' if wrong > 1 else 'is'} wrong"
        for wrong, n in audits
        if n
    ]
    twice = "; each audited row takes two answers, and rows of people are asked again, too"
    return (
        f"{intro} ({model:,} here) are right: that alone takes {', '.join(sizes)} (in 4 of 5 cases)"
        + (twice if answers > 1 else "")
    )


def left_wrong(wrong: int, n: int, rows: int, level: float) -> int:
    """How many of the rows that were not drawn are wrong at most; `level` is of all looks."""
    return most_wrong(wrong, n, rows, level / LOOKS) - wrong


def shows(wrong: int, n: int, rows: int, allowed: int, level: float) -> bool:
    """Whether `most_wrong` leaves `allowed` wrong rows at most among those that were not drawn."""
    bad = allowed + wrong + 1
    return bad > rows - n + wrong or at_most(wrong, rows, bad, n) <= level


class Doubled(NamedTuple):
    """Answers of people whose row a second person answered, too: how many are wrong, of all."""

    wrong: float = 0.0
    answers: float = 0.0

    @property
    def rate(self) -> float:
        """People's rate of errors, with those that are guessed."""
        return (self.wrong + GUESSED * WEIGHT) / (self.answers + WEIGHT)


def calibrated_wrong(
    confidence: Array,
    right: Array,
    weight: Array,
    remaining: Array,
    errors: float = 0.0,
    guess: int | None = None,
) -> float:
    """How many of the model's rows are wrong, from held-out labels.

    P(right) = (1 − ε)·σ(a + b·logit(sure)) is fitted to labels of rows that were bought, a share ε
    of which are wrong themselves. A model that learned such labels is at most 1 − ε sure of one:
    what it says is sure/(1 − ε). ε is not fitted, since it would take the model's errors for
    people's: on titles of questions it was .11 where no answer was wrong.

    If nearly all labels that people were asked about are wrong, as the most doubtful ones of a
    column are, these say little about the others. Then the `guess` decides, and later the labels.

    Args:
        confidence: the probability of the model's answer to held-out rows, (n,).
        right: whether it was their label.
        weight: how many rows each represents.
        remaining: the probability of the model's answer to its own rows, (M,), or of k models,
            (k, M), the mean of which is returned.
        errors: ε; 0 where the answers count as the truth.
        guess: how many of the M are wrong, by something else than the labels bought.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, logit

    surest = SUREST if errors else 1 - 1e-4

    def margins(values: Array) -> Array:
        return np.asarray(logit(np.clip(values / (1 - errors), 1e-4, surest)))

    share, margin = weight * len(weight) / weight.sum(), margins(confidence)
    remaining_margins = margins(remaining)

    def wrong(a: float, b: float) -> float:
        return float((1 - expit(a + b * remaining_margins)).sum(axis=-1).mean())

    def loss(parameters: Array) -> float:
        a, b = parameters
        likely = np.clip((1 - errors) * expit(a + b * margin), 1e-9, 1 - 1e-9)
        fit = share @ (right * np.log(likely) + (1 - right) * np.log(1 - likely))
        # three more on both sides, since none has no logarithm, and a small guess says little:
        # from a guess of none 2 wrong rows are one standard deviation off, and 5 are two
        off = 0.0 if guess is None else np.log((wrong(a, b) + 3) / (guess + 3)) / SPREAD
        return float(-fit + PULL * (b - 1) ** 2 + a * a / 50 + off * off / 2)

    return wrong(
        *minimize(loss, [0.0, 1.0], method="L-BFGS-B", bounds=((None, None), (0.1, 5.0))).x
    )


class Look(NamedTuple):
    """What a promise is looked at by: rows of the model, and rows of people.

    `before` it so many more labels are learned.
    """

    audit: int
    sample: int
    before: int = 0

    @property
    def answers(self) -> int:
        """How many answers it takes but third ones: two an audited row where people err."""
        return self.audit * (2 if self.sample else 1) + self.sample

    @property
    def labels(self) -> int:
        """How many labels pay for it, those before it and third answers included."""
        labels = self.before + self.answers
        return -(-10 * labels // 9) if self.sample else labels


def planned(
    expected: float, people: int, rows: int, allowed: int, errors: float | None
) -> Look | None:
    """The cheapest look that is good enough in `CHANCE` of cases; None if there is none.

    Args:
        expected: of the `rows` of the model, how many are wrong.
        people: L, the rows that people labeled.
        rows: M, those of the model.
        allowed: how many of all may be wrong.
        errors: people's rate of errors as it is expected; None where the answers are the truth.
    """
    from scipy.stats import hypergeom

    looks = []
    sizes = [0] if errors is None else sorted({min(size, people) for size in SAMPLES})
    for sample in sizes:
        wrong = 0
        if errors is not None:
            wrong_seen = hypergeom.ppf(CHANCE, people, min(people, round(errors * people)), sample)
            wrong = left_wrong(int(wrong_seen), sample, people, PEOPLE)
        audit = audit_size(expected, rows, allowed - wrong) if wrong <= allowed else None
        if audit is not None:
            looks.append(Look(audit, sample))
    return min(looks, key=lambda look: look.answers, default=None)


class Stage(NamedTuple):
    """A model on the way.

    Attributes:
        labels: those that it learned.
        expected: how many of the other rows it expects to be wrong.
    """

    labels: int
    expected: float


def step_of(rows: int) -> int:
    """The labels between two stages in a table of so many rows.

    >>> [step_of(rows) for rows in (500, 2_000, 100_000)]
    [25, 62, 100]
    """
    return min(100, max(25, rows // 32))


def allowed_wrong(right: float, rows: int) -> int:
    """How many of the rows of a table may be wrong.

    >>> allowed_wrong(0.97, 1000), allowed_wrong(0.95, 19)
    (30, 0)
    """
    return int((1 - right) * rows + 1e-9)


def look_now(
    stages: Sequence[Stage],
    people: int,
    rows: int,
    allowed: int,
    labels_left: int,
    factor: float = 1.0,
    errors: float | None = None,
    *,
    reach: bool = False,
    looked: bool = False,
    batch: int = 0,
) -> Look | None:
    """What to look at now; None where buying goes on, which comes cheaper, or nothing will do.

    What a later model would expect wrong follows from the last `BEFORE` stages. Such a forecast may
    be too good, so buying goes on only while a look of the present size can still be paid at the
    next two stages.

    Args:
        stages: of the run so far.
        people: L, the rows that people labeled.
        rows: M, those of the model.
        allowed: how many wrong rows the table may have.
        labels_left: the labels that can be paid.
        factor: by how much earlier audits found more wrong rows than were expected.
        errors: see `planned`.
        reach: whether any is wanted that can be paid, now or after more labels.
        looked: whether the last stage had a look, so that the next one is of a later model.
        batch: the labels that are bought at a time; a stage has as many at least.
    """
    if len(stages) < 3 or not rows:
        return None
    (old_labels, old_wrong), (labels, wrong) = stages[max(0, len(stages) - 1 - BEFORE)], stages[-1]
    step = max(step_of(people + rows), batch)
    fall = min(0.9, max(0.5, (wrong / max(old_wrong, 1e-9)) ** (step / (labels - old_labels))))
    look = planned(factor * wrong, people, rows, allowed, errors)
    payable = look is not None and look.answers <= labels_left and not looked
    if payable == reach:
        return look if payable else None
    if look is not None and payable and look.answers + 2 * step > labels_left:
        return look
    limit = labels_left if look is None or reach else look.answers - 1
    for extra in (step * steps for steps in AHEAD if step * steps < min(labels_left, rows)):
        expected = factor * wrong * fall ** (extra / step)
        later_look = planned(expected, people + extra, rows - extra, allowed, errors)
        if later_look is not None and later_look.answers + extra <= limit:
            if not reach:
                return None
            # the model may stay as it is
            lasting = look is not None and look.answers + extra <= limit
            return (look if look and lasting else later_look)._replace(before=extra)
    return None if reach else look
