"""The second look at an audit: further people answer some of its rows, and it counts for accuracy.

Rows where people and the final model differ are asked of further people until two of them agree,
and so is a random fifth of the rows where they agree: of the N_a rows that agree, k are asked
again, and a share r of those turns out wrong. With W = N_a/n the accuracy is e = p − W·r, where p
counts every row that agrees as right; its variance is e(1 − e)/n + W²·r(1 − r)/k·(1 − k/N_a): that
of n rows whose truth is known, and that of the sample among them. A row on which no two people
agree is open: wrong at the low end of the interval, right at the high end. The model has no vote:
errors of people that follow the model's would be confirmed by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stacksl.core.blocks import Array
from stacksl.ledger.purchases import Word, settled
from stacksl.models.metrics import Powers, Z, moments, rows_of, wilson
from stacksl.report.quality import SecondLook

Moments = tuple[float, float]
"""An estimate and its variance."""

Answers = Mapping[str, Sequence[Word]]
"""What was said of each item, by one person each, in order."""

Rows = tuple[list[str], list[str], list[str]]
"""Those of an audit that agree with the model, those sampled of them, and those that differ."""

UNCLEAR = ("ambiguous", "broken")  # answers that name neither a candidate nor none of them
MOST = 4  # answers to a row, the first included
FEWEST = 10  # rows that agree and are asked again, of as many as there are
SMALLEST = 150  # labels of a budget below which there is no second look unless it is asked for
WIDEST = 0.5  # an interval above which agreement is stated, and the rate of people's errors is not


def reserved(audit: int, labels: int) -> int:
    """Labels kept for further answers: .4 a row of the audit, at most 15% of the budget.

    >>> reserved(50, 300), reserved(37, 150), reserved(100, 200)
    (20, 15, 30)
    """
    return min(-(-2 * audit // 5), 15 * labels // 100)


def split(
    order: Sequence[str],
    predicted: Mapping[str, int],
    answers: Answers,
    begun: Collection[str],
    *,
    every: bool = False,
) -> Rows:
    """The rows of an audit by their first answers, which name a candidate or none of them.

    Rows are sampled in the `order`, which is random. Items that have `begun` to be asked again stay
    the sample where half of it agrees, so that a row which is erased later asks nobody. All that
    agree are the sample with `every`.
    """
    first = {item: answers[item][0] for item in order if answers.get(item)}
    agreeing = [item for item, word in first.items() if word == predicted[item]]
    wanted = min(len(agreeing), max(FEWEST, -(-len(agreeing) // 5)))
    wanted = len(agreeing) if every else wanted
    sampled = [item for item in agreeing if item in begun][:wanted]
    if 2 * len(sampled) < wanted:
        sampled = agreeing[:wanted]
    differing = [item for item in first if first[item] not in (predicted[item], *UNCLEAR)]
    return agreeing, sampled, differing


def next_rows(
    rows: Rows, answers: Answers, free: Mapping[str, int], left: int, awaited: Collection[str] = ()
) -> list[str]:
    """The rows to ask one more person of, of which `left` can be paid.

    Those sampled come first, since each of them stands for several: those on which two people
    divide, then the others, while a label is kept for each ten of them that may need one more.
    `free` is how many people may be asked each row; an answer to those `awaited` is out.
    """

    def open_of(items: Sequence[str]) -> list[str]:
        asked = (item for item in items if 0 < len(answers[item]) < MOST)
        return [item for item in asked if settled(answers[item]) is None]

    _, some, differing = rows
    sampled = sorted(open_of(some), key=lambda item: len(answers[item]) == 1)
    reserved = -(-sum(free[item] > (item not in awaited) for item in sampled) // 10)
    wanted = [item for item in sampled if free[item] and item not in awaited]
    divided = sum(len(answers[item]) > 1 for item in wanted)
    wanted += [item for item in open_of(differing) if free[item] and item not in awaited]
    return wanted[: max(0, min(divided, left), left - reserved)]


def looked(
    rows: Rows,
    predicted: Mapping[str, int],
    answers: Answers,
    powers: Powers | None = None,
    z: float = Z,
    judged: Mapping[str, int] | None = None,
) -> SecondLook:
    """What the answers so far say; a row that two call ambiguous or broken counts as open.

    The accuracy is prediction-powered where the `powers` of the `predicted` rows are given.

    Args:
        rows: as `split` made them of what the model said.
        predicted: what the model says whose accuracy is wanted.
        z: of the ends of the accuracy.
        judged: what the model of then said, where it was refitted since. What was found of its rows
            stays; each row on which it agreed with the first person counts by whether the present
            model does, and the sampled ones correct that.
    """
    then = predicted if judged is None else judged
    agreeing, sampled, differing = (
        Counter(_right(then[item], answers[item]) for item in part) for part in rows
    )
    look = SecondLook(
        n=len(predicted),
        agreeing=agreeing.total(),
        sampled=sampled.total(),
        wrong=sampled["other"],
        sampled_open=sampled["open"],
        differing=differing.total(),
        model_right=differing["model"],
        first_right=differing["first"],
        differing_open=differing["open"],
    )
    once = tuple(
        sum(len(answers[item]) == 1 for item in part if _right(then[item], answers[item]) == "open")
        for part in (rows[2], rows[1])
    )
    right, low, high = estimated(look, look.first_right, unasked=once)
    whose = {item: _right(predicted[item], answers[item]) for part in rows for item in part}
    agree = {item: answers[item][0] == predicted[item] for item in rows[0]}
    again = Counter((whose[item], agree[item]) for item in rows[1])
    now = replace(look, wrong=again["other", True], sampled_open=again["open", True])
    differing = Counter(whose[item] for item in rows[2])
    now = replace(now, model_right=differing["model"], differing_open=differing["open"])
    whose |= {item: "model" if same else "first" for item, same in agree.items()}
    half = dict.fromkeys(predicted, 0.5)
    half |= {item: usual(now.model_right, now.differing, now.differing_open, once[0])
             for item in rows[2] if len(answers[item]) == 1}  # fmt: skip
    first = None
    if powers is not None:
        parts = [whose.get(item) for item in predicted]
        first = _moments(parts, np.array([*half.values()]), powers)
    moved = len(agree) - sum(agree.values())
    more = moved, again["model", False]
    accuracy, ends = (
        estimated(now, now.model_right, first, width, *more, unasked=once) for width in (z, 0.0)
    )
    look = replace(look, accuracy=accuracy, ends=ends[1:])
    return replace(look, errors=(1 - right, 1 - high, 1 - low) if high - low <= WIDEST else None)


def looked_at_some(
    some: Mapping[str, Array],
    reference: Array | None,
    rows: Rows,
    answers: Answers,
    z: float,
    judged: Mapping[str, int],
) -> SecondLook | None:
    """What `looked` says of `some` of the rows; None where too few of those that agree are sampled.

    These are given by their labels, as (K,) probabilities. The `reference` has the probabilities of
    the labels that they stand for.
    """
    agreeing, sampled, differing = ([item for item in part if item in some] for part in rows)
    if len(sampled) < min(FEWEST // 2, len(agreeing)) or not some:
        return None
    sure = np.array([label.max() for label in some.values()])
    left = None if reference is None else Powers(sure, reference)
    labels = {item: int(np.argmax(label)) for item, label in some.items()}
    return looked((agreeing, sampled, differing), labels, answers, left, z, judged)


def of_class(
    label: int, given: Sequence[Sequence[Word]], look: SecondLook | None
) -> tuple[int, int, float, float]:
    """How many rows labeled so are right and open, and the 95% interval of the right share.

    Without a second look the first answer counts. One person who agrees is wrong as often as those
    sampled; open rows are wrong at the low end and right at the high end.
    """
    kinds, once, wrong, most = Counter[str](), 0, 0.0, 0.0
    if look is not None and look.sampled:
        wrong, most = (n / look.sampled for n in (look.wrong, look.wrong + look.sampled_open))
    for words in given:
        alone = words[:1] if look is None or words == [label] else []
        once += bool(alone)
        kinds[_right(label, [*alone, *alone] or words)] += 1
    right, still = kinds["model"], kinds["open"]
    low, _ = wilson(right - once * most, len(given))
    return right, still, low, wilson(right + still - once * wrong, len(given))[1]


def too_wide(look: SecondLook) -> bool:
    """Whether so many rows are open that the accuracy is hardly known."""
    _, low, high = look.accuracy
    return high - low > WIDEST


def usual(right: float, rows: int, still: int, unasked: int) -> float:
    """What a row that was not asked again counts: the share of others of its kind that are right.

    Of so many `rows` so many are `still` open; those that were asked again count half then, and so
    do all where none was asked.

    >>> round(usual(2, 20, 3, 2), 3), usual(0, 5, 5, 5)
    (0.158, 0.5)
    """
    return (right + 0.5 * (still - unasked) + 0.5) / (rows - unasked + 1)


def _moments(
    whose: Sequence[str | None], half: Array, powers: Powers
) -> tuple[Moments, Moments, Moments]:
    """The accuracies before the correction, by whose answer each row counts; see `estimated`."""
    known = np.array([who is not None for who in whose])
    right = np.array([who == "model" for who in whose], dtype=np.float64)
    still = np.array([who in (None, "open") for who in whose])
    clear = Powers(powers.sure[known], powers.reference)
    return (
        moments((right + half * still)[known], clear),
        moments(right, powers),
        moments(right + still, powers),
    )


def _right(predicted: int, answers: Sequence[Word]) -> str:
    """Whose answer two people gave: the `model`'s, the `first` one's, an `other`; else `open`."""
    word = settled(answers)
    if word is None or word in UNCLEAR:
        return "open"
    if word == predicted:
        return "model"
    return "first" if word == answers[0] else "other"


def estimated(
    look: SecondLook,
    right: int,
    first: tuple[Moments, Moments, Moments] | None = None,
    z: float = Z,
    moved: int = 0,
    regained: int = 0,
    unasked: Sequence[int] = (0, 0),
) -> tuple[float, float, float]:
    """The share of right rows with its interval at `z`, where `right` of those that differ are.

    With `model_right` it is the accuracy, with `first_right` that of a person's answers. An open
    row counts half in the share itself, and as is `usual` where it was not asked again.

    Args:
        right: of the rows that differ.
        first: value and variance of the estimates that count those that agree as right, where open
            rows count half, as wrong and as right; plain shares by default.
        moved: of the rows that agree, those that count as wrong since the model was refitted.
        regained: of the sampled ones among these, those where two people say what it says now.
        unasked: of the open rows that differ, and that are sampled, those with one answer.
    """
    known, sure = look.agreeing + look.differing, look.agreeing - moved + right
    if first is None:
        at_best = sure + look.differing_open + look.n - known
        still = look.differing_open
        rate = usual(right, look.differing, still, unasked[0])
        first = (
            _plain(sure + 0.5 * (still - unasked[0]) + rate * unasked[0], known),
            _plain(sure, look.n),
            _plain(at_best, look.n),
        )
    least = look.wrong - regained
    rate = usual(least, look.sampled, look.sampled_open, unasked[1])
    half = least + 0.5 * (look.sampled_open - unasked[1]) + rate * unasked[1]
    most = least + look.sampled_open
    share, _ = corrected(*first[0], known, look, half, regained)
    low, few = corrected(*first[1], look.n, look, most, regained)
    high, many = corrected(*first[2], look.n, look, least, regained)
    return share, wilson(low * few, few, z)[0], wilson(high * many, many, z)[1]


def _plain(right: float, n: int) -> Moments:
    share = right / n if n else 0.0
    return share, share * (1 - share) / max(1, n)


def corrected(
    value: float, variance: float, n: int, look: SecondLook, wrong: float, regained: int = 0
) -> tuple[float, float]:
    """An estimate of an accuracy without the errors on which people and model agree.

    Args:
        value, variance: of the estimate e₀ from `n` rows, which counts those that agree as right.
            The variance grows by (e(1 − e) − e₀(1 − e₀))/n, since rows that agree vary too.
        look: has the number of these, N_a, and of the k sampled, of which so many are `wrong`,
            less those `regained`.

    Returns:
        e = e₀ − W·r, and the number of rows of which Wilson's interval is made:
        n·clip(e(1 − e)/(n·variance), 5/n, 2.5), and n where nothing varies.
    """
    if look.sampled:
        share, rate = look.agreeing / n, wrong / look.sampled
        counted, value = value, min(1.0, max(0.0, value - share * rate))
        variance += max(0.0, value * (1 - value) - counted * (1 - counted)) / n
        spread = rate * (1 - rate) + 2 * regained / look.sampled
        variance += share**2 * spread / look.sampled * (1 - look.sampled / look.agreeing)
    return value, rows_of(value, variance, n)
