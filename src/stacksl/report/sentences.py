"""Sentences and named values that page and model card share; of the audit they are in `answers`."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from stacksl.report.answers import audited, in_counts, promises
from stacksl.report.facts import Facts, LanguageModel, Refit
from stacksl.report.quality import (
    AuditResult,
    Calibration,
    ClassTotal,
    ColumnFacts,
    CurvePoint,
    Gain,
    LabeledShare,
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
    of_run,
    percent,
    plural,
    spread,
)

NOT_KNOWN = (
    "The model's accuracy on new items is not known: there was neither an audit (--audit N) nor a"
    " test file (--test FILE)."
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
    """Why labels of an audit are left, and what spends those of a second look in `run`, if any."""
    if withdrawn := facts.budget.withdrawn:
        return f"{plural(withdrawn, 'label')} of withdrawn audited rows cannot be spent on others."
    if not facts.budget.unused or facts.stopped:  # which says why buying ended
        return ""
    call = change_call(run, {"budget": facts.budget.labels}, python=facts.method.python)
    has_rows = _free(facts) > 0 and not _setting(facts, "stop_when").startswith("accuracy")
    advice = f": `{call}` asks about more rows" if run and has_rows else ""
    return f"The second look left {plural(facts.budget.unused, 'label')} unspent{advice}."


def outcome(facts: Facts) -> str:
    """The accuracy with its interval, or that it is not known; then the sentences on labels."""
    accuracy = "" if facts.audit is None else audited(facts.audit, facts.run)
    sentences = [accuracy, *in_table(facts), *_limits(facts)]
    stopped = of_run(f"{facts.stopped} {facts.details}".rstrip(), facts.run)
    unknown = "" if promises(facts) else NOT_KNOWN
    paragraphs = [" ".join(filter(None, sentences)) or unknown, stopped]
    return " ".join(reversed(paragraphs) if promises(facts) else paragraphs).strip()


def _limits(facts: Facts) -> list[str]:
    """What the audit says nothing of or counts as wrong, and the result of a test file."""
    sentences = [outside(facts)]
    if rows := facts.audit.none_before if facts.audit else 0:
        counts, run = "counts" if rows == 1 else "count", shlex.quote(facts.run)
        sentences.append(
            f"{plural(rows, 'audited row')} answered with none of these before a class was added"
            f" {counts} as wrong: `stacksl change {run} --reopen` asks again."
        )
    return [*sentences, tested(facts)]


def opening(facts: Facts) -> tuple[list[str], str]:
    """What is said first, the part asked for before the other; what explains it for a column."""
    if facts.column is None:
        paragraphs = [bought(facts), outcome(facts)]
        return paragraphs[::-1] if promises(facts) else paragraphs, ""
    share, details = column_words(facts.column, facts, facts.run)
    table, of_left = in_table(facts)
    stopped, reasons = of_run(facts.stopped, facts.run), of_run(facts.details, facts.run)
    result = " ".join(filter(None, [stopped, share, table, bought(facts)]))
    explained = filter(None, [reasons, of_left, details, *_limits(facts)])
    return [*filter(None, [facts.stated, result])], " ".join(explained)


def column_words(column: ColumnFacts, facts: Facts, run: str) -> tuple[str, str]:
    """How many of the labels that the data had are right; how many are doubtful and corrected.

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
    result, text = text, ""
    if column.unasked:
        marked = f"the exported table marks {count(column.flagged)} as doubtful"
        no_doubt = "none has a doubtful label: if some are wrong, the texts do not show which"
        doubt = marked if column.flagged else no_doubt
        text += f" Of {plural(column.unasked, 'row')} that nobody answered {doubt}."
    if column.asked:
        text += f" People named a class for {count(column.asked)} of the most doubtful labels."
    if column.changed:
        audited = ", with those of the audit," if audit is not None and audit.n else ""
        text += f" People's answers{audited} changed {plural(column.changed, 'label')}"
        unclear = column.changed - column.mended
        detail = f": {count(column.mended)} found to be wrong, and {count(unclear)} unclear"
        text += f" of the exported table{detail if unclear else ''}."
    if audit is not None and audit.accuracy is not None and not audit.passed_over:
        limit = 1 - column.mended / column.labeled
        if limit < audit.accuracy:
            text += f" At most {percent(limit)} of all were right, if none of these corrections is"
            text += " wrong. The audit shows more because some are wrong, or because its rows were"
            text += " better than the others."
    if audit is not None and (second_look := audit.second) is not None:
        settle = None if audit.passed_over or facts.stated else settled_by(facts, run)
        text += f" {in_counts('audited label', audit, settle, first=False)}."
        if second_look.errors is not None:
            rate, low, high = second_look.errors
            text += f" People err in an estimated {percent(rate)} of answers"
            text += f" (95% interval {interval(low, high)})."
    return result, text.lstrip()


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


def compared(fell: bool | None, min_p: float, p: float, *sides: str) -> str:
    """Whether the accuracy of new rows is lower, with the ends of the p-value and both counts."""
    verdict = {True: "is lower", False: "is not lower beyond chance", None: "may be lower"}[fell]
    ends = f"p = {p:.3f}" if min_p == p else f"p from {min_p:.3f} to {p:.3f}"
    ends = "p < 0.001" if p < 0.0005 else ends
    sentence = f"The new accuracy {verdict} (one-sided {ends}). {'. '.join(sides)}."
    return f"{sentence} This may change when open rows are settled." if fell is None else sentence


