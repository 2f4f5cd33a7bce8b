"""What is known before a run begins, as `stacksl run --dry-run` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacksl.cli.printing import as_json, facts, gate, rejected, share, table, visible
from stacksl.report.wording import MICRO, count, memory, money, plural

if TYPE_CHECKING:
    from stacksl.api import Plan
    from stacksl.data import Dataset
    from stacksl.runs.spec import RunSpec


def print_plan(plan: Plan, *, json: bool) -> None:
    """Print what a run would read, buy, cost and need."""
    from stacksl.api.forecasting import forecast_of_data, size_of

    if json:
        print(as_json(_facts(plan)))
        return
    data = understood(plan.spec.sources.pool)
    if plan.spec.settings.column is not None:  # its labels are no answers
        data = "\n".join(line for line in data.splitlines() if not line.startswith("answers:"))
    print(f"{data}\n\n{_planned(plan.spec)}", flush=True)
    if request := _request(plan.spec):
        print(f"\nOne request (nothing was sent):\n{as_json(request)}", flush=True)
    size = size_of(plan.spec)
    forecast = _shown_size(size) if size else shown_forecast(forecast_of_data(plan.spec))
    print(f"\n{forecast}")


def _facts(plan: Plan) -> dict[str, Any]:
    from stacksl.api.forecasting import forecast_of_data, size_of
    from stacksl.runs.finish.promise_sentences import expected_promise

    spec, cost = plan.spec, plan.spec.budget.cost
    return {
        "run": plan.out,
        "data": data_facts(spec.sources.pool),
        "test": _test(spec),
        "owned": len(spec.sources.owned),
        "labels": spec.budget.labels,
        "audit": spec.budget.audits[0],
        "second_look": spec.budget.further,
        "promise": expected_promise(spec) or None,
        "rounds": spec.sources.available,
        "money": None
        if cost is None
        else {"price": spec.budget.price / MICRO, "most": cost / MICRO},
        "forecast": forecast_of_data(spec),
        "size": size_of(spec),
        "settings": spec.settings.flat(),
        "request": _request(spec),
        "warnings": [*plan.warnings, *filter(None, [plan.comparison])],
    }


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """What was understood of the data."""
    sizes = [len(item.candidates) for item in dataset.items]
    return {
        "name": dataset.name,
        "format": dataset.format,
        "columns": dict(dataset.columns),
        "unused": list(dataset.unused),
        "items": len(dataset.items),
        "answers": len(dataset.answers),
        "classes": None if dataset.classes is None else len(dataset.classes),
        "candidates": [min(sizes), max(sizes)] if sizes else [0, 0],
        "rejected": rejected(dataset),
    }


def understood(dataset: Dataset) -> str:
    """The same in sentences, with every unusable row."""
    from stacksl.data import check

    return visible("\n".join(check(dataset)))


def _audit(spec: RunSpec, promised: float | None) -> str:
    """The expected precision of the audit, or how large one of a promise is."""
    from stacksl.models.promise import expected_look

    if promised is None:
        return audit_precision(spec)
    price, rows = spec.budget.price if spec.budget.cost else None, len(spec.sources.pool.items)
    answers = 1 + spec.settings.several_people
    return expected_look(promised, rows, spec.budget.labels, price, answers)


def _test(spec: RunSpec) -> dict[str, Any] | None:
    from stacksl.data import overlap

    test = spec.test
    if test is None:
        return None
    shared = overlap(spec.sources.pool.items, test.items)
    return {"name": test.name, "items": len(test.items), "shared": shared}


def shows_audit(spec: RunSpec) -> bool:
    """Whether something is to be said of the audit: a test file may stand in place of one."""
    return spec.test is None or spec.budget.audits[0] > 0


def audit_precision(spec: RunSpec) -> str:
    """The expected precision of the audit, and its share of the budget."""
    from stacksl.models.audit import expected_width
    from stacksl.runs.session.model_labels import NO_AUDIT
    from stacksl.runs.settings.conflicts import LOCAL, OPENAI

    if spec.settings.labeler_kind in (OPENAI, LOCAL):
        return NO_AUDIT
    agreement = spec.settings.labeler == "file" and not spec.budget.further
    people = f"with the {'annotators' if ',' in spec.settings.annotators else 'annotator'}"
    what = f"{f'agreement {people}' if agreement else 'accuracy'} on new items"
    if (column := spec.settings.column) is not None:
        verb = f"agree {people}" if agreement else "are right"
        what = f"share of labels in '{column}' that {verb}"
    return expected_width(spec.budget.audits[0], spec.budget.labels, what)


def _request(spec: RunSpec) -> dict[str, Any] | None:
    """What would be sent about the first item to a model on a server; None where none answers.

    The next items stand for the examples, whose labels are not known yet.
    """
    from stacksl.labelers.chat.endpoint import address
    from stacksl.labelers.chat.prompts import Shot
    from stacksl.runs.session.model_labels import questions
    from stacksl.runs.settings.conflicts import OPENAI

    if spec.settings.labeler_kind != OPENAI:
        return None
    server, (item, *others) = spec.settings.server, spec.sources.pool.items
    shots = [Shot(other.id, other.prompt, "(its label)") for other in others[: server.shots]]
    first, *_ = questions(spec.settings).of(item.prompt, item.candidates, shots).values()
    return {"url": address(str(server.url)), "body": first.body}


def _planned(spec: RunSpec) -> str:
    """What would be bought and measured, and at what price."""
    from stacksl.runs.finish.promise_sentences import expected_promise

    test, owned, second_look = _test(spec), len(spec.sources.owned), spec.budget.further
    promised, overlap = spec.settings.promised_share, spec.settings.sheets.overlap
    rows = len(spec.sources.pool.items)
    labels = f"{count(spec.budget.labels)} at most"
    if excluded := sum(row < rows for row in spec.sources.excluded):
        labels += (
            f", of {plural(rows - excluded, 'row')}, without {plural(excluded, 'row')} with the"
            " text of an example of a class or of a label that you have"
        )
    cost = None if spec.budget.cost is None else f"{money(spec.budget.cost)} at most"
    column = spec.settings.column
    judged = f"the labels in '{column}' are judged"
    if spec.budget.labels > spec.budget.audits[0] + second_look:
        judged += ", and the most doubtful ones are asked about"
    if promised is None and spec.evaluates is None:
        judged += "; --stop-when right=97% in place of --audit promises that share of the table"
    audit = _audit(spec, promised) if shows_audit(spec) or promised is not None else None
    second_words = plural(second_look, "label") + spec.budget.cost_of(second_look)
    second_words += " at most, to ask further people about audited items"
    if spec.settings.annotators.count(",") == 1:  # what they differ on stays open
        second_words += "; with two people the interval is about twice as wide as with three"
    return facts(
        [
            ("Owned", f"{plural(owned, 'label')} that you have" if owned else None),
            ("Labels", labels),
            ("Promise", expected_promise(spec) or None),
            ("Audit", audit),
            ("Second look", second_words if second_look else None),
            (
                "Overlap",
                f"{plural(overlap, 'row')} answered twice, within the budget" if overlap else None,
            ),
            ("Mailings", _mailings(spec) if spec.settings.labeler == "file" else None),
            (
                "Test",
                test
                and f"{count(test['items'])} items of {test['name']},"
                f" {count(test['shared']) if test['shared'] else 'none'} of them in the data",
            ),
            ("Cost", cost),
            ("Column", judged if column is not None else None),
            ("Strategy", gate(spec.settings.flat())),
            ("Model", spec.settings.lm.model),
            ("Features", None if spec.settings.adapts else spec.settings.features),
            ("Folder", f"{spec.folder.path} (nothing was written)"),
        ]
    )


def _mailings(spec: RunSpec) -> str:
    """In how many rounds of sheets the labels come, and how many rows would make ten of them."""
    rows, labels = spec.settings.open_questions, spec.budget.labels
    tenth = 25 * -(-labels // 250)
    hint = f"; with --open-questions {tenth}, {-(-labels // tenth)}" if tenth > rows else ""
    return f"{-(-labels // rows)} or more, of {plural(rows, 'row')} in all at most{hint}"


def shown_forecast(forecast: dict[str, Any], how: str = "", measure: str = "Accuracy") -> str:
    """The accuracy to expect from more labels, what it rests on, and `how` these were counted.

    The `measure` is the agreement with a model where that gave the labels.
    """
    lines = []
    if forecast["expected"]:
        header = ["Training labels", "To buy", measure, "90% interval"]
        priced = forecast["expected"][0]["cost"] is not None
        rows = [
            [count(row["labels"]), count(row["more"]), share(row["accuracy"]), _between(row)]
            + ([money(round(row["cost"] * MICRO))] if priced else [])
            for row in forecast["expected"]
        ]
        lines.append(table(header + (["Cost"] if priced else []), rows))
    estimate = forecast["now"]
    details: list[tuple[str, object]] = [
        ("Labels learned", f"{count(forecast['labels'])}{how}" if forecast["labels"] else None),
        (f"{measure} now", estimate and f"{share(estimate['accuracy'])} ({_between(estimate)})"),
        ("Rests on", forecast["rests_on"] or None),
        ("No forecast", forecast["reason"] or None),
    ]
    return "\n\n".join(part for part in (*lines, facts(details)) if part)


def _between(row: dict[str, Any]) -> str:
    digits = 2 if row["high"] - row["low"] > 0.02 else 3  # as many as the accuracy that is in it
    return f"{row['low']:.{digits}f} to {row['high']:.{digits}f}"


def _shown_size(size: dict[str, Any]) -> str:
    training = f"{memory(size['training'])}, {memory(size['fixed'])} in any batch"
    return facts(
        [
            ("Parameters", f"{count(size['parameters'])}, {size['dtype']}"),
            ("Trained", f"{count(size['moving'])} of them (a LoRA adapter)"),
            ("Tokens a pass", f"{count(size['tokens'])} ({size['path']})"),
            ("Refits", f"{size['refits']}, the last on {count(size['labels'])} labels"),
            ("Memory to score", memory(size["scoring"])),
            ("Memory to train", training),
            ("Free memory", memory(size["free"])),
        ]
    )
