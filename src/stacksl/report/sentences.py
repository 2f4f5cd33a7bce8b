"""The sentences and named values that the page and the model card share."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from stacksl.report.facts import Facts, LanguageModel, Refit
from stacksl.report.quality import (
    AuditResult,
    Calibration,
    ClassTotal,
    ColumnFacts,
    CurvePoint,
    Gain,
    LabeledShare,
    Named,
    OwnItems,
    SecondLook,
)
from stacksl.report.wording import (
    NEW_AUDIT,
    change_call,
    clear_of,
    count,
    interval,
    money,
    number,
    of_run,
    percent,
    plural,
    spread,
    unasked,
)

NOT_KNOWN = (
    "Its accuracy on new items is not known: there was neither an audit (--audit N) nor a test"
    " file (--test FILE)."
)


def cost(facts: Facts) -> str:
    """What the labels cost; empty where no price was given."""
    spent = facts.budget.spent_money
    return "" if spent is None else money(spent)


def bought(facts: Facts) -> str:
    """The first sentence: how many labels were bought, of how many items, for how much."""
    budget = facts.budget
    if budget.spent == 0:
        passed, affordable = plural(budget.rounds, "item"), plural(budget.left, "label")
        return f"No label was bought: {passed} passed, and {affordable} can still be bought."
    price = "" if budget.spent_money is None else f" for {cost(facts)}"
    sentence = f"{plural(budget.spent, 'label')} of {plural(facts.data.items, 'item')}"
    sentence += f" {'was' if budget.spent == 1 else 'were'} bought{price}"
    goal = "to learn from" if facts.column is None else "to correct the most doubtful labels"
    purposes = {
        goal: budget.asked - budget.unlearned,
        "for second answers": budget.unlearned,
        "for the audit, random items that only measure and are not learned": budget.audit,
        "for further answers to some of these": budget.further,
    }
    shares = [f"{count(n)} {purpose}" for purpose, n in purposes.items() if n]
    sentence += f": {'; '.join(shares)}" if len(shares) > 1 else ""
    return f"{sentence}. {unspent(facts)}".rstrip()


def unspent(facts: Facts, run: str = "") -> str:
    """That a second look left labels, and what spends them in `run`; empty if it left none."""
    if not facts.budget.unused or facts.stopped:  # which says why buying ended
        return ""
    call = change_call(run, {"budget": facts.budget.labels}, python=facts.method.python)
    has_rows = _free(facts) > 0 and not _setting(facts, "stop_when").startswith("accuracy")
    advice = f": `{call}` asks about more rows" if run and has_rows else ""
    return f"The second look left {plural(facts.budget.unused, 'label')} unspent{advice}."


def outcome(facts: Facts) -> str:
    """The accuracy with its interval, or that it is not known; then the sentences on labels."""
    sentences = [] if facts.audit is None else [audited(facts.audit, facts.run), outside(facts)]
    sentences[1:1] = [in_table(facts)]
    if facts.audit is not None and (rows := facts.audit.none_before):
        sentences.append(
            f"{plural(rows, 'audited row')} answered with none of these before a class was added"
            f" count as wrong: `stacksl change {shlex.quote(facts.run)} --reopen` asks again."
        )
    if facts.column is not None:
        sentences[:1] = [facts.stated, column_words(facts.column, facts, facts.run)]
    sentences.append(tested(facts))
    stopped = of_run(facts.stopped, facts.run)
    paragraphs = [" ".join(filter(None, sentences)) or NOT_KNOWN, stopped]
    return " ".join(reversed(paragraphs) if promised(facts) else paragraphs).strip()


def opening(facts: Facts) -> tuple[str, str]:
    """The two parts of what is said first, the one that was asked for before the other."""
    paragraphs = bought(facts), outcome(facts)
    return paragraphs[::-1] if facts.stated or promised(facts) else paragraphs


def promised(facts: Facts) -> str:
    """The share of the table that is promised to be right, or that none is; else empty."""
    if not _promises(facts):
        return ""
    share, separator, _ = facts.stopped.partition(" of the ")
    return share if separator and share.startswith("At least ") else "not promised"


def column_words(column: ColumnFacts, facts: Facts, run: str) -> str:
    """How many of the labels that the data had are right, doubtful and corrected.

    The `facts` have the budget, and `run` is where the run is.
    """
    audit, text = column.audit, f"How many labels in '{column.name}' are right is not known."
    if audit is not None and audit.accuracy is not None:
        rows = "" if audit.second else f", {clear_of(audit.n, audit.unknown, 'audited row')}"
        bounds = f"95% interval {interval(audit.low, audit.high)}{rows}"
        scope = f"labels in the column '{column.name}'"
        if audit.passed_over:  # the most doubtful were mended before
            scope = "table's labels that people had not been asked about"
        share = f"{percent(audit.accuracy)} {_are_right(audit)}"
        text = f"Of the {scope} an estimated {share} ({bounds})."
    if column.unasked:
        marked = f"{count(column.flagged)} have a doubtful label; the exported table marks them"
        no_doubt = "none has a doubtful label: if some are wrong, the texts do not show which"
        doubt = marked if column.flagged else no_doubt
        text += f" Of {plural(column.unasked, 'row')} that nobody answered {doubt}."
    if column.asked:
        text += f" People named a class for {count(column.asked)} of the most doubtful."
    if column.changed:
        audited = ", with those of the audit," if audit is not None else ""
        text += f" People's answers{audited} changed {count(column.changed)}"
        detail = f": {count(column.mended)} were found to be wrong, and the others are unclear"
        text += f" labels of the exported table{detail if column.mended < column.changed else ''}."
    if audit is not None and audit.accuracy is not None and not audit.passed_over:
        limit = 1 - column.mended / column.labeled
        if limit < audit.accuracy:
            text += f" At most {percent(limit)} of all were right, if none of these corrections is"
            text += " wrong. The audit shows more because some are wrong, or because its rows were"
            text += " better than the others."
    if audit is not None and (second_look := audit.second) is not None:
        settle = None if audit.passed_over else settled_by(facts, run)
        text += f" {in_counts('audited rows', audit, settle, first=False)}."
        if second_look.errors is not None:
            rate, low, high = second_look.errors
            text += f" People err in an estimated {percent(rate)} of answers"
            text += f" (95% interval {interval(low, high)})."
    return text


def _are_right(audit: AuditResult) -> str:
    """What the audited share of labels is said to do: of people who err, to agree with them."""
    return audit.measures.replace("agreement", "agree").replace("accuracy", "are right")


def settled_by(facts: Facts, run: str = "") -> Callable[[int], str]:
    """A function of rows: what may settle so many open ones, and how if `run` is where it is."""
    budget = facts.budget

    def words(rows: int) -> str:
        cost = f" for {money(2 * rows * budget.price)}" if budget.price else ""
        settings = {"budget": budget.labels + 2 * rows}
        call = f": `{change_call(run, settings, python=facts.method.python)}`" if run else ""
        return f"{2 * rows} more labels{cost} may settle {count(rows)} of them{call}"

    return words


def in_counts(
    rows: str, audit: AuditResult, settle: Callable[[int], str] | None, first: bool
) -> str:
    """How many `rows` of an audit are right and open, and what would `settle` open ones."""
    right, clear, open_rows = audit.counted(first=first)
    text = f"{count(right)} of {count(clear)} {rows} are right"
    text += " by first answers" if first and audit.second is not None else ""
    if audit.n > clear:
        text += f", and {count(audit.n - clear)} more have no clear answer"
    askable = audit.second.askable if audit.second else 0
    ways = ""
    if settle is not None:
        ways = f" (no two people agree, and {settle(askable) if askable else FURTHER})"
    return f"{text}, with {count(open_rows)} open{ways}" if open_rows else text


def compared(fell: bool | None, min_p: float, p: float, *sides: str) -> str:
    """Whether the accuracy of new rows is lower, with the ends of the p-value and both counts."""
    verdict = {True: "is lower", False: "is not lower beyond chance", None: "may be lower"}[fell]
    ends = f"p = {p:.3f}" if min_p == p else f"p from {min_p:.3f} to {p:.3f}"
    ends = "p < 0.001" if p < 0.0005 else ends
    sentence = f"The new accuracy {verdict} (one-sided {ends}): {'; '.join(sides)}."
    return f"{sentence} This may change when open rows are settled." if fell is None else sentence


def in_table(facts: Facts) -> str:
    """How many labels of the exported table are right; empty where that is not known."""
    column = facts.column
    audit = facts.audit if column is None else column.audit
    by = "the column" if column and column.name != PREDICTED else "the model"
    if (table := facts.table) is None or audit is None:
        return ""
    agree = audit.measures != "accuracy"
    counted, source, labeler = "people's labels", "by people", _setting(facts, "labeler")
    if facts.method.python or labeler not in ("", "file"):
        counted, source = "bought labels", "by the labeler"
        label_columns = [column.value for column in facts.data.columns if column.name == "label"]
        if label_columns and labeler == "oracle" and not facts.method.python:
            source = f"from the file's column '{label_columns[0]}'"
    people = f"counting {counted} as {'agreeing' if agree else 'right'}"
    if table.errors is not None:
        people = f"with people wrong in an estimated {percent(table.errors)} of theirs"
        if audit.second and audit.second.errors and table.errors < audit.second.errors[0]:
            people += " (fewer than of single answers: a row that was asked again has the label"
            people += " that two people gave)"
    exclusion = ", without its labels of rows added later" if audit.rows_after else ""
    of_left = ""
    if table.left is not None:
        of_left = f" Of the labels by {by}, in rows that nobody answered, an estimated"
        of_left += f" {percent(table.left)} {_are_right(audit)}."
    return (
        f"Of the {plural(table.people + table.model, 'label')} in the exported table"
        f" ({count(table.people)} {source}, {count(table.model)} by {by}{exclusion}) an estimated"
        f" {percent(table.share)} {_are_right(audit)}"
        f" ({spread(table.low, table.high, audit.look)}), {people}.{of_left}"
    )


def outside(facts: Facts) -> str:
    """What was added after the audit was drawn, of which it says nothing; empty without any."""
    audit = facts.audit
    if audit is None or not (audit.rows_after or audit.classes_after):
        return ""
    added = []
    if audit.rows_after:
        added.append(f"{count(audit.rows_after)} of {plural(audit.rows, 'row')}")
    if extra := audit.classes_after:
        added.append(f"{count(extra)} of {plural(facts.data.classes or extra, 'class', 'classes')}")
    sentence = f"The audit says nothing about {' and '.join(added)} added after it was drawn"
    offer = f"; a budget of {NEW_AUDIT} labels more has an audit of all rows that are left"
    drawn = _free(facts) >= NEW_AUDIT and facts.column is None and not _promises(facts)
    return f"{sentence}{offer * drawn}."


def _promises(facts: Facts) -> bool:
    """Whether the run promises a share of its table."""
    return any(r.name == "stop_when" and r.value.startswith("right") for r in facts.settings)


PREDICTED = "predicted"  # the column of labels that an audit of new rows judges


def _free(facts: Facts) -> int:
    """How many more labels a changed budget can buy."""
    never_asked = {row.name: int(row.value) for row in facts.data.roles}.get("never asked for", 0)
    if facts.method.mode != "pool" and not facts.stopped:  # a stream passes an item once
        never_asked = 0
    per_item = 2 if facts.column is not None and "," in _setting(facts, "annotators") else 1
    return min(never_asked, per_item * facts.data.items - facts.budget.labels + facts.budget.unused)


def unpaid(look: SecondLook | None, measures: str) -> int:
    """The open rows of a second look that a larger budget pays for, where no accuracy is stated."""
    rows = 0 if look is None or measures == "accuracy" else look.askable
    return rows if rows < NEW_AUDIT else 0  # else a new audit takes its place


def _setting(facts: Facts, name: str) -> str:
    return next((row.value for row in facts.settings if row.name == name), "")


def audited(audit: AuditResult, run: str) -> str:
    """How many of the audited items the final model of a `run` answers correctly."""
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
        reason = SOON if audit.waits else AGREEMENT
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


def tested(facts: Facts) -> str:
    """How many of the test items the final model answers correctly; empty without any."""
    if (test := facts.test) is None:
        return ""
    return (
        f"The final model answers {percent(test.accuracy)} of {plural(test.n, 'test item')}"
        f" correctly ({spread(test.low, test.high)})."
    )


def measured_on(facts: Facts) -> str:
    """What the classes were measured on; empty where they were not."""
    if facts.measured_on == "audit" and facts.audit is not None:
        return "the audit"
    return "the test file" if facts.test is not None else ""


# The audit and the answers ------------------------------------------------------------------------

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
    "There was no second look at the model's answers: if some of people's are wrong, the accuracy"
    " is another."
)
SOON = "Its accuracy is reported when further people have looked at some of these items."
FURTHER = "nobody else is left to ask unless you add an annotator, at most four answers a row"
OPEN = (
    "The second look left so many of its rows without two people who agree that the accuracy is"
    " only known to lie between {} and {} (95% interval)."
)


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
        *[Named("Open: no two people agree", count(open_rows))] * bool(second_look),
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
    sentences = [DRAWN_AT_RANDOM + POWERED.format(count(audit.reference)) * bool(audit.reference)]
    if audit.measures == "accuracy":
        sentences[0] += BOUND if audit.look else MEANING * (not audit.passed_over)
    if audit.unknown:
        sentences.append(
            "The interval reaches from the low end of the worst case to the high end of the best."
        )
    if (share := audit.passed_over) and _promises(facts):
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
            + " The earlier audit takes no part, because you had seen it: so this interval may be"
            " wider than the earlier one." * (audit.number > 1)
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
        ("A candidate", asking.labels),
        ("None of these", asking.none_of_these),
        ("Ambiguous", asking.ambiguous),
        ("Broken item", asking.broken),
    )
    rows = [Named(name, f"{count(n)} ({percent(n / total)})") for name, n in kinds]
    unpaid = (("Contradict", asking.disputes), ("Late", asking.late))
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
    "named": ("{} that named an added class, now learned", "answer"),
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


KINDS = {
    "plain": "labels alone",
    "names": "labels and class names",
    "names and graph": "labels, class names and the unlabeled rest of the pool",
    "names alone": "class names alone",
    "smoothed": "what these predict of the unlabeled rest, smoothed over similar texts",
}


def mixed(refit: Refit) -> str:
    """What the final model is a mixture of; empty without class names."""
    if not refit.mixture:
        return ""
    if len(refit.mixture) == 1:
        return f"It is made of {KINDS[refit.mixture[0][0]]}."
    members = "; ".join(
        f"of {KINDS[kind]}: weight {percent(weight)}, held-out log-loss {loss:.2f}"
        for kind, weight, loss in refit.mixture
    )
    return (
        f"It is a mixture of {len(refit.mixture)} models ({members}). The weights make labels that"
        " are held out in three folds most probable; a label counts as often as it is an item's"
        " nearest one. The log-losses only compare the models: new items may be easier or harder"
        " than the bought ones."
    )


def modesty(calibration: Calibration) -> str:
    """How sure the model is on average, and how often right: which way it errs."""
    confidence, right = calibration.confidence, calibration.accuracy
    verdict = "it is too modest" if right - confidence > 0.02 else "it is too sure"
    verdict = "that agrees" if abs(right - confidence) <= 0.02 else verdict
    return f"On average it is {percent(confidence)} sure and right in {percent(right)}: {verdict}."


# Labels, items, and what to do next ---------------------------------------------------------------

SOURCES = {"audit": "the audit", "test": "the test file"}


def uses(facts: Facts) -> list[tuple[str, str, str]]:
    """(count, name, meaning) of each use of the labels spent; the counts add up to them."""
    budget = facts.budget
    rows = [
        (budget.answered, "learned", "the model was trained on them"),
        (budget.unlearned, "second answers", "to compare people, or on erased items; not learned"),
        (budget.unnamed, "named no candidate", "none of these, ambiguous or broken; charged"),
        (budget.aside, "set aside", "answers of people who are set aside; charged"),
        (budget.open, "still out", "asked and not yet answered"),
        (budget.audit, "audit", "random items that only measure; never learned"),
        (budget.further, "second look", "further answers to rows of the audit; never learned"),
    ]
    return [(count(n), name, meaning) for n, name, meaning in rows if n]


def share_words(share: LabeledShare, items: OwnItems) -> str:
    """What share of the rest can be labeled at the accuracy wanted, or why that is not known."""
    if not items.source:
        return "cannot be estimated without an audit or a test file"
    kind = "audited items" if items.source == "audit" else "test items"
    judged = f"{count(items.measured)} {kind}"
    if items.measured < share.needed:
        return f"cannot be estimated from {judged}; needs at least {share.needed}"
    if share.share is None:
        return f"cannot be estimated: no threshold passed the test on {judged}"
    return (
        f"{percent(share.share, 0)} ({plural(round(share.share * items.rest), 'item')}), where its"
        f" probability is at least {share.threshold:.6f}; {count(share.correct)} of"
        f" {count(share.n)} {kind} there are right"
    )


def choice_words(people: int, facts: Facts) -> str:
    """What people would still answer for a share of right rows, and its price."""
    assert facts.own is not None
    price = facts.budget.price
    cost = f" for {money(people * price)}" if price else ""
    answered = f"people answer {plural(people, 'more row')}{cost if people else ''}"
    return f"{answered}, the model labels {count(facts.own.rest - people)}"


def gain_words(gain: Gain) -> str:
    """What more labels would add, or why it cannot be estimated."""
    if gain.value is None or gain.low is None or gain.high is None:
        return (
            f"What {gain.more} more training labels would add cannot be estimated: {gain.reason}."
        )
    value, low, high = (f"{100 * share:.1f}" for share in (gain.value, gain.low, gain.high))
    return (
        f"{gain.more} more training labels would add some {value} points of accuracy"
        f" (90% interval {low} to {high})."
    )


def total_words(row: ClassTotal) -> str:
    """A class's corrected number of items with its interval; a dash where nothing was measured."""
    if row.total is None or row.low is None or row.high is None:
        return "–"
    return f"{count(round(row.total))} ({count(round(row.low))} to {count(round(row.high))})"


