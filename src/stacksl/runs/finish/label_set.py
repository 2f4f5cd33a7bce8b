"""Report fact: what the set for softmax labels says at the end of a run on pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stacksl.core.blocks import Array, PairBlock
from stacksl.core.likelihood import LikelihoodSet, label_loss, refuted
from stacksl.report.facts import LabelSet
from stacksl.runs.loop.game import Game
from stacksl.runs.spec import RunSpec

CHECKED = 50  # items whose choice is checked
AFFORDABLE = 1e9  # multiplications of a Hessian, some seconds in all; later labels are left out


def label_set(
    spec: RunSpec, game: Game, policies: Callable[[Sequence[int]], list[Array]]
) -> LabelSet | None:
    """The set of a run's labels, over all candidates of each item.

    None for a language model, whose features have learnt the labels; for class heads, where θ has
    a row for each class (`docs/theory.md`, section 4); and without labels or a bound on the norm.

    Args:
        spec: with S and δ.
        game: with the learnt labels.
        policies: the final model's probabilities for items of given rows.
    """
    block, bound, delta = game.examples.block, spec.settings.norm_bound, spec.settings.delta
    bought = [each for each in game.examples.bought if each[0] not in spec.sources.forgotten]
    if spec.settings.adapts or not isinstance(block, PairBlock) or not bought or bound <= 0.0:
        return None
    most = max(block[row].size for row, _, _ in bought)
    bought = bought[: max(1, int(AFFORDABLE / (most * block.dim**2)))]
    inputs = [block[row] for row, _, _ in bought]
    sets = [tuple(range(each.size)) for each in inputs]
    labels = label_loss(inputs, sets, [gold for _, gold, _ in bought])
    held = LikelihoodSet.of(labels, bound, delta)
    kept = [row for row in range(len(block)) if row not in spec.sources.forgotten]
    rows = [kept[at] for at in np.unique(np.linspace(0, len(kept) - 1, CHECKED).astype(int))]
    certified = 0
    for row, policy in zip(rows, policies(rows), strict=True):
        choice, phi = int(np.argmax(policy)), block[row].phi
        certified += bool(held.below(np.delete(phi - phi[choice], choice, axis=0)).all())
    return LabelSet(
        labels=len(bought),
        norm_bound=bound,
        delta=delta,
        loss=float(held.level) - 0.5,
        least=max(0.0, float(held.level - held.slack) - 0.5),
        certified=certified,
        checked=len(rows),
        refuted=refuted(labels, bound, delta),
    )
