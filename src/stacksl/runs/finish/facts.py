"""From a run to the facts of its report: all of it from the ledger, the data and the test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from stacksl.core.heads.logistic import CHOICES
from stacksl.features import FeatureMap
from stacksl.lm import LanguageModel
from stacksl.models.evaluation import Tested
from stacksl.report import facts as f
from stacksl.runs.finish.abstention import unnamed, words_on_threshold
from stacksl.runs.finish.answers import asking_of
from stacksl.runs.finish.language import language_facts
from stacksl.runs.finish.quality import (
    audit_fact,
    calibration,
    class_rows,
    confusion_rows,
    source,
    test_fact,
)
from stacksl.runs.finish.rounds import Chronicle
from stacksl.runs.items.sources import Stock
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer, linear_trainer
from stacksl.runs.session.build_learner import width_scale
from stacksl.runs.settings.budget import parse_prices
from stacksl.runs.settings.conflicts import OF_MODEL
from stacksl.runs.spec import RunSpec, versions
from stacksl.runs.storage.anchors import naming

__all__ = ["facts_of"]

POINTS = 1500  # rounds kept for the pictures
LABELS = 500  # labels kept for the running accuracy
WINDOW = 50  # labels that the recent accuracy looks back
SHOWN = 12  # contested items listed
EXCERPT = 400  # characters of a prompt
HELD = -1  # the choice that stands beside a label that was held before


def facts_of(
    spec: RunSpec,
    game: Game,
    features: FeatureMap,
    tested: Tested,
    state: Mapping[str, Any],
) -> f.Facts:
    """The facts of a run as it stands; `tested` is what its test file and its audit say, if any."""
    seen = Chronicle.read(game.ledger.rows(), game.corpus.row)
    language = (
        language_facts(spec, game.ledger, features, tested, state)
        if isinstance(features, LanguageModel)
        else None
    )
    return f.Facts(
        title=spec.dataset.name,
        run=spec.folder.path.name,
        state=str(state.get("state", "finished")),
        created=str(state["created"]),
        finished=str(state.get("finished", "")),
        data=_data(spec),
        budget=_budget(spec, game, seen),
        method=_method(spec, game, features),
        interruptions=tuple(state["interruptions"]),
        test=test_fact(spec.test, tested.evaluation),
        audit=audit_fact(tested.audited),
        asking=replace(
            asking_of(game.ledger, seen.changes, seen.added, priced=spec.budget.money is not None),
            abstaining=words_on_threshold(
                tested.threshold,
                len(unnamed(game.ledger)),
                possible=language is None and game.trainer.head is not None,
            ),
        ),
        curve=tuple(f.CurvePoint(*point) for point in tested.curve),
        rounds=_rounds(seen),
        before_label=_before(game),
        gate_score=None if language else _gate_score(spec, game, seen),
        classes=class_rows(spec.dataset, game.examples, tested),
        confusions=confusion_rows(spec.dataset, tested),
        measured_on=source(tested),
        calibration=calibration(tested),
        contested=_contested(spec.stock, game, seen),
        refit=_refit_of_adapter(language) if language else _refit(spec, linear_trainer(game)),
        clipped_share=_clipped(game),
        gold_outside=seen.outside if spec.settings.follower != "given" else None,
        settings=_settings(spec, game),
        versions=tuple(
            f.Named(name.removeprefix("version_"), value)
            for name, value in versions(spec.settings.plugins).items()
        ),
        fingerprints=_fingerprints(game, features),
        warnings=tuple(state["warnings"]),
        language=language,
    )


def _data(spec: RunSpec) -> f.DataCard:
    dataset = spec.dataset
    sizes = [len(item.candidates) for item in dataset.items]
    reasons = Counter(row.kind for row in dataset.rejected)
    return f.DataCard(
        name=dataset.name,
        format=dataset.format,
        items=len(dataset.items),
        options_min=min(sizes),
        options_max=max(sizes),
        classes=None if dataset.classes is None else len(dataset.classes),
        columns=tuple(f.Named(role, name) for role, name in sorted(dataset.columns.items())),
        rejected=tuple(f.Named(kind, str(n)) for kind, n in reasons.most_common()),
        rejected_total=len(dataset.rejected),
        python=versions(None)["version_python"],
        source="Python's own reference documentation (pydoc_data)."
        if spec.data == "sample"
        else "",
    )


def _budget(spec: RunSpec, game: Game, seen: Chronicle) -> f.Budget:
    ledger = game.ledger
    priced = spec.budget.money is not None
    owned = _owned(game.examples)
    items = len(np.unique(seen.item))  # a pool passes an item over, then buys it with more money
    unseen = len(set(game.corpus.unbought(())) - set(seen.item.tolist()))
    return f.Budget(
        labels=ledger.budget,
        asked=ledger.asked,
        answered=len(game.examples.bought) - owned,
        left=ledger.left,
        rounds=items,
        horizon=items + unseen,
        price=None if parse_prices(spec.settings.price).by or not priced else spec.budget.price,
        money=ledger.money,
        spent_money=ledger.spent_money if priced else None,
        owned=owned,
        audit=ledger.spent - ledger.asked,
        released=seen.released,
        open=len(ledger.open_purchases()),
    )


def _owned(examples: Examples) -> int:
    """The labels that were held before: nothing was chosen before they were seen."""
    return sum(choice == HELD for _, _, choice in examples.bought)


def _method(spec: RunSpec, game: Game, features: FeatureMap) -> f.Method:
    settings = spec.settings
    return f.Method(
        aim=settings.aim,
        gate=settings.gate,
        scorer=game.learner.scorer.name,
        features=features.spec,
        follower=settings.follower,
        labeler=game.labeler.name,
        mode=settings.mode,
        order=settings.order,
        seed=settings.seed,
        preset=spec.resolved.preset or "",
    )


def _rounds(seen: Chronicle) -> f.RoundSeries:
    spent = np.cumsum(seen.asked)
    kept = _thin(seen.rounds, POINTS)
    return f.RoundSeries(
        round=tuple(i + 1 for i in kept),
        statistic=tuple(_finite(seen.statistic[i]) for i in kept),
        threshold=tuple(_finite(seen.threshold[i]) for i in kept),
        asked=tuple(bool(seen.asked[i]) for i in kept),
        spent=tuple(int(spent[i]) for i in kept),
        total=seen.rounds,
    )


def _thin(count: int, points: int) -> list[int]:
    """At most `points` of `count` positions, evenly spaced, the last one among them."""
    if count <= points:
        return list(range(count))
    return sorted({round(i * (count - 1) / (points - 1)) for i in range(points)})


def _before(game: Game) -> f.BeforeLabel | None:
    asked = [(label, choice) for _, label, choice in game.examples.bought if choice != HELD]
    right = np.array([label == choice for label, choice in asked], dtype=float)
    if not len(right):
        return None
    total = np.cumsum(right)
    counts = np.arange(1, len(right) + 1)
    back = np.concatenate([np.zeros(WINDOW), total])[: len(right)]
    recent = (total - back) / np.minimum(counts, WINDOW)
    kept = _thin(len(right), LABELS)
    return f.BeforeLabel(
        label=tuple(i + 1 for i in kept),
        running=tuple(float(total[i] / counts[i]) for i in kept),
        recent=tuple(float(recent[i]) for i in kept),
        window=WINDOW,
        n=len(right),
        correct=int(right.sum()),
    )


def _gate_score(spec: RunSpec, game: Game, seen: Chronicle) -> f.GateScore | None:
    scores = seen.gate_score
    if not len(scores) or np.isnan(scores).all():
        return None
    costs = np.maximum(np.where(np.isfinite(scores), scores, 0.0), 0.0)
    running = np.cumsum(costs)
    kept = _thin(len(costs), LABELS)
    return f.GateScore(
        total=float(running[-1]),
        asked=float(costs[seen.asked].sum()),
        rounds=len(costs),
        width_scale=width_scale(spec.settings, game.examples.block.dim),
        round=tuple(i + 1 for i in kept),
        cumulative=tuple(float(running[i]) for i in kept),
    )


def _contested(stock: Stock, game: Game, seen: Chronicle) -> tuple[f.Contested, ...]:
    """The rounds of the second half with the largest gate score (statistic without a matrix).

    In the first half every width is large, so that being early would count as being hard.
    """
    labels = {row: label for row, label, _ in game.examples.bought}
    said = {row["item"]: row["said"] for row in game.ledger.export() if row["slot"] == 0}
    scores = np.where(np.isfinite(seen.gate_score), seen.gate_score, seen.statistic)
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    half = seen.rounds // 2
    order = half + np.argsort(-scores[half:], kind="stable")[: SHOWN + len(stock.gone)]
    found = []
    for at in [at for at in order if seen.item[at] not in stock.gone][:SHOWN]:
        row = int(seen.item[at])
        item, label = stock.dataset.items[row], labels.get(row)
        found.append(
            f.Contested(
                item=item.id,
                prompt=item.prompt[:EXCERPT],
                choice=item.candidates[seen.choice[at]],
                label=None if label is None else item.candidates[label],
                statistic=_finite(scores[at]),
                round=int(at) + 1,
                asked=bool(seen.asked[at]),
                said=None if said.get(item.id) is None else str(said[item.id]),
            )
        )
    return tuple(found)


def _refit(spec: RunSpec, trainer: LinearTrainer) -> f.Refit | None:
    if not spec.settings.refit:
        return f.Refit("The last online state is the final model, as the preset asks.", False)
    if trainer.head is None:
        return f.Refit(
            f"There was no refit: the {len(trainer.examples.bought)} labels name fewer than two"
            " classes, so the online state is the final model.",
            False,
        )
    chosen = trainer.head.strength
    how = "chosen by three shuffled folds of them" if chosen.tried else "the default"
    sentence = f"The final model was refitted on {_learnt(trainer.examples)}, with C = "
    return f.Refit(
        f"{sentence}{chosen.value:g}, {how}.",
        True,
        c=chosen.value,
        log_loss=min(chosen.tried, default=None),
        tried=tuple(zip(CHOICES, chosen.tried, strict=False)),
        made_by="" if trainer.names is None else trainer.made_by,
        compared=tuple(trainer.tried.items()),
    )


def _learnt(examples: Examples) -> str:
    owned = _owned(examples)
    bought = f"all {len(examples.bought) - owned:,} labels bought"
    return f"{bought} and {owned:,} held before" if owned else bought


def _refit_of_adapter(language: f.LanguageModel) -> f.Refit:
    if not language.refits:
        return f.Refit(
            "There was no refit, since no label was learnt: the final model is the base.", False
        )
    last = language.refits[-1]
    what = "adapter" if language.kind == "lora" else "weights"
    start = "initial adapter" if language.kind == "lora" else "weights of the base"
    labels = f"all {last.labels:,} labels bought" if last.labels > 1 else "the one label bought"
    return f.Refit(
        f"The final model is the language model with the {what} of refit {last.number}, trained"
        f" from the {start} on {labels}; it answers alone, without the head that steered the"
        " purchases.",
        True,
    )


def _fingerprints(game: Game, features: FeatureMap) -> tuple[f.Named, ...]:
    base = (
        (f.Named("base model", features.base_fingerprint),)
        if isinstance(features, LanguageModel)
        else ()
    )
    name = "model and features" if base else "features"
    return (
        *base,
        f.Named(name, features.fingerprint),
        f.Named("ledger", naming(game.ledger.head)),
    )


def _clipped(game: Game) -> float | None:
    clipped = getattr(game.learner.scorer, "clipped", None)
    learnt = len(game.examples.bought)
    return None if clipped is None or not learnt else clipped / learnt


def _settings(spec: RunSpec, game: Game) -> tuple[f.SettingRow, ...]:
    """Every setting; those left open with what was chosen for them."""
    gate: Any = game.learner.gate
    chosen = {
        **{each.name: getattr(gate, each.name) for each in fields(gate)},
        "scorer": game.learner.scorer.name,
        "width_scale": game.learner.width_scale,
    }
    rows = []
    for name, given in spec.settings.model_dump().items():
        if name in OF_MODEL and not spec.settings.adapts:
            continue
        value = chosen.get(name) if given is None else given
        shown = "none" if value is None else str(value)
        rows.append(f.SettingRow(name, shown, spec.resolved.origin[name]))
    return tuple(rows)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