def commands(facts: Facts) -> list[tuple[str, str]]:
    """(what for, command) of the next steps."""
    path, budget, column = facts.run, facts.budget, facts.column
    judges_other = column is not None and column.name == PREDICTED
    run, python = shlex.quote(path), facts.method.python
    waits = facts.audit is not None and facts.audit.waits
    kind = facts.data.format.partition(":")[0]
    kind = kind if kind in ("tsv", "jsonl", "json", "xlsx", "parquet") else "csv"
    if waits:
        steps = [
            ("Enter what further people answered", f"stacksl answer {run} FILE..."),
            ("End the second look without them", f"stacksl change {run} --free --drop"),
        ]
    else:
        steps = [("Write the labeled table", f"stacksl export {run} --table labels.{kind}")]
    if not judges_other:  # there the model of another run is judged
        steps += [("Label new items", f"stacksl predict {run} new.{kind} --out labeled.{kind}")]
        steps += [("Measure the model on new items", f"stacksl evaluate {run} new.{kind}")]
    if (rows := facts.asking.disputed) and not waits:
        settle = f"Correct {plural(rows, 'answer')} where no two people agree and the first stands"
        steps.append((settle, f"stacksl label {run}"))
    promised = _promises(facts)
    if facts.audit is not None and (rows := unpaid(facts.audit.second, facts.audit.measures)):
        ask = f"Ask further people about {plural(rows, 'row')} of the second look"
        steps.append((ask, change_call(path, {"budget": budget.labels + rows}, python=python)))
    doubtful = 100 if column is None else column.flagged
    second_look = column and column.audit and column.audit.second
    reserved = 2 * second_look.askable if second_look else 0  # they come first
    if (added := min(doubtful, _free(facts) - reserved)) > 0 and not promised:
        check = f"Let people check {plural(added, 'label')}, the least certain first"
        if reserved:
            check += f", and give {plural(reserved, 'label')} to open audited rows"
        settings = {"budget": budget.labels - budget.unused + added + reserved}
        purpose = f"Buy {added} more" if column is None else check
        steps.append((purpose, change_call(path, settings, python=python)))
    trainable = facts.audit and not (waits or facts.audit.trained_on or facts.language)
    if trainable and not (promised or judges_other):
        steps.append(("Train on the audit as well", f"stacksl change {run} --train-on-audit"))
    return steps


