"""Numbers as people write them, and the sentences that the page and the model card share."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacksl.report.facts import Contested, Facts
    from stacksl.report.quality import AuditResult, CurvePoint, TestResult


MICRO = 1_000_000
BLIND_GATES = frozenset({"always", "first", "random", "uniform"})
# C0 and C1 controls but tab and newline, and lone surrogates: HTML and UTF-8 have no place for them
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` with characters that a page cannot hold replaced by the replacement character."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def excerpt(text: str, length: int) -> str:
    """At most `length` characters of `text` on one line, cut at a word where one is near.

    >>> excerpt("what is the  exchange rate today?", 16)
    'what is the…'
    """
    flat = " ".join(clean(text[: 8 * length]).split())
    if len(flat) <= length:
        return flat
    cut = flat[: length - 1]
    words = cut.rsplit(" ", 1)[0]
    return (words if len(words) > length // 2 else cut).rstrip() + "…"


_MARKS = re.compile(r"([\\`*_{}\[\]<>()#|~!&$])")


def plain(text: str) -> str:
    """`text` on one line with Markdown's marks escaped, so that it is read as it was written.

    >>> plain("a *b* <script>")
    'a \\\\*b\\\\* \\\\<script\\\\>'
    """
    return _MARKS.sub(r"\\\1", excerpt(text, 200))


def plain_sentence(text: str) -> str:
    """A sentence of the run with markup made harmless; code spans stay as they are."""
    return " ".join(text.replace("<", "&lt;").replace("[", r"\[").split())


def fence(text: str) -> str:
    """The fence of a Markdown block that may hold `text`, which may hold fences itself."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def count(value: int) -> str:
    """A whole number with thousands apart.

    >>> count(10003)
    '10,003'
    """
    return f"{value:,}"


def plural(value: int, one: str, many: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "label"), plural(0, "class", "classes")
    ('1 label', '0 classes')
    """
    return f"{count(value)} {one if value == 1 else many or one + 's'}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 0..1 in percent; a dash where there is none.

    >>> percent(0.8744), percent(None)
    ('87.4%', '–')
    """
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.{digits}f}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant figures, without an exponent where it can be read.

    >>> number(1234.5), number(0.01234), number(-0.5), number(1e-9), number(None)
    ('1,234', '0.0123', '-0.5', '1e-09', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def money(micro: int, currency: str = "$") -> str:
    """An amount of micro-units; more than two decimals only where they are needed.

    >>> money(2_500_000_000), money(1_500), money(0)
    ('$2,500.00', '$0.0015', '$0.00')
    """
    whole, rest = divmod(abs(micro), MICRO)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micro < 0 else ''}{currency}{whole:,}.{decimals}"


def cost(facts: Facts) -> str:
    """What the labels cost; empty where no price was given."""
    budget = facts.budget
    if budget.spent_money is None:
        return ""
    return money(budget.spent_money, budget.currency)


def interval(low: float, high: float, digits: int = 1) -> str:
    """A 95 % interval in words.

    >>> interval(0.8649, 0.8881)
    '86.5% to 88.8%'
    """
    return f"{percent(low, digits)} to {percent(high, digits)}"


def bought(facts: Facts) -> str:
    """The first sentence: how many labels were bought, of how many items, for how much."""
    budget = facts.budget
    if budget.rounds == 0 and budget.spent == 0:
        return f"Nothing has been asked yet; {plural(budget.left, 'label')} can be bought."
    if budget.spent == 0:
        seen = plural(budget.rounds, "item")
        return f"No label was bought: {seen} passed and {count(budget.left)} labels are left."
    price = f" for {cost(facts)}" if cost(facts) else ""
    sentence = (
        f"{plural(budget.spent, 'label')} of {plural(facts.data.items, 'item')} bought{price}"
    )
    parts = {
        "to learn from": budget.asked,
        "for the audit, random items that only measure the final model": budget.audit,
    }
    named = [f"{count(n)} {what}" for what, n in parts.items() if n]
    sentence += f": {'; '.join(named)}" if len(named) > 1 else ""
    waiting = budget.open
    return f"{sentence}; {plural(waiting, 'answer')} still out." if waiting > 0 else f"{sentence}."


def outcome(facts: Facts) -> str:
    """The accuracy with its interval, or that it is not known; then the sentences on labels."""
    said = [] if facts.audit is None else [_audited(facts.audit)]
    said += [] if facts.test is None else [_tested(facts.test)]
    return " ".join([" ".join(said) or facts.no_test, facts.stopped]).strip()


