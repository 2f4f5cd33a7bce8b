"""What the report says of the audit and of the answers: sentences and named values."""

from __future__ import annotations

from collections.abc import Callable

from stacksl.report.facts import Facts
from stacksl.report.quality import AuditResult, Named
from stacksl.report.wording import (
    clear_of,
    count,
    interval,
    money,
    number,
    percent,
    plural,
    spread,
    unasked,
)

DRAWN_AT_RANDOM = (
    "The audit's items were drawn uniformly at random, and nothing was selected or trained on them."
)
MEANING = (
    " The interval is about new items from the same source: over many audits, 95 of 100 such "
    "intervals hold the accuracy there."
)
BOUND = (
    " The lower bound is about new items from the same source. The run looked at the audit on its"
    " way, look j at the level .05·6/(π²j²), to decide whether to stop: over many such runs, in 95"
    " of 100 the bounds of all looks hold."
)
POWERED = (
    " Accuracy and interval also rest on the model's probabilities of {} items that were drawn with"
    " them and that nobody is asked about (prediction-powered inference)."
)
AGREEMENT = (
    "There was no second look at the model's answers: if some of the people's answers are wrong,"
    " the accuracy differs from this share."
)
SOON = "Its accuracy is reported when further people have looked at some of these items."
FURTHER = "nobody else is left to ask unless you add an annotator, at most four answers a row"
OPEN = (
    "The second look left so many of its rows without two people who agree that the accuracy is"
    " only known to lie between {} and {} (95% interval)."
)


def promises(facts: Facts) -> bool:
    """Whether the run promises a share of its table."""
    return any(r.name == "stop_when" and r.value.startswith("right") for r in facts.settings)


def audited(audit: AuditResult, run: str, *, judged: bool = True) -> str:
    """How many of the audited items the final model of a `run` answers correctly.

    Not `judged` by a second look is the model of a run over a column, whose labels are.
    """
    bounds = spread(audit.low, audit.high, audit.look)
    items = plural(audit.n, "audited item")
    clear = clear_of(audit.n, audit.unknown, "audited item")
    if audit.accuracy is None:
        return f"Its accuracy on new items is not known: none of {items} has a clear answer."
    subject = "The final model answers"
    if audit.trained_on:
        subject = "Before it was trained on the audit's labels, too, the final model answered"
    end = "" if audit.trained_on else ", none of which it was trained on"
    passed = " that nobody had been asked about" if audit.passed_over else ""
    second_look = audit.second
    nobody = f" {unasked(second_look.nobody, run)}" if second_look and second_look.nobody else ""
    if audit.measures != "accuracy":
        subject = subject.replace("answered", "agreed").replace("answers", "agrees")
        reason = SOON if audit.waits and judged else AGREEMENT
        if second_look is not None:
            reason = OPEN.format(*map(percent, second_look.accuracy[1:]))
        return (
            f"{subject} with the {audit.measures.split()[-1]} on {percent(audit.accuracy)} of"
            f" {clear}{passed} ({bounds}){end}. {reason}{nobody}"
        )
    if second_look is not None or audit.reference:
        by = f"{percent(audit.correct / max(1, audit.n - audit.unknown))} of {clear}{end}"
        if second_look is not None:
            by = f"{clear}{end}, with a second look for people's errors"
            open_rows = second_look.sampled_open + second_look.differing_open
            if open_rows:
                by += f" (it left {count(open_rows)} open: each counts half, or as others like it)"
        scope, share = f"items{passed}" if passed else "new items", percent(audit.accuracy)
        return f"{subject} an estimated {share} of {scope} correctly ({bounds}): {by}.{nobody}"
    extremes = f"; with unclear ones {percent(audit.worst)} at worst, {percent(audit.best)} at best"
    end = f"{extremes if audit.unknown else ''} ({bounds}){end}"
    return f"{subject} {percent(audit.accuracy)} of {clear}{passed} correctly{end}."


def in_counts(
    row: str, audit: AuditResult, settle: Callable[[int], str] | None, first: bool
) -> str:
    """How many of an audit's rows, each a `row`, are right and open; what would `settle` these."""
    right, clear, open_rows = audit.counted(first=first)
    noun, of, audited = row.partition(" of ")
    text = f"{count(right)} of {plural(clear, noun)}{of}{audited}"
    text += " is right" if 1 in (right, clear) else " are right"
    text += " by first answers" if first and audit.second is not None else ""
    if audit.n > clear:
        text += f", besides {count(audit.n - clear)} without a clear answer"
    askable = audit.second.askable if audit.second else 0
    ways = f". No two people agree there, and {settle(askable) if settle and askable else FURTHER}"
    text += f", with {count(open_rows)} open{'' if settle is None else ways}" if open_rows else ""
    return text


def audit_rows(audit: AuditResult) -> list[Named]:
    """The audit in numbers."""
    (right, clear, open_rows), second_look = audit.counted(), audit.second
    estimate = second_look if audit.measures == "accuracy" else None
    excluded = f"; not counted, since ambiguous, broken or unanswered: {count(audit.n - clear)}"
    ends, method = (audit.worst, audit.best), " by first answers" if second_look else ""
    if estimate is not None:
        ends, method = estimate.ends, ", corrected for errors of people; an open row counts half"
    rows = [
        Named("Items of the audit", count(audit.n)),
        Named("Right", f"{count(right)} of {count(clear)}{excluded if audit.n > clear else ''}"),
        *([Named("Open: no two people agree", count(open_rows))] if second_look else []),
        Named(f"Audited {audit.measures}{method}", percent(audit.accuracy, 2)),
    ]
    if audit.look:
        rows.append(Named("At least, in 95 of 100 runs", percent(audit.low, 2)))
        rows.append(Named("Looks at the audit, this one included", count(audit.look)))
    else:
        wilson = " (Wilson)" if estimate is None and not audit.reference else ""
        rows.append(Named(f"95% interval{wilson}", interval(audit.low, audit.high, 2)))
    if audit.none_of_these:
        rows.append(Named("None of the candidates, counted as wrong", count(audit.none_of_these)))
    if audit.unknown or (estimate is not None and ends[0] < ends[1]):
        rows.append(Named("Worst to best case of open and unclear rows", interval(*ends, 2)))
    if second_look is not None and second_look.errors is not None:
        rate, low, high = second_look.errors
        rows.append(Named("People's errors", f"{percent(rate)} ({interval(low, high)})"))
    return rows


