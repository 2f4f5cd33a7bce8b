"""Report facts of a run: data, budget, method and quality, and all others put together.

All that the report says of items without an answer comes from one product of the model with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, replace
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.data import Dataset
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Word, counted, settled
from stacksl.models.audit import Audited, right_in_table
from stacksl.models.evaluation import Evaluation, Tested
from stacksl.models.forecast import FEWEST, gain
from stacksl.models.metrics import calibration_error, confusions, wilson
from stacksl.models.own_items import class_totals, labeled_share, table_choices
from stacksl.models.second_look import UNCLEAR, Answers, of_class
from stacksl.report import facts as f
from stacksl.report.quality import (
    AuditResult,
    Calibration,
    ClassRow,
    ClassTotal,
    ColumnClass,
    ColumnFacts,
    Confusion,
    Differing,
    Gain,
    Named,
    OwnItems,
    TableRight,
    TestResult,
)
from stacksl.runs.changes.added_classes import answered_none
from stacksl.runs.finish.adapters import AdapterEnding
from stacksl.runs.finish.answers import EVERY, answers_by_item, asking_of, table_answers
from stacksl.runs.finish.forecasting import Forecaster, known_of, options_of
from stacksl.runs.finish.heads import HeadEnding, unasked
from stacksl.runs.items.corpus import Corpus, Role
from stacksl.runs.loop.game import Examples, Game
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.spec import RunSpec, versions
from stacksl.runs.storage.status import present_warnings
from stacksl.types import copied

CONFUSIONS = 20  # pairs of classes listed
WANTED = (0.8, 0.9, 0.95, 0.97, 0.99)  # accuracies
MORE = 100  # labels
CHUNK = 4096  # items whose probabilities are held at a time
COUNTED = "ledger before this report, without rows on saved arrays"  # `verify` counts these as well


def facts_of(
    ending: HeadEnding | AdapterEnding, tested: Tested, state: Mapping[str, Any]
) -> f.Facts:
    """The facts of a run; `tested` has the results of its test file and its audit, if any."""
    spec, game = ending.spec, ending.game
    language = ending.language()
    audit = audit_fact(tested.audited)
    disputed = open_rows(answers_by_item(spec, game.ledger, EVERY), tested.column or tested.audited)
    if audit is not None and tested.audited is not None:
        leased = [r for r in game.ledger.rows(only=("reserved",)) if r.purpose == "audit"]
        drawn = max(row.seq for row in leased if row.token == 1 and not row.slot)
        rows_after, classes_after = game.ledger.added(drawn)
        items = len(spec.dataset.items) - len(spec.sources.excluded | spec.sources.erased)
        class_count, answers = len(spec.dataset.classes or ()), game.ledger.audited()
        added = {*range(class_count - classes_after, class_count)} - {*answers.values()}
        audit = replace(audit, rows=items, rows_after=rows_after, classes_after=len(added))
        asked_again = {*answered_none(spec, game.ledger)}.intersection(tested.audited.items)
        audit = replace(audit, none_before=len(asked_again))
    head = Named(COUNTED, "{:,} rows, last {}".format(*game.ledger.told_head))
    column = None if tested.column is None else column_facts(spec, game, tested, disputed)
    return f.Facts(
        title=spec.dataset.name,
        run=spec.folder.path.name,
        state=str(state.get("state", "finished")),
        created=str(state["created"]),
        finished=str(state.get("finished", "")),
        data=_data(spec, game),
        budget=_budget(spec, game, audit),
        method=f.Method(spec.settings.gate.name, spec.settings.mode, python="labeler" in state),
        test=tested_fact(spec.test, tested.evaluation),
        audit=audit,
        table=None if audit is None else table_fact(spec, game, audit, tested, column),
        column=column,
        asking=replace(
            asking_of(game.ledger, priced=spec.budget.money is not None),
            disputed=len(disputed),
            differing=tuple(Differing(**annotator) for annotator in state.get("differing", ())),
        ),
        curve=tested.curve,
        own=None if language is not None else own_items(spec, game, tested, ending.policies),
        more=None if language is not None else more_labels(spec, game),
        classes=class_rows(spec.dataset, game.examples, tested, disputed),
        confusions=confusion_rows(spec.dataset, tested, disputed),
        measured_on=source(tested),
        calibration=calibration(tested, disputed),
        refit=ending.refitted,
        settings=_settings(spec, game),
        versions=tuple(
            Named(name.removeprefix("version_"), value)
            for name, value in versions(spec.settings.plugins).items()
        ),
        fingerprints=(*ending.fingerprints, head),
        warnings=tuple(present_warnings(state, game.ledger, spec.settings.stop_when)),
        stopped=state.get("stopped", ""),
        details=state.get("details", ""),
        promised=state.get("promised"),
        language=language,
    )


def _data(spec: RunSpec, game: Game) -> f.DataCard:
    dataset = spec.dataset
    sizes = [len(item.candidates) for item in dataset.items]
    rejected = [row for part in spec.sources.parts for row in part.data.rejected]
    reasons = Counter(row.kind for row in rejected)
    return f.DataCard(
        name=dataset.name,
        format=dataset.format,
        items=len(dataset.items),
        options_min=min(sizes),
        options_max=max(sizes),
        classes=None if dataset.classes is None else len(dataset.classes),
        columns=tuple(Named(role, name) for role, name in sorted(dataset.columns.items())),
        rejected=tuple(Named(kind, str(n)) for kind, n in reasons.most_common()),
        rejected_total=len(rejected),
        roles=roles(game.corpus, game.ledger),
    )


def _budget(spec: RunSpec, game: Game, audit: AuditResult | None) -> f.Budget:
    ledger = game.ledger
    priced = spec.budget.money is not None
    budget = f.Budget(
        labels=ledger.accounts.budget,
        asked=ledger.accounts.asked,
        answered=0,
        left=ledger.accounts.left,
        rounds=len(game.examples.seen),
        price=spec.budget.price if priced else None,
        money=ledger.accounts.money,
        spent_money=ledger.accounts.spent_money if priced else None,
        audit=ledger.accounts.spent - ledger.accounts.asked - ledger.accounts.further,
        further=ledger.accounts.further,
        released=sum(1 for _ in ledger.rows(only=("released",))),
    )
    over = spec.settings.promised_share is None and not (audit and audit.waits)
    unused = over * min(ledger.accounts.left, spec.terms.further - ledger.accounts.further)
    withdrawn = over * max(0, min(budget.left - unused, sum(spec.terms.audits) - budget.audit))
    return replace(budget, unused=unused, withdrawn=withdrawn, **uses(game))


def _settings(spec: RunSpec, game: Game) -> tuple[f.SettingRow, ...]:
    """Every setting; those left open with what was chosen for them."""
    gate: Any = game.learner.gate
    chosen = {
        **{f"gate.{field.name}": getattr(gate, field.name) for field in fields(gate)},
        "scorer.name": game.learner.scorer.name,
    }
    rows = []
    for name, setting in spec.settings.flat().items():
        if name.startswith("lm.") and not spec.settings.adapts:
            continue
        value = chosen.get(name) if setting is None else setting
        text = "none" if value is None else str(value)
        rows.append(f.SettingRow(name, text, spec.resolved.origin[name]))
    return tuple(rows)


# --- quality -----------------------------------------------------------------------------------


def source(tested: Tested) -> str:
    """What the classes are measured on: the `test` file, or where there is none the `audit`."""
    return "audit" if tested.evaluation is None and tested.audited is not None else "test"


def open_rows(answers: Answers, audited: Audited | None) -> set[str]:
    """Rows on which no two people agree, and audited ones that a second look had no label for."""
    unconfirmed: set[str] = set()
    if audited is not None and audited.second is not None:
        rows = zip(audited.items, audited.gold.tolist(), audited.predicted.tolist(), strict=True)
        unconfirmed = {item for item, label, own in rows if label != own}
    return {
        item
        for item, item_answers in answers.items()
        if settled(item_answers) is None and (len(item_answers) > 1 or item in unconfirmed)
    }


def _judged(tested: Tested, disputed: Set[str]) -> Evaluation | Audited | None:
    audited = tested.audited if tested.column is None else tested.column
    return _settled(audited, disputed) if source(tested) == "audit" else tested.evaluation


def _settled(audited: Audited | None, disputed: Set[str]) -> Audited | None:
    """The answered rows of an audit, but for the `disputed` ones, whose truth is not known."""
    if audited is None:
        return None
    clear = np.array([item not in disputed for item in audited.items], dtype=np.bool_)
    rows = {name: getattr(audited, name)[clear] for name in ("gold", "predicted", "confidence")}
    return replace(audited, **rows)


def tested_fact(test: Dataset | None, evaluation: Evaluation | None) -> TestResult | None:
    """The final model on the test file."""
    if evaluation is None or test is None:
        return None
    low, high = evaluation.interval
    return copied(
        TestResult,
        evaluation,
        file=test.name,
        low=low,
        high=high,
        unusable=evaluation.unusable + evaluation.unknown,
    )


def audit_fact(audited: Audited | None) -> AuditResult | None:
    """The final model on the audit."""
    if audited is None:
        return None
    low, high = audited.interval
    return copied(AuditResult, audited, low=low, high=high)


def table_fact(
    spec: RunSpec, game: Game, audit: AuditResult, tested: Tested, column: ColumnFacts | None
) -> TableRight | None:
    """How many labels of the exported table are right; see `Facts.table`."""
    sources, answers = spec.sources, table_answers(spec, game.ledger)
    ids, classes_added = game.corpus.ids, audit.classes_after
    pool = [ids[row] for rows in sources.segments for row in rows]
    rows_judged = pool[: len(pool) - audit.rows_after]
    by_model = len(sources.usable.keys() & rows_judged - answers.keys())
    stated_elsewhere = spec.settings.promised_share is not None  # the promise says it
    if column is not None:
        by_model, audit = column.unasked, column.audit or audit
        stated_elsewhere |= column.audit is None or audit.passed_over > 0
    accuracy, interval, audit_size, of_left = audit.accuracy, (audit.low, audit.high), audit.n, None
    if (left := tested.left) is not None and left.answered:
        accuracy = of_left = left.accuracy
        interval, audit_size = left.interval, left.n
    if stated_elsewhere or accuracy is None or classes_added or not by_model:
        return None
    by_people = sum(isinstance(counted(given), int) for given in answers.values())
    error_rate, error_low, error_high = None, 0.0, 0.0
    if (second_look := audit.second) and second_look.errors and audit.measures == "accuracy":
        # of first answers, of which those are mended that two others overruled
        overruled = sum(counted(given) != given[0] for given in answers.values())
        mended = overruled / max(1, by_people)
        error_rate, error_low, error_high = (max(0.0, end - mended) for end in second_look.errors)
    errors = error_rate or 0.0, error_low, error_high
    right = right_in_table(by_people, by_model, (accuracy, *interval), errors, audit_size)
    return TableRight(by_people, by_model, *right, error_rate, of_left)


def column_facts(spec: RunSpec, game: Game, tested: Tested, disputed: Set[str]) -> ColumnFacts:
    """The labels of the run's column, as the newest audit judged them."""
    assert tested.column is not None
    audited, size = tested.column, 0 if tested.audited is None else tested.audited.n
    doubt, labels = linear_trainer(game).doubt, spec.sources.model_labels
    names = spec.dataset.classes or ()
    assert doubt is not None
    audited_words: dict[int, list[list[Word]]] = {index: [] for index in range(len(names))}
    answers, items = game.ledger.audited_by_all(), game.ledger.bought("audit")
    for item in items[len(items) - size :]:
        if (row := game.corpus.row[item]) < len(labels) and labels[row] >= 0:
            item_answers = answers.get(item, []) if item in spec.sources.usable else []
            audited_words[labels[row]].append([answer.word for answer in item_answers])
    second = audited.second
    unasked_rows = unasked(spec, game)
    column_labels = {game.corpus.ids[row]: label for row, label in enumerate(labels) if label >= 0}
    words = answers_by_item(spec, game.ledger, EVERY)
    labels_now = {item: counted(words[item]) for item in words.keys() & column_labels.keys()}
    changed = {item: word for item, word in labels_now.items() if word != column_labels[item]}
    return ColumnFacts(
        name=str(spec.settings.column),
        labeled=sum(label >= 0 for label in spec.sources.model_labels),
        unasked=len(unasked_rows),
        flagged=int(doubt.flagged[unasked_rows].sum()),
        asked=sum(choice >= 0 for _, _, choice in game.examples.bought),
        changed=len(changed),
        audit=audit_fact(audited),
        classes=tuple(
            ColumnClass(names[index], len(rows), *of_class(index, rows, second))
            for index, rows in audited_words.items()
        ),
        mended=sum(changed[item] not in UNCLEAR for item in changed.keys() - disputed),
    )