def _audited(audit: AuditResult) -> str:
    wide = f"95% interval {interval(audit.low, audit.high)}"
    items = plural(audit.n, "audited item")
    if audit.accuracy is None:
        return f"Its accuracy on new items is not known: none of {items} has a clear answer."
    subject = "The final model answers"
    if audit.trained_on:
        subject = "Before it was trained on the audit's labels, too, the final model answered"
    if not audit.unknown:
        end = "" if audit.trained_on else ", none of which it was trained on"
        return f"{subject} {percent(audit.accuracy)} of {items} correctly ({wide}){end}."
    return (
        f"{subject} {percent(audit.accuracy)} of the {count(audit.n - audit.unknown)}"
        f" audited items with a clear answer correctly; with {count(audit.unknown)} of"
        f" {items} unclear, that is {percent(audit.worst)} at worst and"
        f" {percent(audit.best)} at best ({wide})."
    )


def _tested(test: TestResult) -> str:
    return (
        f"The final model answers {percent(test.accuracy)} of {plural(test.n, 'test item')} "
        f"correctly (95% interval {interval(test.low, test.high)})."
    )


def measured_on(facts: Facts) -> str:
    """What the classes were measured on; empty where they were not."""
    if facts.measured_on == "audit" and facts.audit is not None:
        return "the audit"
    return "the test file" if facts.test is not None else ""


def half_way(curve: tuple[CurvePoint, ...]) -> str:
    """What the second half of the labels added; empty with fewer than three points."""
    if len(curve) < 3 or curve[-1].labels <= 0:
        return ""
    last = curve[-1]
    half = min(curve[:-1], key=lambda point: (abs(2 * point.labels - last.labels), point.labels))
    points = 100 * (last.accuracy - half.accuracy)
    gain = f"added {points:.1f} points" if points >= 0 else f"took {-points:.1f} points away"
    rest = count(last.labels - half.labels)
    return (
        f"The first {plural(half.labels, 'label')} gave {percent(half.accuracy)}; "
        f"the remaining {rest} {gain}."
    )


def asked_note(facts: Facts) -> str:
    """How to read the accuracy on asked items, which depends on how the gate picks them."""
    if facts.method.gate in BLIND_GATES:
        return "On the items it asked about; this gate picks them without looking at them."
    return (
        "On the items it asked about, which are the hard ones: this is below the accuracy on all"
        " items and is no estimate of it."
    )


def contested_meaning(facts: Facts) -> str:
    """What the list of contested items holds."""
    if facts.method.mode == "stream":
        across = (
            " Scores of different epochs come from different weights, so their order across epochs"
            " is a hint only."
        )
        start = "Where the best rival came closest to the answer, or went past it."
        return start + across * (facts.language is not None)
    by = "the scores that ranked the items last" if facts.language else "the final model"
    return (
        "Of the items that nobody was asked about, those whose two best answers are closest by"
        f" {by}. The score is minus the difference of their probabilities: 0 is a tie."
    )


def none_contested(facts: Facts) -> str:
    """Why the list of contested items is empty."""
    if facts.method.mode == "pool":
        return "No item is left with two answers to choose from that nobody was asked about."
    if not facts.budget.rounds:
        return "No item has been seen yet."
    return "No scores were kept to rank the items by."


def decisions(facts: Facts) -> str:
    """What the ledger holds of each decision."""
    kind = "question" if facts.method.mode == "pool" else "round"
    return (
        f"`run.db` records {plural(facts.budget.rounds, 'decision')}, one for each {kind}: the"
        " choice, the statistic, the threshold and the reason."
    )


def unlabelled(row: Contested) -> str:
    """Why a contested item has no label."""
    if not row.asked:
        return "label not bought"
    answers = {
        "none": "answer: none of these",
        "ambiguous": "answer: ambiguous",
        "broken": "answer: broken item",
    }
    return answers.get(row.said or "", "answer still out")


def gate_score_meaning(facts: Facts) -> str:
    """What the summed gate score says, and what it does not."""
    return (
        "Each round's score says by how much the best rival could still beat the answer that was "
        "given. The sum tells how much doubt a run passed through; it compares runs on the same "
        f"items with the same features and is no guarantee{_of_newton(facts)}. What can be "
        "promised comes from an audit on uniformly drawn, paid items kept out of training."
    )


def _of_newton(facts: Facts) -> str:
    """What its widths promise under labels: nothing."""
    if facts.method.scorer != "newton":
        return ""
    return (
        ", not even for labels drawn from a softmax of linear scores: the confidence ellipsoid of "
        "newton may miss the true θ"
    )