def notes(facts: Facts) -> list[str]:
    """Sentences needed to read the audited accuracy."""
    audit = facts.audit
    if audit is None:
        return []
    sentences = [DRAWN_AT_RANDOM]
    if audit.reference:
        sentences[0] += POWERED.format(count(audit.reference))
    if audit.measures == "accuracy" and audit.look:
        sentences[0] += BOUND
    elif audit.measures == "accuracy" and not audit.passed_over:
        sentences[0] += MEANING
    if audit.unknown:
        sentences.append(
            "The interval reaches from the low end of the worst case to the high end of the best."
        )
    if (share := audit.passed_over) and promises(facts):
        sentences.append(
            "This audit was drawn from the rows that the model labels, when people had labeled"
            f" {percent(share)} of all: the accuracy above is that of these rows."
        )
    elif share:
        overall = interval((1 - share) * audit.low, (1 - share) * audit.high + share)
        sentences.append(
            f"This audit was drawn when {percent(share)} of the items had been bought already, and"
            " says nothing about these. The accuracy above holds for items like the others; on all"
            f" items of the source the interval is {overall}."
        )
        if audit.number > 1:
            sentences.append(
                "The earlier audit takes no part, because you had seen it: so this interval may be"
                " wider than the earlier one."
            )
    if audit.shown_before:
        sentences.append(
            "This audit was shown before, when the model had learned"
            f" {plural(audit.shown_at, 'label')} (now it has learned {count(audit.learned)})."
            " No new one was drawn since. The model was not trained on its answers. But if a run"
            " goes on until its audit looks good, that audit is a little too high."
        )
    if audit.revised:
        sentences.append(
            f"{plural(audit.revised, 'answer')} of the audit corrected or set aside after it was"
            " first shown: the accuracy above uses the earlier answers."
        )
    if audit.trained_on:
        sentences.append(
            f"The saved model was also trained on the audit's {plural(audit.trained_on, 'label')};"
            " the accuracy above is of the model before."
        )
    return sentences


def answer_rows(facts: Facts) -> list[Named]:
    """The answers by kind, each with its share of all; there is one at least."""
    asking, total = facts.asking, facts.asking.answers
    kinds = (
        ("One of the options", asking.labels),
        ("None of these", asking.none_of_these),
        ("Ambiguous", asking.ambiguous),
        ("Broken item", asking.broken),
    )
    rows = [Named(name, f"{count(n)} ({percent(n / total)})") for name, n in kinds]
    unpaid = (("Contradict an earlier one", asking.disputes), ("Late", asking.late))
    rows += [Named(f"{name}, kept but not paid", count(n)) for name, n in unpaid if n]
    if (agreement := asking.agreement) is not None:
        kappa = "not defined" if agreement.kappa is None else number(agreement.kappa, 2)
        agreed = f"{percent(agreement.agreed / agreement.n)} of {plural(agreement.n, 'row')}"
        rows.append(Named("Two annotators agreed", f"{agreed}, Cohen's κ = {kappa}"))
    return rows + [Named(f"{person.name} differs", person.sentence) for person in asking.differing]


def labeler_rows(facts: Facts) -> list[Named]:
    """Each labeler's answers and what they cost."""
    return [
        Named(row.labeler, f"{plural(row.answers, 'answer')}{_paid(row.money)}")
        for row in facts.asking.costs
    ]


def _paid(micro: int | None) -> str:
    """An amount after a comma; nothing where labels have no price."""
    return "" if micro is None else f", {money(micro)}"


CHANGES = {
    "budget": ("a budget of {}", "label"),
    "class": ("one class more: {}", "class"),
    "pool": ("{} to choose from added", "row"),
    "owned": ("{} that you have added", "label"),
    "labeled": ("{} given to rows that nobody was asked about", "label"),
    "corrected": ("{} corrected", "answer"),
    "named": ("{} that named an added class, now labels of it", "answer"),
    "reopened": ("{} asked for on rows that had one", "answer"),
    "dropped": ("{} dropped", "row"),
    "erased": ("{} erased", "row"),
    "joined": ("{} joined", ""),
    "away": ("{} away", ""),
    "back": ("{} back", ""),
    "set_aside": ("the answers of {} set aside", ""),
    "kept": ("the answers of {} count", ""),
    "labeler": ("{} answers from here on", ""),
    "stop_when": ("{} stops the run from here on", ""),
    "set": ("{} from here on", ""),
}
"""The words for each kind of change, and the noun of what is counted; none of a person."""


def change_rows(facts: Facts) -> list[Named]:
    """What changed on the way, in the order it did."""
    pool = facts.method.mode == "pool"
    kinds = ("question to train on", "questions to train on") if pool else ("round", "rounds")
    rows = []
    for row in facts.asking.changes:
        template, noun = CHANGES[row.kind]
        counted = plural(row.count, noun, "classes" if noun == "class" else "")
        change = f"{template.format(row.who or counted)}{_paid(row.money)}"
        rows.append(Named(f"After {plural(row.rounds, *kinds)}", change))
    return rows