# A run that adapts a language model ---------------------------------------------------------------

STEERED = (
    "While labels were bought, a head on the model’s own states, updated after every label, added "
    "to the model’s scores; it steered the purchases and is not part of the model."
)
RANKED = (
    "Items were ranked by the model’s own scores: the base’s until a refit, then the last refit’s."
)
DRAWN = (
    " Before that, labels that choose how its scores are made were drawn at random, if too few"
    " were owned."
)


def steered(facts: Facts) -> str:
    """What decided the purchases; empty where they were drawn."""
    if facts.method.mode == "stream":
        return STEERED
    if facts.method.gate == "random":
        return ""
    chosen = any((row.name, row.value) == ("lm.normalization", "auto") for row in facts.settings)
    return RANKED + DRAWN * chosen


def license(model: LanguageModel) -> str:
    """The license of the base model, or that it is not known."""
    if model.license is None:
        return (
            f"The base model {model.base} names no license in its folder: find out its license,"
            " which also holds for the adapted model."
        )
    return (
        f"The license of the base model {model.base} is {model.license}; it also holds for the"
        " adapted model."
    )


def base_of(facts: Facts) -> CurvePoint | None:
    """The accuracy of a language model without a label on the test file."""
    return facts.curve[0] if facts.language and facts.curve else None


def change_of_base(facts: Facts) -> str:
    """What all labels together added to the base model's accuracy; empty where that is unknown."""
    base = base_of(facts)
    if base is None:
        return ""
    points = 100 * (facts.curve[-1].accuracy - base.accuracy)
    change = f"added {points:.1f} points" if points >= 0 else f"took {-points:.1f} points away"
    learned = facts.curve[-1].labels
    start = f"Without a label the base model answers {percent(base.accuracy)} correctly"
    return f"{start}; {plural(learned, 'label')} {change}." if learned else f"{start}."
