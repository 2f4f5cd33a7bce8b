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
    asked_again: Collection[str],
    *,
    every: bool = False,
) -> Rows:
    """The rows of an audit by their first answers, which name a candidate or none of them.

    Rows are sampled in the `order`, which is random. Items that were `asked_again` already stay the
    sample where half of it agrees, so that a row which is erased later asks nobody. All that agree
    are the sample with `every`.
    """
    first_word = {item: answers[item][0] for item in order if answers.get(item)}
    agreeing = [item for item, word in first_word.items() if word == predicted[item]]
    sample_size = min(len(agreeing), max(FEWEST, -(-len(agreeing) // 5)))
    sample_size = len(agreeing) if every else sample_size
    sampled = [item for item in agreeing if item in asked_again][:sample_size]
    if 2 * len(sampled) < sample_size:
        sampled = agreeing[:sample_size]
    differing = [item for item in first_word if first_word[item] not in (predicted[item], *UNCLEAR)]
    return agreeing, sampled, differing


def next_rows(
    rows: Rows, answers: Answers, free: Mapping[str, int], limit: int, awaited: Collection[str] = ()
) -> list[str]:
    """The rows to ask one more person of, of which `limit` can be paid.

    Those sampled come first, since each of them stands for several: those on which two people
    divide, then the others, while a label is kept for each ten of them that may need one more.
    `free` is how many people may be asked each row; an answer to those `awaited` is out.
    """

    def open_of(items: Sequence[str]) -> list[str]:
        askable = (item for item in items if 0 < len(answers[item]) < MOST)
        return [item for item in askable if settled(answers[item]) is None]

    _, sample, differing = rows
    sampled = sorted(open_of(sample), key=lambda item: len(answers[item]) == 1)
    labels_reserved = -(-sum(free[item] > (item not in awaited) for item in sampled) // 10)
    to_ask = [item for item in sampled if free[item] and item not in awaited]
    divided = sum(len(answers[item]) > 1 for item in to_ask)
    to_ask += [item for item in open_of(differing) if free[item] and item not in awaited]
    return to_ask[: max(0, min(divided, limit), limit - labels_reserved)]


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
    old_labels = predicted if judged is None else judged
    old_whose = {item: _right(old_labels[item], answers[item]) for group in rows for item in group}
    agreeing, sampled, differing = (Counter(old_whose[item] for item in group) for group in rows)
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
        sum(len(answers[item]) == 1 for item in group if old_whose[item] == "open")
        for group in (rows[2], rows[1])
    )
    right, low, high = estimated(look, look.first_right, unasked=once)
    whose = {item: _right(predicted[item], answers[item]) for group in rows for item in group}
    agree = {item: answers[item][0] == predicted[item] for item in rows[0]}
    resampled = Counter((whose[item], agree[item]) for item in rows[1])
    current = replace(look, wrong=resampled["other", True], sampled_open=resampled["open", True])
    differing = Counter(whose[item] for item in rows[2])
    current = replace(current, model_right=differing["model"], differing_open=differing["open"])
    whose |= {item: "model" if same else "first" for item, same in agree.items()}
    credit = dict.fromkeys(predicted, 0.5)
    credit |= {item: usual(current.model_right, current.differing, current.differing_open, once[0])
             for item in rows[2] if len(answers[item]) == 1}  # fmt: skip
    estimates = None
    if powers is not None:
        sources = [whose.get(item) for item in predicted]
        estimates = _moments(sources, np.array([*credit.values()]), powers)
    newly_wrong = len(agree) - sum(agree.values())
    corrections = newly_wrong, resampled["model", False]
    accuracy, ends = (
        estimated(current, current.model_right, estimates, width, *corrections, unasked=once)
        for width in (z, 0.0)
    )
    look = replace(look, accuracy=accuracy, ends=ends[1:])
    return replace(look, errors=(1 - right, 1 - high, 1 - low) if high - low <= WIDEST else None)


def looked_at_some(
    policies: Mapping[str, Array],
    reference: Array | None,
    rows: Rows,
    answers: Answers,
    z: float,
    judged: Mapping[str, int],
) -> SecondLook | None:
    """What `looked` says of the rows in `policies`; None if too few that agree are sampled.

    Their labels are given as (K,) probabilities. The `reference` has the probabilities of the
    labels that they stand for.
    """
    agreeing, sampled, differing = ([item for item in group if item in policies] for group in rows)
    if len(sampled) < min(FEWEST // 2, len(agreeing)) or not policies:
        return None
    confidence = np.array([label.max() for label in policies.values()])
    powers = None if reference is None else Powers(confidence, reference)
    labels = {item: int(np.argmax(label)) for item, label in policies.items()}
    return looked((agreeing, sampled, differing), labels, answers, powers, z, judged)


def of_class(
    label: int, answers: Sequence[Sequence[Word]], look: SecondLook | None
) -> tuple[int, int, float, float]:
    """How many rows labeled so are right and open, and the 95% interval of the right share.

    Without a second look the first answer counts. One person who agrees is wrong as often as those
    sampled; open rows are wrong at the low end and right at the high end.
    """
    kinds, once, wrong, worst = Counter[str](), 0, 0.0, 0.0
    if look is not None and look.sampled:
        wrong, worst = (n / look.sampled for n in (look.wrong, look.wrong + look.sampled_open))
    for row_answers in answers:
        alone = row_answers[:1] if look is None or row_answers == [label] else []
        once += bool(alone)
        kinds[_right(label, [*alone, *alone] or row_answers)] += 1
    right, open_rows = kinds["model"], kinds["open"]
    low, _ = wilson(right - once * worst, len(answers))
    return right, open_rows, low, wilson(right + open_rows - once * wrong, len(answers))[1]


def too_wide(look: SecondLook) -> bool:
    """Whether so many rows are open that the accuracy is hardly known."""
    _, low, high = look.accuracy
    return high - low > WIDEST


def usual(right: float, rows: int, open_rows: int, unasked: int) -> float:
    """What a row that was not asked again counts: the share of others of its kind that are right.

    Of so many `rows` the `open_rows` are open; those that were asked again count half then, and so
    do all where none was asked.

    >>> round(usual(2, 20, 3, 2), 3), usual(0, 5, 5, 5)
    (0.158, 0.5)
    """
    return (right + 0.5 * (open_rows - unasked) + 0.5) / (rows - unasked + 1)


def _moments(
    whose: Sequence[str | None], half: Array, powers: Powers
) -> tuple[Moments, Moments, Moments]:
    """The accuracies before the correction, by whose answer each row counts; see `estimated`."""
    answered = np.array([who is not None for who in whose])
    right = np.array([who == "model" for who in whose], dtype=np.float64)
    is_open = np.array([who in (None, "open") for who in whose])
    clear = Powers(powers.sure[answered], powers.reference)
    return (
        moments((right + half * is_open)[answered], clear),
        moments(right, powers),
        moments(right + is_open, powers),
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
    estimates: tuple[Moments, Moments, Moments] | None = None,
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
        estimates: value and variance of those that count the rows that agree as right, where open
            rows count half, as wrong and as right; plain shares by default.
        moved: of the rows that agree, those that count as wrong since the model was refitted.
        regained: of the sampled ones among these, those where two people say what it says now.
        unasked: of the open rows that differ, and that are sampled, those with one answer.
    """
    clear_rows, right_rows = look.agreeing + look.differing, look.agreeing - moved + right
    if estimates is None:
        at_best = right_rows + look.differing_open + look.n - clear_rows
        open_rows = look.differing_open
        rate = usual(right, look.differing, open_rows, unasked[0])
        estimates = (
            _plain(right_rows + 0.5 * (open_rows - unasked[0]) + rate * unasked[0], clear_rows),
            _plain(right_rows, look.n),
            _plain(at_best, look.n),
        )
    fewest_wrong = look.wrong - regained
    rate = usual(fewest_wrong, look.sampled, look.sampled_open, unasked[1])
    half = fewest_wrong + 0.5 * (look.sampled_open - unasked[1]) + rate * unasked[1]
    most_wrong = fewest_wrong + look.sampled_open
    share, _ = corrected(*estimates[0], clear_rows, look, half, regained)
    low, low_n = corrected(*estimates[1], look.n, look, most_wrong, regained)
    high, high_n = corrected(*estimates[2], look.n, look, fewest_wrong, regained)
    return share, wilson(low * low_n, low_n, z)[0], wilson(high * high_n, high_n, z)[1]


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
