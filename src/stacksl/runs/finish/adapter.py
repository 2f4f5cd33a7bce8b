"""The end of a run that adapted a language model: every refit is tested, the last one saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stacksl.core.blocks import Array
from stacksl.features import FeatureMap
from stacksl.ledger.events import Row
from stacksl.ledger.queries import LedgerReader
from stacksl.lm import LanguageModel, ModelChoices
from stacksl.lm.training.adapters import stacks
from stacksl.models.adapted import AdaptedModel
from stacksl.models.evaluation import Evaluation, Tested, judge_scores, point
from stacksl.report.quality import CurvePoint
from stacksl.runs.loop.adapters import history
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.language_trainer import LanguageTrainer
from stacksl.runs.loop.progress import Progress, Report
from stacksl.runs.spec import RunSpec


def save_and_test(spec: RunSpec, game: Game, features: FeatureMap, report: Report) -> Tested:
    """Write the last adapter into `model/` and test the base, every refit and the last one."""
    trainer, model = _parts(spec, game, features)
    tested = _tested(spec, trainer, model, report)
    trainer.adapters.take(trainer.refits)
    model.save(spec.folder.model, card_facts(spec, trainer, tested), spec.test)
    return tested


def policies(spec: RunSpec, game: Game, features: FeatureMap, rows: Sequence[int]) -> list[Array]:
    """The final model's (K,) probabilities of the items in `rows`."""
    _, model = _parts(spec, game, features)
    return model.policies([spec.dataset.items[row] for row in rows])


def ranking(game: Game, rows: Sequence[int]) -> list[Array]:
    """The (K,) probabilities of the items in `rows` by the scores that ranked the pool last."""
    assert game.trainer.head is not None
    return list(game.trainer.head.probabilities(game.examples.block.take(rows)))


def _parts(spec: RunSpec, game: Game, features: FeatureMap) -> tuple[LanguageTrainer, AdaptedModel]:
    assert isinstance(features, LanguageModel)
    assert isinstance(game.trainer, LanguageTrainer)
    return game.trainer, AdaptedModel(features, spec.dataset.classes, spec.dataset.columns)


def _tested(spec: RunSpec, trainer: LanguageTrainer, model: AdaptedModel, report: Report) -> Tested:
    if spec.test is None:
        return Tested()
    own = model.model.choices.normalisation
    total = (trainer.refits + 1) * len(spec.test.items)
    made = history(spec.folder.adapters, trainer.refits)
    labels = [0, *(each.labels for each in made)]
    curve: list[CurvePoint] = []
    before: dict[str, Evaluation] = {}
    last: dict[str, Evaluation] = {}
    for number, count in enumerate(labels):
        trainer.adapters.take(number)
        done = number * len(spec.test.items)

        def on_progress(n: int, _: int, done: int = done) -> None:
            report(Progress("test", done + n, total))

        last = judge_scores(model, spec.test, on_progress)
        before = before or last
        curve.append(point(count, last[own]))
    return Tested(last[own], tuple(curve), last, before)


def card_facts(spec: RunSpec, trainer: LanguageTrainer, tested: Tested) -> dict[str, Any]:
    """The facts of the run for the model's card (`lm.export.card.card_text`)."""
    evaluation = tested.evaluation
    assert isinstance(trainer.model, LanguageModel)
    choices = trainer.model.choices
    return {
        "run": spec.folder.path.name,
        "data": spec.dataset.name,
        "budget": spec.terms.labels,
        "audit": sum(spec.terms.audits),
        "bought": len(trainer.examples.bought),
        "gate": spec.settings.gate,
        "objective": choices.training.objective,
        "epochs": stream_epochs(spec, trainer.ledger),
        "accuracy": None if evaluation is None else evaluation.accuracy,
        "n": None if evaluation is None else evaluation.n,
        "base_accuracy": _accuracies(tested.before).get(choices.normalisation),
        "accuracies": _accuracies(tested.by_normalisation),
        "training": {"Refits": trainer.refits, **training_of(choices, uncovered(trainer.model))},
        "warnings": list(spec.folder.read_state().get("warnings", ())),
    }


def _accuracies(found: Mapping[str, Evaluation]) -> dict[str, float]:
    return {name: evaluation.accuracy for name, evaluation in found.items()}


def uncovered(model: LanguageModel) -> int:
    """Numbers of the base that no adapter can be for (`training.adapters.stacks`)."""
    return sum(int(each.numel()) for each in stacks(model.worker.adapter.model))


def training_of(choices: ModelChoices, without: int = 0) -> dict[str, Any]:
    """The adapter's shape and the settings of a refit, under names to show.

    Args:
        choices: of the model.
        without: numbers in stacks of matrices, which get no adapter.
    """
    lora, recipe = choices.lora, choices.training
    shape = {
        "LoRA rank": lora.rank,
        "LoRA alpha": lora.alpha,
        "LoRA dropout": lora.dropout,
        "Adapted layers": ", ".join(lora.targets or ()) or "every linear layer but the output",
    }
    if without:
        shape["Without an adapter"] = f"{without:,} numbers in stacks, such as experts"
    pull = {
        "KL weight at the start": recipe.kl_weight,
        "KL target": "none" if recipe.kl_target is None else recipe.kl_target,
        "Reference": recipe.reference,
    }
    return {
        **shape,
        "Objective": recipe.objective,
        **(pull if recipe.pulls else {}),
        "Clipping": recipe.clips,
        "Epochs of a refit": recipe.epochs,
        "Examples of a step": recipe.batch_size,
        "Peak learning rate": recipe.learning_rate,
        "Weight decay": recipe.weight_decay,
    }


def stream_epochs(spec: RunSpec, ledger: LedgerReader) -> list[dict[str, Any]]:
    """The decisions of a stream by epoch; none of a pool, which has those of purchases alone."""
    return epochs_of(ledger.rows()) if spec.settings.mode == "stream" else []


def epochs_of(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The decisions by epoch, never summed across epochs, from the rows of a ledger.

    Each has `epoch, rounds, asked, gate_score, gate_score_asked`: Σ max(0, g) over the rounds of
    the epoch, and over those that were asked; both None where no round has a finite g.
    """
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row.event != "round":
            continue
        decision = row.decision()
        empty = {"rounds": 0, "asked": 0, "gate_score": None, "gate_score_asked": None}
        epoch = found.setdefault(row.epoch, {"epoch": row.epoch, **empty})
        epoch["rounds"] += 1
        epoch["asked"] += int(decision.asked)
        if math.isfinite(decision.gate_score):
            cost = max(0.0, float(decision.gate_score))
            epoch["gate_score"] = (epoch["gate_score"] or 0.0) + cost
            counted = cost if decision.asked else 0.0
            epoch["gate_score_asked"] = (epoch["gate_score_asked"] or 0.0) + counted
    return [found[number] for number in sorted(found)]
