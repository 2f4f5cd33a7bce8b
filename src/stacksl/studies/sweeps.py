"""`kl` and `hard-negatives`: the grids over kl_weight and over k, on 1,000 items."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.studies.asking import accuracies
from stacksl.studies.grids import baselines, bases, named
from stacksl.studies.language import SEEDS, LanguageStudy, Setting
from stacksl.studies.methods import llf
from stacksl.studies.paper import KL_WEIGHTS, NEGATIVES, STREAM
from stacksl.studies.tasks import Setup

OPTION = {"protocol": "option"}
BUDGET = 0.5


def _row(study: str, row: str, kl_weight: float, k: int) -> Setting:
    settings = {**llf(kl_weight, k), **OPTION}
    return named(study, row, settings, budget_fraction=BUDGET, items=STREAM)


def kl_grid(setup: Setup) -> Sequence[Setting]:
    """Algorithm 2 with each kl_weight at k = 4; the baselines at 0.7."""
    rows = [_row("kl", f"λ_KL = {weight:g}", weight, 4) for weight in KL_WEIGHTS]
    at = rows[KL_WEIGHTS.index(0.7)]
    return [*bases("kl", "option"), *rows, *baselines("kl", OPTION, at)]


def negatives_grid(setup: Setup) -> Sequence[Setting]:
    """Algorithm 2 with each k at kl_weight = 0.7; the baselines at k = 4."""
    study = "hard-negatives"
    rows = [_row(study, f"k = {k}", 0.7, k) for k in NEGATIVES]
    return [*bases(study, "option"), *rows, *baselines(study, OPTION, rows[-1])]


KL = LanguageStudy(
    name="kl",
    title="Weight of the KL term",
    claim="A KL weight of 0.7 gives the best accuracy of Algorithm 2 at N = 1,000",
    cost="8 runs of 1,000 items a seed",
    metrics=("accuracy", "macro_f1"),
    seeds=SEEDS,
    grid=kl_grid,
    measure=accuracies,
)

HARD_NEGATIVES = LanguageStudy(
    name="hard-negatives",
    title="Number of hard negatives",
    claim="Four hard negatives give the best accuracy of Algorithm 2 at N = 1,000",
    cost="7 runs of 1,000 items a seed, 5 of them those of kl",
    metrics=("accuracy", "macro_f1"),
    seeds=SEEDS,
    grid=negatives_grid,
    measure=accuracies,
)
