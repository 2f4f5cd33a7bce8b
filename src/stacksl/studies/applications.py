"""`medqa` and `mmlu`: base model, fine-tuning, StackSL and LLF-StackSL by option likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.studies.asking import accuracies
from stacksl.studies.grids import baselines, bases, named
from stacksl.studies.language import SEEDS, LanguageStudy, Setting
from stacksl.studies.methods import MLE, gated, llf, objective, stacksl
from stacksl.studies.tasks import Setup

OPTION = {"protocol": "option"}
BUDGET = 0.5


def medqa_grid(setup: Setup) -> Sequence[Setting]:
    """The four rows of the paper, the baselines, and `margin` with KL-only steps on its skips."""
    rows = _methods("medqa", None, "MC-Ranker")
    pulled = gated("margin", kl_on_skips=True) | OPTION
    last = named(
        "medqa", "margin, KL-only steps", pulled, budget_fraction=BUDGET, chosen=True
    )  # fmt: skip
    return [*rows, last]


def mmlu_grid(setup: Setup) -> Sequence[Setting]:
    """The same four rows and the baselines for each subject."""
    subjects = [task.name for task in setup.tasks[1:]]
    return [row for name in subjects for row in _methods("mmlu", name, "Base + FT")]


def _methods(study: str, task: str | None, tuned: str) -> list[Setting]:
    before = "" if task is None else f"{task}: "
    full = {**stacksl(), **MLE, **OPTION}
    gated_row = named(
        study, f"{before}LLF-StackSL", llf() | OPTION, budget_fraction=BUDGET, task=task,
        chosen=True,
    )  # fmt: skip
    return [
        *bases(study, "option", task),
        named(study, f"{before}{tuned}", objective("ce") | OPTION, task=task),
        named(study, f"{before}StackSL", full, task=task, chosen=True),
        gated_row,
        *baselines(study, OPTION, gated_row),
    ]


MEDQA = LanguageStudy(
    name="medqa",
    title="MedQA",
    claim="StackSL beats a fine-tuned ranker of options; LLF-StackSL gives some of that for half",
    cost="14 runs a seed, 6 of them to choose kl_weight and k",
    metrics=("accuracy", "macro_f1"),
    seeds=SEEDS,
    grid=medqa_grid,
    measure=accuracies,
)

MMLU = LanguageStudy(
    name="mmlu",
    title="Three subjects of MMLU",
    claim="With 11 to 29 questions StackSL or LLF-StackSL is the best in each subject",
    cost="27 runs a seed, 6 of them, on MedQA, to choose kl_weight and k",
    metrics=("accuracy", "macro_f1"),
    seeds=SEEDS,
    grid=mmlu_grid,
    measure=accuracies,
)