def in_table(facts: Facts) -> tuple[str, str]:
    """How many labels of the exported table are right, and of the rest; empty if not known."""
    column = facts.column
    audit = facts.audit if column is None else column.audit
    by = "the column" if column and column.name != PREDICTED else "the model"
    if (table := facts.table) is None or audit is None:
        return "", ""
    agree = audit.measures != "accuracy"
    counted, source, labeler = "people's labels", "by people", _setting(facts, "labeler")
    if facts.method.python or labeler not in ("", "file"):
        counted, source = "bought labels", "by the labeler"
        label_columns = [column.value for column in facts.data.columns if column.name == "label"]
        if label_columns and labeler == "oracle" and not facts.method.python:
            source = f"from the file's column '{label_columns[0]}'"
    if any(role.name == "with a label owned before" for role in facts.data.roles):
        counted, source = "these labels", f"{source} or owned"
    people = f"counting {counted} as {'agreeing' if agree else 'right'}"
    if table.errors is not None:
        people = f"with people wrong in an estimated {percent(table.errors)} of theirs"
        if audit.second and audit.second.errors and table.errors < audit.second.errors[0]:
            people += " (fewer than of single answers: a row that was asked again has the label"
            people += " that two people gave)"
    exclusion = ", without its labels of rows added later" if audit.rows_after else ""
    if by == "the column" and column and column.labeled < facts.data.items:
        exclusion = ", without the model's labels of rows that have none there"
    of_left = ""
    if table.left is not None and table.left < 1:  # else the interval says what may be wrong
        of_left = f" Of the labels by {by}, in rows that nobody answered, an estimated"
        of_left += f" {percent(table.left)} {_are_right(audit)}."
    bounds = spread(table.low, table.high, audit.look)
    return (
        f"Of the {plural(table.people + table.model, 'label')} in the exported table"
        f" ({count(table.people)} {source}, {count(table.model)} by {by}{exclusion}) an estimated"
        f" {percent(table.share)} {_are_right(audit)}"
        f" ({bounds}), {people}."
    ), of_left.lstrip()


def outside(facts: Facts, *, ended: bool = True) -> str:
    """What was added after the audit was drawn, of which it says nothing; empty without any.

    A run that goes on, not `ended`, may have another audit under way, and none is offered.
    """
    audit = facts.audit
    if audit is None or not (audit.rows_after or audit.classes_after):
        return ""
    added = []
    if audit.rows_after:
        added.append(f"{count(audit.rows_after)} of {plural(audit.rows, 'row')}")
    if extra := audit.classes_after:
        added.append(f"{count(extra)} of {plural(facts.data.classes or extra, 'class', 'classes')}")
    sentence = f"The audit says nothing about {' and '.join(added)} added after it was drawn"
    offered = ended and facts.column is None and not promises(facts)
    if offered and _free(facts) >= NEW_AUDIT:
        sentence += f"; a budget of {NEW_AUDIT} labels more has an audit of all rows that are left"
    return f"{sentence}."


PREDICTED = "predicted"  # the column of labels that an audit of new rows judges


def _free(facts: Facts) -> int:
    """How many more labels a changed budget can buy."""
    never_asked = {row.name: int(row.value) for row in facts.data.roles}.get("never asked for", 0)
    if facts.method.mode != "pool" and not facts.stopped:  # a stream passes an item once
        never_asked = 0
    per_item = 2 if facts.column is not None and "," in _setting(facts, "annotators") else 1
    return min(never_asked, per_item * facts.data.items - facts.budget.labels + facts.budget.unused)


def unpaid(second: SecondLook | None, measures: str, look: int) -> int:
    """The open rows of a second look that a larger budget pays for, where they are many.

    They are if no accuracy is stated, or if they are a twentieth; at a `look` nothing is asked.
    """
    rows = 0 if second is None else second.askable
    if second is not None and measures == "accuracy":
        rows *= not look and 20 * rows >= second.agreeing + second.differing
    return rows if rows < NEW_AUDIT else 0  # else a new audit takes its place


def _setting(facts: Facts, name: str) -> str:
    return next((row.value for row in facts.settings if row.name == name), "")


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


# The final model ----------------------------------------------------------------------------------

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
    further = "further answers to a row, which is learned once at most; or on erased items"
    rows = [
        (budget.answered, "learned", "the model was trained on them"),
        (budget.unlearned, "second answers", further),
        (budget.unnamed, "named no candidate", "none of these, ambiguous or broken; charged"),
        (budget.aside, "set aside", "answers of people who are set aside; charged"),
        (budget.open, "still out", "asked and not yet answered"),
        (budget.audit, "audit", "random items that only measure; never learned"),
        (budget.further, "second look", "further answers to rows of the audit; never learned"),
    ]
    return [(count(n), name, meaning) for n, name, meaning in rows if n]


def share_words(share: LabeledShare, items: OwnItems) -> str:
    """What share of the rest can be labeled at the accuracy wanted, or why that is not known."""
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
    path, budget, column, audit = facts.run, facts.budget, facts.column, facts.audit
    judges_other = column is not None and column.name == PREDICTED
    run, python = shlex.quote(path), facts.method.python
    waits = audit is not None and audit.waits
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
    promised = promises(facts)
    if audit is not None and (rows := unpaid(audit.second, audit.measures, audit.look)):
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
    trainable = audit and not (waits or audit.trained_on or facts.language)
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
    return RANKED + DRAWN if chosen else RANKED


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
