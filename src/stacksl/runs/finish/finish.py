"""The end of a run, after the last answer: final model, test and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.blocks import Array, Block
from stacksl.core.scorers import Head
from stacksl.errors import RunError
from stacksl.features import FeatureMap
from stacksl.files.atomic import make_private, write_atomic
from stacksl.models.audit import Audit, Audited, judge_audit
from stacksl.models.evaluation import Evaluation, Tested, judge, point
from stacksl.models.linear import Model
from stacksl.report.facts import Facts
from stacksl.report.quality import CurvePoint
from stacksl.runs.finish import adapter
from stacksl.runs.finish.abstention import train_threshold
from stacksl.runs.finish.facts import facts_of
from stacksl.runs.finish.own_items import Policies, least_sure, more_labels, own_items, rest_of
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer, linear_trainer
from stacksl.runs.loop.progress import Progress, Report
from stacksl.runs.session.build_learner import fresh_scorer, scorer_settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.anchors import anchors
from stacksl.runs.storage.folder import RunFolder, read_facts, shown_facts
from stacksl.runs.storage.status import now

CURVE = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)  # shares of the labels at which the curve is drawn
FEWER = (0.1, 0.25, 0.5)  # with more labels than MANY: every point is a search for C
MANY = 3000
HELD_OUT = 20  # items that a curve is measured on at least
NO_TEXT = "no-text"  # the folder of what may be forwarded
DERIVED = ("model", "facts.json", "report.html", "README.md", NO_TEXT)
"""What a finished run has beside its database, made again by a resume when it is deleted."""


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
    adapts = spec.settings.adapts
    tested = (adapter.save_and_test if adapts else _save_and_test)(spec, game, features, report)
    final = partial(adapter.policies if adapts else _policies, spec, game, features)
    if audit is not None:
        ids = [game.corpus.ids[row] for row in audit.rows]
        policies = dict(zip(ids, final(audit.rows), strict=True))
        judged = [
            judge_audit(policies, answers, passed_over=audit.passed_over)
            for answers in (audit.answers, audit.now)
        ]
        since = judged[1] if audit.revised else None
        tested = replace(tested, audited=judged[0], audited_now=since)
    tested = _with_curve(spec, game, tested, audit)
    report(Progress("report", 0, 1))
    state["finished"] = now()
    facts = facts_of(spec, game, features, tested, state)
    facts = _with_rest(spec, game, tested, facts, final)
    if audit is not None:
        learnt = len(game.examples.bought)
        said = anchors(spec.folder).get("facts.json")
        later = () if said is None else game.ledger.rows(said.count)
        revised = any(row.event == "relabelled" for row in later)
        facts = _continued(facts, shown_facts(spec.folder), audit.number, learnt, revised=revised)
    write_atomic(spec.folder.path / "facts.json", facts.to_json())
    write_pages(spec.folder)
    if facts.audit is not None and facts.audit.trained_on:
        refit_with_audit(spec, game, features, audit)
    report(Progress("report", 1, 1))


def _with_rest(spec: RunSpec, game: Game, tested: Tested, facts: Facts, final: Policies) -> Facts:
    """The facts with what the `final` model says of the items without an answer.

    A language model would have to read them all again, so a pool has the scores that ranked it.
    """
    adapts, pooled = spec.settings.adapts, spec.settings.mode == "pool"
    if adapts and not pooled:
        return facts
    rest = rest_of(game, partial(adapter.ranking, game) if adapts else final)
    if pooled:
        facts = replace(facts, contested=least_sure(game, rest))
    if adapts:
        return facts
    return replace(facts, own=own_items(game, tested, rest), more=more_labels(spec, game))


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


def _policies(spec: RunSpec, game: Game, features: FeatureMap, rows: Sequence[int]) -> list[Array]:
    model = _model(spec, game, features, game.trainer.head)
    return model.probabilities(game.examples.block.take(list(rows)))


def _model(spec: RunSpec, game: Game, features: FeatureMap, head: Head | None) -> Model:
    scorer = game.learner.scorer
    return Model(features, scorer, head, spec.dataset.classes, spec.dataset.columns)


def _save_and_test(spec: RunSpec, game: Game, features: FeatureMap, report: Report) -> Tested:
    """Save the head with its feature map, and test it."""
    trainer = linear_trainer(game)
    model = _abstaining(spec, _model(spec, game, features, trainer.head), trainer)
    model.save(spec.folder.model, asdict(scorer_settings(spec.settings)))
    report(Progress("refit", 1, 1))
    if spec.test is None:
        return Tested(threshold=model.abstaining)
    block = features.transform(spec.test.items, lambda n, of: report(Progress("test", n, of)))
    evaluation = judge(model.probabilities(block), spec.test)
    bought, test = len(trainer.examples.bought), spec.test
    points = _curve(spec, trainer, bought, block, lambda found: judge(found, test))
    curve = (*points, point(bought, evaluation))
    return Tested(evaluation, curve, threshold=model.abstaining)


def _abstaining(spec: RunSpec, model: Model, trainer: LinearTrainer) -> Model:
    """The model with the abstention threshold fitted on answers of none of these, if any."""
    untouched = fresh_scorer(spec.settings, trainer.examples.block)
    return replace(model, abstaining=train_threshold(trainer, untouched))


def refit_with_audit(spec: RunSpec, game: Game, features: FeatureMap, audit: Audit | None) -> int:
    """Fit the final head on the training and the audit's labels, and save it as the run's model.

    It is fitted as the final model was (on labels alone, with names, or with neighbours as well).
    The report keeps the accuracy of the model before and says so, since no unseen label is left to
    measure the new one.

    Args:
        spec: a finished run.
        game: with all learnt labels, and the final head.
        features: the fitted feature map of the run.
        audit: with its answers.

    Returns:
        The number of labels of the audit it was fitted on.

    Raises:
        RunError: there is no final head, or the audit has no label.
    """
    trainer = game.trainer
    if not (isinstance(trainer, LinearTrainer) and trainer.final and trainer.head is not None):
        raise RunError(
            f"expected a run with a final head to train on the audit, got {spec.folder.path}"
            " without one: finish it first; language models are not refitted with an audit"
        )
    more = [] if audit is None else audit.labels(game.corpus.ids)
    if not more:
        raise RunError(
            f"expected an audit with labels to train on, got none in {spec.folder.path}: its model"
            " was trained on all labels it has"
        )
    bought = [*game.examples.bought, *((row, index, index) for row, index in more)]
    wider = replace(trainer, examples=replace(game.examples, bought=bought), _source=None)
    wider.head = wider.as_if(len(bought), game.learner.scorer)
    model = _abstaining(spec, _model(spec, game, features, wider.head), wider)
    facts = read_facts(spec.folder)
    assert facts.audit is not None  # its labels were trained on
    marked = replace(facts, audit=replace(facts.audit, trained_on=len(more)))
    # first, so that no model is saved whose report says that it is the one that was measured
    write_atomic(spec.folder.path / "facts.json", marked.to_json())
    write_pages(spec.folder)
    model.save(spec.folder.model, asdict(scorer_settings(spec.settings)))
    return len(more)


def write_pages(folder: RunFolder, *, text: bool = True, class_names: bool = False) -> Path:
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
    return place / "report.html"


def _with_curve(spec: RunSpec, game: Game, tested: Tested, audit: Audit | None) -> Tested:
    """The results with a curve where there is no test file.

    It is measured on the audit, else on the last fifth of the labels bought, which are harder than
    new items; the final model has learnt those, so the curve ends before them.
    """
    trainer, bought = game.trainer, game.examples.bought
    if tested.curve or not isinstance(trainer, LinearTrainer) or not trainer.final:
        return tested
    known, ids = len(bought), game.corpus.ids
    answers, audited = {} if audit is None else audit.answers, tested.audited
    rows = () if audit is None else audit.rows
    if audited is None:
        known = round(0.8 * len(bought))
        answers = {ids[row]: ("label", label) for row, label, _ in bought[known:]}
        rows = tuple(row for row, _, _ in bought[known:])
    usable = game.corpus.usable
    rows = tuple(row for row in rows if usable[row])
    if len(rows) < HELD_OUT or (audited is not None and not audited.known):
        return tested

    def judged(policies: list[Array]) -> Audited:
        return judge_audit(dict(zip((ids[row] for row in rows), policies, strict=True)), answers)

    points = _curve(spec, trainer, known, trainer.examples.block.take(list(rows)), judged)
    if audited is not None:
        return replace(tested, curve=(*points, point(known, audited)), curve_on="audit")
    return replace(tested, curve=tuple(points), curve_on="bought")


def _curve(
    spec: RunSpec,
    trainer: LinearTrainer,
    upto: int,
    block: Block,
    measure: Callable[[list[Array]], Evaluation | Audited],
) -> list[CurvePoint]:
    """The points of final models fitted on the first labels only, fewer than `upto`.

    Each is fitted as the last one is, with C chosen by folds, and measured on `block`.
    """
    counts = sorted({round(share * upto) for share in (CURVE if upto <= MANY else FEWER)})
    untouched = fresh_scorer(spec.settings, trainer.examples.block)
    points = []
    for count in counts if trainer.final else []:
        head = trainer.as_if(count, untouched) if 0 < count < upto else None
        if head is not None:
            points.append(point(count, measure([np.asarray(p) for p in head.probabilities(block)])))
    return points
