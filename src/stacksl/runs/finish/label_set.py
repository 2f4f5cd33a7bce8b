"""Report facts: what the sets for softmax labels say, at refits and after the last label.

At refits L(θ*) ≤ Σ −log π_{s−1}(y_s) + log 1/δ, π_{s−1} the head that the label met: it was fitted
before, so Ville's inequality holds as for the mixture, and no integral is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stacksl.core.blocks import Array, Block, PairBlock, SharedBlock
from stacksl.core.heads.linear import ClassHead
from stacksl.core.likelihood import (
    LikelihoodSet,
    label_loss,
    least_in_ball,
    loss_of_a_rival,
    refuted,
)
from stacksl.report.facts import LabelSet, SetAtRefits
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.spec import RunSpec

CHECKED = 50  # items whose choice is checked
AFFORDABLE = 1e9  # multiplications of a Hessian, some seconds in all; later labels are left out
SCORES = 1e7  # labels x classes above which no choice is checked: some seconds


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
    rows, certified = _checked(spec, len(block)), 0
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


def set_at_refits(spec: RunSpec, game: Game) -> SetAtRefits | None:
    """The set at each refit on the way, in their order.

    None for streams without such refits, and for language models, whose features move; also
    once a label was corrected or a class added: the loss is of other labels then. The loss of a
    label that was forgotten stays in it, so that it bounds the others' all the more.
    """
    trainer, bought = game.trainer, game.examples.bought
    if spec.settings.adapts or not isinstance(trainer, LinearTrainer):
        return None
    stated = [(labels, nats) for labels, nats in trainer.foreseen if labels]
    if not stated or stated[-1][1] is None or stated[-1][0] != len(bought):
        return None
    bound, margin = spec.settings.norm_bound, math.log(1.0 / spec.settings.delta)
    loss = [margin + nats for _, nats in stated if nats is not None]
    block, broken = game.examples.block, None
    candidates = np.array([block[row].size for row, _, _ in bought], dtype=np.float64)
    counts = [labels for labels, _ in stated]
    for labels, slope, most in zip(counts, _slopes(block, bought, counts), loss, strict=True):
        if broken is None and least_in_ball(candidates[:labels], slope, bound) > most:
            broken = labels
    tied, checked = _tied(spec, game, trainer, loss[-1])
    return SetAtRefits(
        labels=tuple(counts),
        loss=tuple(loss),
        delta=spec.settings.delta,
        guessing=float(np.log(candidates).sum()),
        norm_bound=bound,
        refuted=broken,
        tied=tied,
        checked=checked,
    )


def _checked(spec: RunSpec, items: int) -> list[int]:
    """Rows of items whose choice is checked, evenly spaced."""
    kept = [row for row in range(items) if row not in spec.sources.forgotten]
    return [kept[at] for at in np.unique(np.linspace(0, len(kept) - 1, CHECKED).astype(int))]


def _slopes(
    block: Block, bought: Sequence[tuple[int, int, int]], counts: Sequence[int]
) -> Iterator[Array]:
    """The gradient of L at θ = 0 over so many of the first labels, for each of the `counts`.

    It is (d,) for pairs and (K, d + 1) for class heads, whose intercepts are in θ.
    """
    shared, done = isinstance(block, SharedBlock), 0
    means = np.zeros(block.dim + shared)
    golds = np.zeros(
        (block.classes, block.dim + 1) if isinstance(block, SharedBlock) else block.dim
    )
    for count in counts:
        for row, gold, _ in bought[done:count]:
            if isinstance(block, SharedBlock):
                h = _with_one(block, np.array([row]))[0]
                means += h / block.classes
                golds[gold] += h
            else:
                phi = np.asarray(block[row].phi, dtype=np.float64)
                means += phi.mean(axis=0)
                golds += phi[gold]
        done = count
        yield means - golds


def _tied(spec: RunSpec, game: Game, trainer: LinearTrainer, most: float) -> tuple[int, int]:
    """On how many items another class ties with the head's within the loss, of how many checked."""
    block, head = game.examples.block, trainer.head
    if not (isinstance(block, SharedBlock) and isinstance(head, ClassHead) and trainer.final):
        return 0, 0
    if len(game.examples.bought) * block.classes > SCORES:
        return 0, 0
    rows = np.array([row for row, _, _ in game.examples.bought])
    golds = np.array([gold for _, gold, _ in game.examples.bought])
    theta = np.column_stack([head.coefficients, head.intercepts])
    learnt, checked = _with_one(block, rows), _with_one(block, np.array(_checked(spec, len(block))))
    scores, tied = learnt @ theta.T, 0
    for phi in checked:
        found = loss_of_a_rival(scores, golds, learnt @ phi, theta @ phi, float(phi @ phi))
        tied += found <= most
    return tied, len(checked)


def _with_one(block: SharedBlock, rows: Array) -> Array:
    """Features of rows, with a 1 for the intercept."""
    h = np.asarray(block.h[rows], dtype=np.float64)
    return np.column_stack([h, np.ones(len(h))])
