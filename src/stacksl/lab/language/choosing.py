"""kl_weight and k: chosen once, on held-out bought labels (or, as the paper did, on the test)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stacksl.errors import RunError
from stacksl.lab.language.cells import Cell
from stacksl.lab.language.methods import llf
from stacksl.lab.language.paper import KL_WEIGHTS, NEGATIVES, STREAM

if TYPE_CHECKING:
    from stacksl.lab.language.studies import LanguageBench


@dataclass(frozen=True, slots=True)
class Choice:
    """The kl_weight and the k that other tables take."""

    kl_weight: float
    k: int

    @staticmethod
    def mark(on_test: bool) -> str:
        """How it was made, for the rows that take it."""
        if on_test:
            return "kl_weight and k chosen on the test set, as the paper did: optimistic"
        return "kl_weight and k chosen on held-out bought labels"


def candidates(bench: LanguageBench, seed: int) -> tuple[list[Cell], list[Cell]]:
    """The cells of both grids on MedQA: kl_weight at k = 4, and k at kl_weight = 0.7.

    Held out, a fifth of the labels is kept from training and measured on; on the test set they
    are the cells of the tables of kl_weight and of k themselves.
    """
    from stacksl.lab.language.asking import cell_of
    from stacksl.lab.language.studies import Setting

    def cell(kl_weight: float, k: int) -> Cell:
        settings = llf(kl_weight, k) | {"protocol": "option"}
        plain = cell_of(Setting("", settings, 0.5, items=STREAM), seed, bench)
        return plain if bench.paper_selection else replace(plain, held=True)

    return [cell(w, 4) for w in KL_WEIGHTS], [cell(0.7, k) for k in NEGATIVES]


def choice(bench: LanguageBench, seed: int) -> Choice:
    """The best kl_weight and the best k of their grids; of equals the smaller.

    Raises:
        Wanted: the grids are still to be measured.
        RunError: one of their cells could not be measured.
    """
    weights, negatives = candidates(bench, seed)
    results = bench.results([*weights, *negatives])
    for result in results:
        if result.reason is not None or result.accuracy is None:
            raise RunError(f"kl_weight and k could not be chosen: {result.reason}")
    scores = [result.accuracy or 0.0 for result in results]
    first = len(weights)
    best_weight = KL_WEIGHTS[_best(scores[:first])]
    return Choice(best_weight, int(negatives[_best(scores[first:])].settings["k"]))


def _best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda i: (scores[i], -i))