def class_rows(
    dataset: Dataset, examples: Examples, tested: Tested, disputed: Set[str]
) -> tuple[ClassRow, ...]:
    """The classes, with the labels bought of each; empty where items have their own options."""
    bought = Counter(label for _, label, _ in examples.bought)
    judged = _judged(tested, disputed)
    rows = [ClassRow(name, bought[at]) for at, name in enumerate(dataset.classes or ())]
    if judged is None:
        return tuple(rows)
    for at, row in enumerate(rows):
        gold, predicted = judged.gold == at, judged.predicted == at
        hits, n, called = int((gold & predicted).sum()), int(gold.sum()), int(predicted.sum())
        low, high = wilson(hits, n)
        measured: dict[str, Any] = {"recall": hits / n, "low": low, "high": high} if n else {}
        precision = hits / called if called else None
        rows[at] = replace(row, test_n=n, precision=precision, **measured)
    return tuple(rows)


def confusion_rows(dataset: Dataset, tested: Tested, disputed: Set[str]) -> tuple[Confusion, ...]:
    """What the final model mistakes for what, most frequent first, but for `disputed` rows."""
    judged, names = _judged(tested, disputed), dataset.classes
    if names is None or judged is None:
        return ()
    pairs = confusions(judged.gold.tolist(), judged.predicted.tolist())[:CONFUSIONS]
    return tuple(Confusion(names[gold], names[predicted], n) for gold, predicted, n in pairs)


