"""The model card: the README.md of a run's folder, in Markdown with simple front matter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from stacksl.report import adapted, audited, wording
from stacksl.report.facts import Facts
from stacksl.report.named import Named
from stacksl.report.quality import Calibration, ClassRow, TestResult
from stacksl.report.tables import never_seen, without_text

_MARKS = re.compile(r"([\\`*_{}\[\]<>()#|~!&$])")


def model_card(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The card of a run's facts; ends with a newline, equal for equal facts.

    Args:
        facts: what to show.
        text: False leaves out what the data's owner worded, class names included.
        class_names: True keeps those in a card without text.
    """
    shown = facts if text else without_text(facts, class_names)
    parts = (
        _front_matter(shown),
        _opening(shown),
        _use(shown),
        _language(shown),
        _budget(shown),
        _result(shown),
        _answers(shown),
        _certificate(shown),
        _limits(shown, named=text or class_names),
        _training(shown),
        _data(shown),
        _versions(shown),
    )
    return wording.clean("\n\n".join("\n".join(part) for part in parts if part)) + "\n"


def plain(text: str) -> str:
    """`text` on one line with Markdown's marks escaped, so that it is read as it was written.

    >>> plain("a *b* <script>")
    'a \\\\*b\\\\* \\\\<script\\\\>'
    """
    return _MARKS.sub(r"\\\1", wording.excerpt(text, 200))


def _front_matter(facts: Facts) -> list[str]:
    """YAML that model hubs read; nothing in it comes from the data."""
    lines = ["---", "library_name: stacksl", *_base_keys(facts), "tags:"]
    lines += ["- label-budget", "- active-learning"]
    if facts.data.classes is not None:
        lines.append("pipeline_tag: text-classification")
    return [*lines, "---"]


def _base_keys(facts: Facts) -> list[str]:
    if facts.language is None:
        return []
    base = facts.language.base
    keys = {"base_model": base.name, "license": base.licence}
    return [f"{key}: {json.dumps(value)}" for key, value in keys.items() if value is not None]


def _opening(facts: Facts) -> list[str]:
    lines = [f"# {plain(facts.title)}", ""]
    if wording.state_note(facts):
        lines += [f"> {wording.state_note(facts)}", ""]
    said = (wording.bought(facts), plain_sentence(wording.outcome(facts)), adapted.change(facts))
    return [*lines, " ".join(sentence for sentence in said if sentence)]


def _use(facts: Facts) -> list[str]:
    kind = (
        "It picks one of the options that each item brings."
        if facts.data.classes is None
        else f"It gives one of {wording.plural(facts.data.classes, 'class', 'classes')}."
    )
    return [
        "## Use",
        "",
        f"{kind} It is meant for items like those it was trained on. From this folder's parent:",
        "",
        "```python",
        "import stacksl",
        "",
        f"run = stacksl.Run.open({json.dumps(wording.clean(facts.run))})",
        'for row in run.predict("items.jsonl"):',
        "    print(row)",
        "```",
        "",
        "or `stacksl predict RUN items.jsonl`; `stacksl evaluate RUN test.jsonl` measures it on"
        " items with answers. `report.html` shows the run in full.",
        *_without_us(facts),
    ]


def _without_us(facts: Facts) -> list[str]:
    """How the model is used with nothing of ours installed, where it can be."""
    if facts.language is None:
        return []
    lora = facts.language.kind == "lora"
    reader = "peft's `AutoPeftModelForCausalLM`" if lora else "transformers' `AutoModelForCausalLM`"
    return [
        "",
        f"The folder `model/` has a card of its own and is read by {reader} with nothing of"
        " stacksl installed. Predictions come from it alone.",
    ]


def _language(facts: Facts) -> list[str]:
    model = facts.language
    if model is None:
        return []
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", model.scoring.template)), default=0))
    return [
        "## Language model",
        "",
        plain_sentence(adapted.licence(model)),
        "",
        *_table(_named(adapted.model_rows(model))),
        "",
        "The template of a prompt:",
        "",
        f"{fence}text",
        *model.scoring.template.split("\n"),
        fence,
        "",
        *_table(_named(adapted.cost_rows(facts))),
    ]


