"""The strategies by name, and one of them played under a seed: a cell of the comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE, GATES
from stacksl.core.heads.linear import refit
from stacksl.core.scorers import Head
from stacksl.core.threads import one_thread
from stacksl.errors import MissingExtra, SettingsError, kind_and_place
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl.runs.session.build_learner import fresh_scorer
from stacksl_lab.pools import ours
from stacksl_lab.pools.peers import INSTALL, PEERS
from stacksl_lab.pools.split import Pool, Rows, Split
from stacksl_lab.study.store import Measurement

RANDOM, ALL = "random", "all labels"
PLAIN, PRODUCT = "plain", "product"
"""The final models: labels alone, and what `stacksl run` makes of labels, names and graph."""

OURS = (
    COVERAGE,
    *(name for name, kind in GATES.items() if kind.ranks and name != RANDOM),
)
"""`coverage` is what `stacksl run --mode pool` does by default, the others are gates."""


def check_strategies(names: Sequence[str], classes: bool) -> None:
    """Refuse what cannot be compared, before anything is measured.

    Raises:
        SettingsError: an unknown name, or a strategy that needs fixed classes.
        MissingExtra: the package of a strategy is not installed.
    """
    for name in names:
        peer = PEERS.get(name)
        if peer is None and name not in (RANDOM, *OURS):
            raise _unknown(name)
        if peer is not None and not peer.installed:
            raise MissingExtra(
                f"the strategy '{name}' needs {peer.package}: {INSTALL[peer.package]}"
            )
        if not classes and (name == COVERAGE or (peer is not None and peer.model)):
            raise SettingsError(
                f"the strategy '{name}' chooses among items of fixed classes, and these items"
                f" have their own options: choose of {', '.join(usable(classes=False))}"
            )


def usable(*, classes: bool) -> list[str]:
    """The names that can be compared here, with fixed classes or without."""
    mine = [name for name in (RANDOM, *OURS) if classes or name != COVERAGE]
    theirs = [n for n, peer in PEERS.items() if peer.installed and (classes or not peer.model)]
    return [*mine, *theirs]


def _unknown(name: str) -> SettingsError:
    near = get_close_matches(name, [RANDOM, *OURS, *PEERS], n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    absent = sorted({peer.package for peer in PEERS.values() if not peer.installed})
    missing = "".join(f"; not installed: {package} ({INSTALL[package]})" for package in absent)
    return SettingsError(
        f"unknown strategy '{name}': {hint}known: {', '.join(usable(classes=True))}{missing}"
    )


def measure(split: Split, name: str, seed: int, budgets: Sequence[int]) -> tuple[Measurement]:
    """The test accuracy of both final models at each budget, and the CPU seconds of choosing.

    The labels of a smaller budget are the first ones of the largest. Where the code of another
    package fails, the sentence says so.
    """
    pool = split.pool(seed)
    with one_thread():
        start = time.process_time()
        try:
            chosen = _chosen(pool, name, max(budgets))
        except Exception as fault:
            if name not in PEERS:
                raise
            return (f"{name} of {PEERS[name].package} failed: {kind_and_place(fault)}",)
        numbers: dict[str, float] = {"seconds": time.process_time() - start}
        if sorted(set(chosen)) != sorted(chosen) or len(chosen) != max(budgets):
            return (f"{name} chose {len(set(chosen))} distinct rows of {max(budgets)}",)
        source = _source(pool)
        for budget in budgets:
            numbers |= _accuracies(split, pool, source, np.array(chosen[:budget]), budget)
    return (numbers,)


def _chosen(pool: Pool, name: str, count: int) -> list[int]:
    if name in (RANDOM, ALL):
        return list(pool.order[:count])
    if name in PEERS:
        return PEERS[name].bought_rows(pool, count)
    return ours.bought_rows(pool, name, count)


def _source(pool: Pool) -> Source | None:
    """What the product's final model is made of; None where items have their own options."""
    if not isinstance(pool.block, SharedBlock) or pool.names is None:
        return None
    return Source(pool.block, pool.names, frozenset(), pool.settings.seed)


def _accuracies(
    split: Split, pool: Pool, source: Source | None, rows: Rows, budget: int
) -> Mapping[str, float]:
    """By the final model and the budget; without class names both are the same model."""
    gold, scorer = pool.gold[rows], fresh_scorer(pool.settings, pool.block)
    plain = refit(pool.block.take(rows.tolist()), gold, scorer.theta, pool.settings.seed)
    final = plain if source is None else make_final(source, rows, gold)[0]
    return {
        f"{model}@{budget}": _accuracy(split, head, gold)
        for model, head in ((PLAIN, plain), (PRODUCT, final))
    }


def _accuracy(split: Split, head: Head | None, gold: Rows) -> float:
    """The share of the test part that is right; a single class bought is what is predicted."""
    if head is None:
        return float((split.test_gold == np.bincount(gold).argmax()).mean())
    probabilities = head.probabilities(split.test)
    predicted = np.array([int(np.argmax(row)) for row in probabilities])
    return float((predicted == split.test_gold).mean())