def calibration(tested: Tested, disputed: Set[str]) -> Calibration | None:
    """Of the audit alone where there is one, but for `disputed` rows, else of the test file."""
    judged = _settled(tested.audited, disputed) or tested.evaluation
    if judged is None or not len(judged.gold):
        return None
    right = judged.gold == judged.predicted
    error = calibration_error(judged.confidence, right)
    kind = "test" if tested.audited is None else "audit"
    means = float(judged.confidence.mean()), float(right.mean())
    return Calibration(error, *means, len(right), kind)


# --- items and labels of the run itself ---------------------------------------------------------


def own_items(
    spec: RunSpec, game: Game, tested: Tested, policies: Callable[[Sequence[int]], list[Array]]
) -> OwnItems:
    """The final model on the items without an answer, judged by the audit or the test file.

    The audit takes precedence, since its items are like the run's own. Where a share of the table
    is promised, its looks say what is right in it. `policies` gives the probabilities of the items
    of given rows.
    """
    corpus, classes = game.corpus, game.corpus.items[0].candidates
    unanswered = np.isin(corpus.roles, [Role.POOL, Role.DUPLICATE, Role.REFERENCE])
    answers = table_answers(spec, game.ledger)
    answered_ids = {*game.ledger.bought(), *answers}  # the labels that are owned of texts, too
    unanswered[[corpus.row[item] for item in answered_ids]] = False
    rows = np.flatnonzero(unanswered)
    labels, probabilities = np.zeros(len(rows), np.int64), np.zeros(len(rows))  # of the likeliest
    for at in range(0, len(rows), CHUNK):
        span, batch = slice(at, at + CHUNK), policies(rows[at : at + CHUNK].tolist())
        labels[span] = [np.argmax(policy) for policy in batch]
        probabilities[span] = [np.max(policy) for policy in batch]
    judged = tested.audited or tested.evaluation
    none = np.zeros(0, dtype=np.int64)
    gold, predicted = (none, none) if judged is None else (judged.gold, judged.predicted)
    confidence = np.zeros(0) if judged is None else judged.confidence
    right = gold == predicted
    source = "" if judged is None else "audit" if tested.audited is not None else "test"
    totals: tuple[ClassTotal, ...] = ()
    choices: tuple[tuple[float, int], ...] = ()
    if all(item.candidates == classes for item in corpus.items):
        words = [word for word in map(counted, answers.values()) if isinstance(word, int)]
        human = np.array(words, dtype=np.int64)
        totals = class_totals(human, labels, gold, predicted, classes)
        promised = spec.settings.promised_share is not None
        if source == "audit" and len(rows) and not promised:
            learned = [row for row, _, _ in game.examples.bought]
            bought = np.array([np.max(policy) for policy in policies(learned)] if learned else [])
            of_all = len(human) + len(rows)
            choices = table_choices(confidence, right, probabilities, bought, of_all)
    return OwnItems(
        rest=len(rows),
        measured=len(gold),
        source=source,
        shares=tuple(labeled_share(confidence, right, probabilities, mark) for mark in WANTED),
        totals=totals,
        choices=choices,
    )