def _budget(facts: Facts) -> list[str]:
    budget = facts.budget
    rows = [
        ("Budget", wording.plural(budget.labels, "label")),
        ("Asked", wording.count(budget.asked)),
        ("Answered and learnt", wording.count(budget.answered)),
        ("Left", wording.count(budget.left)),
        ("Items seen", f"{wording.count(budget.rounds)} of {wording.count(budget.horizon)}"),
    ]
    if budget.price is not None:
        rows.append(("Price of a label", wording.money(budget.price, budget.currency)))
    if budget.money is not None:
        rows.append(("Budget in money", wording.money(budget.money, budget.currency)))
    if budget.spent_money is not None:
        rows.append(("Spent", wording.cost(facts)))
    if budget.owned:
        rows.append(("Owned before, free", wording.count(budget.owned)))
    if budget.audit:
        rows.append(("For the audit, kept out of training", wording.count(budget.audit)))
    if budget.released:
        rows.append(("Released unanswered", wording.count(budget.released)))
    return ["## Label budget", "", *_table(rows)]


def _result(facts: Facts) -> list[str]:
    lines = ["## Result", ""]
    if facts.audit is None and facts.test is None:
        return [*lines, plain_sentence(facts.no_test)]
    if facts.audit is not None:
        lines += _table(_named(audited.audit_rows(facts.audit)))
        lines += ["", plain_sentence(" ".join(audited.notes(facts)))]
    if facts.test is not None:
        lines += [*([""] if facts.audit else []), *_table(_test_rows(facts.test))]
    if facts.calibration is not None:
        lines += ["", _calibration(facts.calibration)]
    return [*lines, *_normalisations(facts)]


def _test_rows(test: TestResult) -> list[tuple[str, str]]:
    rows = [
        ("Test file", plain(test.file)),
        ("Right", f"{wording.count(test.correct)} of {wording.count(test.n)}"),
        ("Accuracy", wording.percent(test.accuracy, 2)),
        ("95% interval", wording.interval(test.low, test.high, 2)),
    ]
    if test.macro_f1 is not None:
        rows.append(("Macro F1", wording.percent(test.macro_f1, 2)))
    if test.unusable:
        rows.append(("Unusable rows, counted as wrong", wording.count(test.unusable)))
    return rows


def _calibration(found: Calibration) -> str:
    kind = "audited item" if found.source == "audit" else "test item"
    return (
        f"Expected calibration error over {wording.plural(found.n, kind)}:"
        f" {wording.percent(found.ece, 2)}."
    )


def _answers(facts: Facts) -> list[str]:
    asking = facts.asking
    if asking is None or not asking.answers:
        return []
    costs = [(f"By {name}", value) for name, value in _named(audited.cost_rows(facts))]
    changes = _named(audited.change_rows(facts))
    rows = [*_named(audited.answer_rows(asking)), *costs, *changes]
    told = ["", asking.abstaining] if asking.abstaining else []
    return ["## Answers", "", *_table(rows), *told]


def _normalisations(facts: Facts) -> list[str]:
    rows = facts.language.normalisations if facts.language else ()
    if not rows:
        return []
    table = [
        (f"`{row.name}`{', this run' if row.own else ''}", adapted.normalisation_words(row))
        for row in rows
    ]
    return ["", "The same log-likelihoods as scores in four ways:", "", *_table(table)]


def _certificate(facts: Facts) -> list[str]:
    lines = ["## Certificates", ""]
    lines.append(
        f"Every one of the {wording.plural(facts.budget.rounds, 'round')} left a certificate in "
        "`ledger.db`: the choice, the statistic, the threshold and the reason."
    )
    score = facts.gate_score
    if facts.language is not None:
        rows = [(f"Epoch {row.epoch}", adapted.epoch_words(row)) for row in facts.language.epochs]
        lines += ["", adapted.PROMISE, "", *_table(rows)]
    elif score is not None:
        lines += [
            "",
            f"Gate score: {wording.number(score.total, 4)} over "
            f"{wording.plural(score.rounds, 'round')}, {wording.number(score.asked, 4)} of it on "
            f"asked ones. {wording.gate_score_meaning(facts)}",
        ]
    before = facts.before_label
    if before is not None and before.n:
        share = wording.percent(before.correct / before.n)
        lines += ["", f"Accuracy before each label was seen: {share}. {wording.asked_note(facts)}"]
    return lines


