"""The end of a run that adapted a language model: every refit tested, the last one handed over."""

from __future__ import annotations

from typing import Any

from stacksl.labels.rows import Row
from stacksl.lm import LanguageModel
from stacksl.runs.adapted import AdaptedModel
from stacksl.runs.adapting import Adaptation
from stacksl.runs.evaluation import Point, Tested, judge_scores, point
from stacksl.runs.job import Job
from stacksl.runs.progress import Progress, Report

__all__ = ["card_facts", "epochs_of", "hand_over"]


def hand_over(job: Job, adaptation: Adaptation, report: Report) -> Tested:
    """Write the last adapter into `model/` and test the base, every refit and the last one."""
    assert isinstance(adaptation.model, LanguageModel)
    model = AdaptedModel(adaptation.model, job.dataset.classes, job.dataset.columns)
    tested = _tested(job, adaptation, model, report)
    adaptation.take(adaptation.refits)
    model.save(job.folder.model, card_facts(job, adaptation, tested), job.test)
    return tested


def _tested(job: Job, adaptation: Adaptation, model: AdaptedModel, report: Report) -> Tested:
    if job.test is None:
        return Tested()
    own = model.model.choices.normalisation
    total = (adaptation.refits + 1) * len(job.test.items)
    labels = [0, *(each.labels for each in adaptation.history())]
    curve: list[Point] = []
    before, last = {}, {}
    for number, count in enumerate(labels):
        adaptation.take(number)
        done = number * len(job.test.items)
        last = judge_scores(
            model, job.test, lambda n, _, done=done: report(Progress("test", done + n, total))
        )
        before = before or last
        curve.append(point(count, last[own]))
    return Tested(last[own], tuple(curve), last, before)


def card_facts(job: Job, adaptation: Adaptation, tested: Tested) -> dict[str, Any]:
    """What the model's card tells of the run that made it."""
    table = adaptation.table
    evaluation = tested.evaluation
    return {
        "run": job.folder.path.name,
        "data": job.dataset.name,
        "budget": job.budget.labels,
        "bought": len(table.bought),
        "gate": job.settings.gate,
        "objective": job.settings.objective,
        "epochs": epochs_of(table.ledger.rows()),
        "accuracy": None if evaluation is None else evaluation.accuracy,
        "n": None if evaluation is None else evaluation.n,
    }


def epochs_of(rows: Any) -> list[dict[str, Any]]:
    """The certificates by epoch, never summed across: `epoch, rounds, asked, gate_score`.

    The gate score of a round is at least 0 here: a round that is not contested costs nothing.
    """
    found: dict[int, dict[str, Any]] = {}
    row: Row
    for row in rows:
        if row.event != "round":
            continue
        decision = row.decision()
        fresh = {"epoch": row.epoch, "rounds": 0, "asked": 0, "gate_score": 0.0}
        epoch = found.setdefault(row.epoch, fresh)
        epoch["rounds"] += 1
        epoch["asked"] += decision.asked
        if decision.gate_score == decision.gate_score:  # NaN where no matrix is kept
            epoch["gate_score"] += max(0.0, min(decision.gate_score, 1e300))
    return [found[number] for number in sorted(found)]