def more_labels(spec: RunSpec, game: Game) -> Gain:
    """What `MORE` labels are estimated to add, by the forecast from the training labels.

    The audit takes no part, as in the benchmark that measured how often the interval holds.
    """
    growth, labels = known_of(spec.settings, spec.dataset), len(game.examples.bought)
    if growth is None:
        return Gain(MORE, reason="growth was not measured for columns of labels or own options")
    level = Forecaster(spec, game).level(labels)
    if level is None:
        return Gain(MORE, reason=f"a forecast needs {FEWEST} labels chosen by the run")
    forecast = gain(growth, level, labels, MORE, options_of(spec))
    return Gain(MORE, forecast.value, forecast.low, forecast.high)


def uses(game: Game) -> dict[str, Any]:
    """What each training label was used for, by the fields of `report.facts.Budget`."""
    names = ("answered", "unlearned", "unnamed", "aside", "open")
    corpus, learned = game.corpus, {row for row, _, choice in game.examples.bought if choice >= 0}
    set_aside, counts = game.ledger.set_aside, dict.fromkeys(names, 0)
    counted: set[int] = set()
    for purchase in game.ledger.export():
        if purchase["purpose"] != "train" or purchase["state"] not in ("open", "answered"):
            continue
        row, is_aside = corpus.row[str(purchase["item"])], purchase["labeler"] in set_aside
        if purchase["state"] == "open":
            use = "open"
        elif purchase["kind"] != "label":
            repeated = row in learned or row in counted  # each item counts once as what trains
            use = "aside" if is_aside else "unlearned" if repeated else "unnamed"
            counted |= {row} if use == "unnamed" else set()
        elif row in learned and row not in counted and not is_aside:
            use = "answered"
            counted.add(row)
        else:
            use = "aside" if is_aside else "unlearned"
        counts[use] += 1
    counts["unlearned"] += game.ledger.accounts.asked - sum(counts.values())  # audited rows, again
    return counts


def roles(corpus: Corpus, ledger: Ledger) -> tuple[Named, ...]:
    """What the items are for; the counts add up to all items."""
    bought = np.zeros(len(corpus.items), dtype=np.bool_)
    bought[[corpus.row[item] for item in ledger.bought("train") if item in corpus.row]] = True
    free = corpus.roles == Role.POOL
    counts = {
        "asked for, to learn from": int((free & bought).sum()),
        "never asked for": int((free & ~bought).sum()),
        "of the audit": int((corpus.roles == Role.AUDIT).sum()),
        "reference rows for its interval": int((corpus.roles == Role.REFERENCE).sum()),
        "with a label owned before": int((corpus.roles == Role.OWNED).sum()),
        "with a text that has a label": int((corpus.roles == Role.DUPLICATE).sum()),
        "erased": int((corpus.roles == Role.ERASED).sum()),
    }
    return tuple(Named(name, str(n)) for name, n in counts.items() if n)
