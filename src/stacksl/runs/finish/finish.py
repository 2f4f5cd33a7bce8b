"""The end of a run, after the last answer: final model, test and report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from stacksl.features import FeatureMap
from stacksl.files.atomic import make_private, write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.models.audit import Audit, judge_audit
from stacksl.report.facts import Facts
from stacksl.runs.finish.adapters import AdapterEnding
from stacksl.runs.finish.facts import facts_of
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.progress import Progress, Report, silent
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.derived import MODEL, note_derived
from stacksl.runs.storage.folder import (
    FACTS,
    NO_TEXT,
    RunFolder,
    anchors,
    read_facts,
    shown_facts,
)
from stacksl.runs.storage.status import now


def finish(
    spec: RunSpec,
    game: Game,
    features: FeatureMap,
    report: Report,
    state: dict[str, Any],
    audit: Audit | None = None,
) -> None:
    """Save, test and audit the final model, then write the report and the card.

    No file written earlier reveals a result of the `audit`.
    """
    made = AdapterEnding if spec.settings.adapts else HeadEnding
    ending = made(spec, game, features, report)
    tested = ending.test()
    if audit is not None:
        ids = [game.corpus.ids[row] for row in audit.rows]
        policies = dict(zip(ids, ending.policies(audit.rows), strict=True))
        judged = [
            judge_audit(policies, answers, passed_over=audit.passed_over)
            for answers in (audit.answers, audit.now)
        ]
        since = judged[1] if audit.revised else None
        tested = replace(tested, audited=judged[0], audited_now=since)
    tested = ending.with_curve(tested, audit)
    report(Progress("report", 0, 1))
    state.setdefault("finished", now())
    facts = ending.with_rest(facts_of(spec, game, ending, tested, state), tested)
    ending.save(tested, facts)
    note_derived(spec.folder, game.ledger, MODEL)
    if audit is not None:
        learnt = len(game.examples.bought)
        said = anchors(spec.folder).get(FACTS)
        later = () if said is None else game.ledger.rows(game.ledger.place(said) or 0)
        revised = any(row.event == "relabelled" for row in later)
        facts = _continued(facts, shown_facts(spec.folder), audit.number, learnt, revised=revised)
    _write_facts(spec.folder, game.ledger, facts)
    if facts.audit is not None and facts.audit.trained_on:
        refit_with_audit(spec, game, features, audit)
    report(Progress("report", 1, 1))


def _continued(
    facts: Facts, before: Facts | None, number: int, learnt: int, *, revised: bool
) -> Facts:
    """The facts with the audit's number, whether it was shown, and whether it was trained on.

    Its labels stay in the final head until something else is learnt.
    """
    assert facts.audit is not None
    audit = replace(facts.audit, number=number, learnt=learnt, shown_at=learnt)
    old = None if before is None else before.audit
    if before is not None and old is not None and old.number == number:
        same = old.learnt == learnt and _made_of(before) == _made_of(facts) and not revised
        audit = replace(
            audit,
            shown_before=old.shown_before or not same,
            shown_at=old.shown_at,
            trained_on=old.trained_on if same else 0,
        )
    return replace(facts, audit=audit)


def _made_of(facts: Facts) -> tuple[object, ...]:
    """What a model depends on besides labels: items and classes."""
    return facts.data.items, facts.data.classes


def refit_with_audit(spec: RunSpec, game: Game, features: FeatureMap, audit: Audit | None) -> int:
    """Fit a finished run's final head on its audit's labels too, save it, and return their number.

    It is fitted as the final model was (on labels alone, with names, or with neighbours as well).
    The report keeps the accuracy of the model before and says so, since no unseen label is left to
    measure the new one.

    Raises:
        RunError: there is no final head, or the audit has no label.
    """
    ending = HeadEnding(spec, game, features, silent)
    model, count = ending.model_of_audit(audit)
    facts = read_facts(spec.folder)
    assert facts.audit is not None  # its labels were trained on
    marked = replace(facts, audit=replace(facts.audit, trained_on=count))
    # first, so that no model is saved whose report says that it is the one that was measured
    _write_facts(spec.folder, game.ledger, marked)
    ending.save_model(model)
    note_derived(spec.folder, game.ledger, MODEL)
    return count


def _write_facts(folder: RunFolder, ledger: Ledger, facts: Facts) -> None:
    """Write the facts, the report and the model card."""
    write_atomic(folder.path / FACTS, facts.to_json())
    note_derived(folder, ledger, FACTS)
    write_pages(folder, ledger)


def write_pages(
    folder: RunFolder, ledger: Ledger, *, text: bool = True, class_names: bool = False
) -> Path:
    """The report and the model card, from the facts on disk; the path of the report.

    Pages without text are in a folder of their own, so that the others are not sent by mistake.
    """
    from stacksl.report import card, render

    facts = read_facts(folder)
    place = folder.path if text else folder.path / NO_TEXT
    if not text:
        make_private(place)
    write_atomic(place / "report.html", render(facts, text=text, class_names=class_names))
    write_atomic(place / "README.md", card(facts, text=text, class_names=class_names))
    names = ("report.html", "README.md")
    note_derived(folder, ledger, *(names if text else (f"{NO_TEXT}/{name}" for name in names)))
    return place / "report.html"
