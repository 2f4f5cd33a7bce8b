"""What comes after the last answer: the final model, its test, the report and the tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.data import Dataset
from stacksl.errors import RunError
from stacksl.features import FeatureMap
from stacksl.game.inputs import Array, Block
from stacksl.runs.adapting import Adaptation
from stacksl.runs.building import fresh_scorer, scorer_settings
from stacksl.runs.evaluation import Evaluation, Tested, judge, point
from stacksl.runs.folder import RunFolder, write_atomic
from stacksl.runs.handing import hand_over
from stacksl.runs.job import Job
from stacksl.runs.model import Model
from stacksl.runs.private import make_private
from stacksl.runs.progress import Progress, Report
from stacksl.runs.record import now
from stacksl.runs.refits import Refits
from stacksl.runs.rounds import Table
from stacksl.runs.summary import facts_of
from stacksl.runs.tables import write_metrics, write_rounds

__all__ = ["finish"]

CURVE = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)  # shares of the labels at which the curve is drawn
FEWER = (0.1, 0.25, 0.5)  # with more labels than MANY: every point is a search for C
MANY = 3000
NO_TEXT = "no-text"  # the folder of what may be forwarded


def finish(
    job: Job,
    table: Table,
    refits: Refits,
    features: FeatureMap,
    adaptation: Adaptation | None,
    report: Report,
    state: dict[str, Any],
) -> None:
    """Save and test the final model, then write the report, the card and the tables."""
    tested = (
        _linear(job, table, refits, features, report)
        if adaptation is None
        else hand_over(job, adaptation, report)
    )
    report(Progress("report", 0, 1))
    write_rounds(table.ledger, job.folder.path / "rounds.parquet")
    write_metrics(table, job.folder.path / "metrics.jsonl")
    state["finished"] = now()
    facts = facts_of(job, table, refits, features, tested, state)
    write_atomic(job.folder.path / "facts.json", facts.to_json())
    write_pages(job.folder)
    report(Progress("report", 1, 1))


def _linear(job: Job, table: Table, refits: Refits, features: FeatureMap, report: Report) -> Tested:
    """Save the head with its feature map, and test it."""
    model = Model(
        features, table.learner.scorer, refits.head, job.dataset.classes, job.dataset.columns
    )
    model.save(job.folder.model, asdict(scorer_settings(job.settings)))
    report(Progress("refit", 1, 1))
    if job.test is None:
        return Tested()
    block = features.transform(job.test.items, lambda n, of: report(Progress("test", n, of)))
    evaluation = judge(model.probabilities(block), job.test)
    return Tested(evaluation, tuple(_curve(job, job.test, block, refits, evaluation)))


def write_pages(folder: RunFolder, *, text: bool = True, class_names: bool = False) -> Path:
    """The report and the model card, from the facts on disk; the path of the report.

    Those without text lie in a folder of their own, so that nobody sends the others by mistake.
    """
    from stacksl.report import card, render
    from stacksl.report.facts import Facts

    try:
        facts = Facts.from_json((folder.path / "facts.json").read_text())
    except (OSError, ValueError) as fault:
        raise RunError(
            f"facts.json of the run {folder.path} cannot be read ({fault}): restore it from a copy"
        ) from fault
    place = folder.path if text else folder.path / NO_TEXT
    if not text:
        make_private(place)
    write_atomic(place / "report.html", render(facts, text=text, class_names=class_names))
    write_atomic(place / "README.md", card(facts, text=text, class_names=class_names))
    return place / "report.html"


def _curve(
    job: Job, test: Dataset, block: Block, refits: Refits, last: Evaluation
) -> list[tuple[int, float, float, float]]:
    """(labels, accuracy, low, high) of the final models that fewer labels would have made.

    Each is fitted as the last one is, C chosen by folds, and knows nothing that came later.
    """
    bought = len(refits.table.bought)
    shares = CURVE if bought <= MANY else FEWER
    counts = sorted({round(share * bought) for share in shares} - {0, bought})
    untouched = fresh_scorer(job.settings, refits.table.block)
    points = []
    for count in counts if refits.final else []:
        head = refits.as_if(count, untouched)
        if head is None:
            continue
        policies: list[Array] = [np.asarray(p) for p in head.probabilities(block)]
        points.append(point(count, judge(policies, test)))
    return [*points, point(bought, last)]