def _limits(facts: Facts, *, named: bool) -> list[str]:
    lines = ["## Limits", ""]
    if facts.audit is not None:
        which = ", and for the model before it learnt the audit" if facts.audit.trained_on else ""
        lines.append(
            f"- The audited accuracy holds for new items from the source of the pool{which}."
        )
    if facts.test is not None:
        lines.append("- The test accuracy holds for items drawn like those of the test file.")
    if facts.audit is None and facts.test is None:
        lines.append("- Its accuracy on new items is not known.")
    never = never_seen(facts)
    if never:
        which = f": {', '.join(map(plain, never))}" if named else ""
        lines.append(
            f"- {wording.plural(len(never), 'class', 'classes')} never got a label{which}."
        )
    weak = _weakest(facts)
    if weak:
        lines.append(f"- Lowest recall on {wording.measured_on(facts)}: {weak}.")
    lines.append("- The labels it bought are not a uniform sample: the gate chose them.")
    lines += [f"- {plain_sentence(warning)}" for warning in facts.warnings]
    return lines


def _weakest(facts: Facts) -> str:
    """The classes whose recall is surely low: by the high end of its interval where it is known."""
    tested = [row for row in facts.classes if row.recall is not None]

    def surely(row: ClassRow) -> tuple[float, float, str]:
        recall = row.recall or 0.0
        return (recall if row.high is None else row.high, recall, row.name)

    worst = sorted(tested, key=surely)[:3] if len(tested) > 3 else []
    return ", ".join(f"{plain(row.name)} ({_recall(row)})" for row in worst)


def _recall(row: ClassRow) -> str:
    said = wording.percent(row.recall)
    if row.low is None or row.high is None:
        return said
    return f"{said}, 95% interval {wording.interval(row.low, row.high)}"


def _training(facts: Facts) -> list[str]:
    method = facts.method
    rows = [
        ("Aim", method.aim),
        ("Gate", method.gate),
        ("Scorer", method.scorer),
        ("Features", method.features),
        ("Follower", method.follower),
        ("Labeler", method.labeler),
        ("Mode and order", f"{method.mode}, {method.order}"),
        ("Seed", str(method.seed)),
    ]
    if method.preset:
        rows.append(("Preset", method.preset))
    final = facts.refit.sentence if facts.refit else "There is no final model yet."
    table = _table([*((name, plain(value)) for name, value in rows), *_refits(facts)])
    steered = [adapted.STEERED, ""] if facts.language else []
    how = audited.compared(facts.refit)
    chosen = [how, ""] if how else []
    return ["## Training", "", plain_sentence(final), "", *chosen, *steered, *table]


def _refits(facts: Facts) -> list[tuple[str, str]]:
    """What fixes a refit, then each of them."""
    model = facts.language
    if model is None:
        return []
    done = [
        (
            f"Refit {row.number}, {wording.plural(row.labels, 'label')}",
            adapted.refit_words(row),
        )
        for row in model.refits
    ]
    return [*_named(model.training), *done]


def _data(facts: Facts) -> list[str]:
    data = facts.data
    low, high = wording.count(data.options_min), wording.count(data.options_max)
    rows = [
        ("Name", plain(data.name)),
        ("Format", plain(data.format)),
        ("Items", wording.count(data.items)),
        ("Options of an item", low if low == high else f"{low} to {high}"),
        ("Rows set aside", wording.count(data.rejected_total)),
    ]
    rows += [(f"– {plain(row.name)}", plain(row.value)) for row in data.rejected]
    source = [plain_sentence(data.source), ""] if data.source else []
    return ["## Data", "", *source, *_table(rows)]


def _versions(facts: Facts) -> list[str]:
    rows = _named((*facts.versions, *facts.fingerprints))
    if not rows:
        return []
    return ["## Versions", "", *_table(rows)]


def _named(rows: Iterable[Named]) -> list[tuple[str, str]]:
    return [(plain(row.name), plain(row.value)) for row in rows]


def plain_sentence(text: str) -> str:
    """A sentence of the run with markup made harmless; code spans stay as they are."""
    return " ".join(text.replace("<", "&lt;").replace("[", r"\[").split())


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """A Markdown table of two columns, whose heads Markdown wants and nobody needs."""
    return [
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
    ]
