"""`label-efficiency`: accuracy at all, half, a quarter and a tenth of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stacksl.studies.asking import measured
from stacksl.studies.cells import Result
from stacksl.studies.grids import baselines, bases, named, permutation
from stacksl.studies.language import SEEDS, LanguageBench, LanguageStudy, Setting
from stacksl.studies.methods import LATE, llf, stacksl
from stacksl.studies.paper import BUDGETS
from stacksl.studies.tasks import Setup

NAME = "label-efficiency"
LETTER = {"protocol": "letter"}


def full() -> Setting:
    """StackSL on every label: what the others are shares of."""
    settings = {**stacksl(), "gate": "always", **LATE, **LETTER}
    return named(NAME, "Full StackSL", settings, chosen=True)


def grid(setup: Setup) -> Sequence[Setting]:
    """Base rows, StackSL, LLF-StackSL and the baselines at each β below 1, and the control."""
    zero, five = bases(NAME, "letter")
    rows = [zero, five, full()]
    for budget in BUDGETS[1:]:
        row = f"LLF-StackSL, β = {budget:g}"
        mine = named(NAME, row, {**llf(), **LETTER}, budget_fraction=budget, chosen=True)
        rows += [mine, *baselines(NAME, LETTER, mine)]
    return [*rows, *permutation(setup, "letter", zero, full())]


def measure(
    setting: Setting, seed: int, bench: LanguageBench, result: Result
) -> Mapping[str, float | None]:
    """Accuracy, F1, the labels used, and accuracy against that of all labels and of none.

    With a the row's accuracy, b the base model's and f that of all labels under the same seed:
    `percent_of_full` = 100 a / f, `gain` = a − b and `gain_kept` = (a − b) / (f − b).
    """
    found: dict[str, float | None] = {"accuracy": result.accuracy, "macro_f1": result.macro_f1}
    if setting.shots is not None or setting.permuted or result.accuracy is None:
        return found
    found["used_fraction"] = result.asked / result.rounds
    whole = measured(full(), seed, bench)[1].accuracy
    none = measured(bases(NAME, "letter")[0], seed, bench)[1].accuracy
    if whole:
        found["percent_of_full"] = 100 * result.accuracy / whole
    if none is not None:
        found["gain"] = result.accuracy - none
        if whole is not None and whole != none:
            found["gain_kept"] = (result.accuracy - none) / (whole - none)
    return found


LABEL_EFFICIENCY = LanguageStudy(
    name=NAME,
    title="Label efficiency",
    claim="LLF-StackSL keeps about 94 % of the accuracy of all labels with 10 % of them",
    cost="23 runs a seed, 6 of them to choose kl_weight and k",
    metrics=("accuracy", "macro_f1", "used_fraction", "percent_of_full", "gain", "gain_kept"),
    seeds=SEEDS,
    grid=grid,
    measure=measure,
)
