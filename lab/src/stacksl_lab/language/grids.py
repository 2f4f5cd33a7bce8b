"""The studies of language models: a grid of settings each, with the base rows and baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stacksl_lab.language.cells import Result, Setting
from stacksl_lab.language.measuring import accuracies, measured
from stacksl_lab.language.paper import (
    BASELINES,
    BUDGETS,
    KL_WEIGHTS,
    LATE,
    MLE,
    NEGATIVES,
    NUMBERS,
    STREAM,
    gated,
    llf,
    objective,
    stacksl,
)
from stacksl_lab.language.studies import LanguageBench, LanguageStudy
from stacksl_lab.language.tasks import Setup

LETTER = {"protocol": "letter"}
OPTION = {"protocol": "option"}
HALF = 0.5
"""β of every row of Algorithm 2 but those of label efficiency."""

SHOTS = (0, 5)


def named(study: str, row: str, settings: Mapping[str, Any], **keywords: Any) -> Setting:
    """The setting of `row`, with the paper's numbers for it."""
    return Setting(row, settings, paper=NUMBERS[study].get(row, {}), **keywords)


def bases(study: str, protocol: str, task: str | None = None) -> list[Setting]:
    """The base model at 0 labels, 0-shot and 5-shot, in the table's own protocol."""
    before = "" if task is None else f"{task}: "
    return [
        named(
            study, f"{before}Base, {shots}-shot", {"protocol": protocol},
            budget_fraction=0.0, task=task, shots=shots,
            marks=(f"{shots} labeled examples in the prompt",) if shots else (),
        )
        for shots in SHOTS
    ]  # fmt: skip


def baselines(study: str, settings: Mapping[str, Any], llf: Setting) -> list[Setting]:
    """The other gates on as many labels as the row `llf` has, with its learner.

    Their skipped rounds take no KL-only step, which `llf` has none of either before its labels
    are spent; `first` is `llf`'s twin.
    """
    words = llf.row.partition("LLF-StackSL")
    if not words[1]:
        words = ("", "", ", " + llf.row)
    return [
        named(
            study, f"{words[0]}{gate}{words[2]}", {**gated(gate), **settings},
            budget_fraction=llf.budget_fraction, items=llf.items, task=llf.task,
            chosen=llf.chosen, twin=llf if gate == "first" else None,
        )
        for gate in BASELINES
    ]  # fmt: skip


def permutation(setup: Setup, protocol: str, *settings: Setting) -> list[Setting]:
    """Controls: the same rows with the options of every item in an order drawn again.

    Only where the order is seen: in protocol `letter`. By options alone no score depends on it.
    """
    if setup.settings.get("protocol", protocol) != "letter":
        return []
    return [
        replace(setting, row=f"{setting.row}, options permuted", permuted=True, paper={})
        for setting in settings
    ]


def full() -> Setting:
    """StackSL on every label: what the others are shares of."""
    settings = {**stacksl(), "gate": "always", **LATE, **LETTER}
    return named("label-efficiency", "Full StackSL", settings, chosen=True)


def efficiency_grid(setup: Setup) -> Sequence[Setting]:
    """Base rows, StackSL, LLF-StackSL and the baselines at each β below 1, and the control."""
    zero, five = bases("label-efficiency", "letter")
    rows = [zero, five, full()]
    for budget in BUDGETS[1:]:
        row = f"LLF-StackSL, β = {budget:g}"
        mine = named(
            "label-efficiency", row, {**llf(), **LETTER}, budget_fraction=budget, chosen=True
        )
        rows += [mine, *baselines("label-efficiency", LETTER, mine)]
    return [*rows, *permutation(setup, "letter", zero, full())]


def efficiency(
    setting: Setting, seed: int, bench: LanguageBench, result: Result
) -> Mapping[str, float | None]:
    """Accuracy, F1, the labels used, and accuracy against that of all labels and of none.

    With a the row's accuracy, b the base model's and f that of all labels under the same seed:
    `percent_of_full` = 100 a / f, `gain` = a − b and `gain_kept` = (a − b) / (f − b).
    """
    numbers: dict[str, float | None] = {"accuracy": result.accuracy, "macro_f1": result.macro_f1}
    if setting.shots is not None or setting.permuted or result.accuracy is None:
        return numbers
    numbers["used_fraction"] = result.asked / result.rounds
    full_accuracy = measured(full(), seed, bench)[1].accuracy
    none = measured(bases("label-efficiency", "letter")[0], seed, bench)[1].accuracy
    if full_accuracy:
        numbers["percent_of_full"] = 100 * result.accuracy / full_accuracy
    if none is not None:
        numbers["gain"] = result.accuracy - none
        if full_accuracy is not None and full_accuracy != none:
            numbers["gain_kept"] = (result.accuracy - none) / (full_accuracy - none)
    return numbers


LABEL_EFFICIENCY = LanguageStudy(
    name="label-efficiency",
    title="Label efficiency",
    claim="LLF-StackSL keeps about 94% of the accuracy of all labels with 10% of them",
    cost="23 runs per seed, 6 of which choose kl_weight and k",
    metrics=("accuracy", "macro_f1", "used_fraction", "percent_of_full", "gain", "gain_kept"),
    grid=efficiency_grid,
    measure=efficiency,
)


def _swept(study: str, row: str, kl_weight: float, k: int) -> Setting:
    settings = {**llf(kl_weight, k), **OPTION}
    return named(study, row, settings, budget_fraction=HALF, items=STREAM)


def kl_grid(setup: Setup) -> Sequence[Setting]:
    """Algorithm 2 with each kl_weight at k = 4; the baselines at 0.7."""
    rows = [_swept("kl", f"λ_KL = {weight:g}", weight, 4) for weight in KL_WEIGHTS]
    at = rows[KL_WEIGHTS.index(0.7)]
    return [*bases("kl", "option"), *rows, *baselines("kl", OPTION, at)]


def negatives_grid(setup: Setup) -> Sequence[Setting]:
    """Algorithm 2 with each k at kl_weight = 0.7; the baselines at k = 4."""
    study = "hard-negatives"
    rows = [_swept(study, f"k = {k}", 0.7, k) for k in NEGATIVES]
    return [*bases(study, "option"), *rows, *baselines(study, OPTION, rows[-1])]


KL = LanguageStudy(
    name="kl",
    title="Weight of the KL term",
    claim="A KL weight of 0.7 gives the best accuracy of Algorithm 2 at N = 1,000",
    cost="8 runs of 1,000 items per seed",
    grid=kl_grid,
    measure=accuracies,
)

HARD_NEGATIVES = LanguageStudy(
    name="hard-negatives",
    title="Number of hard negatives",
    claim="Four hard negatives give the best accuracy of Algorithm 2 at N = 1,000",
    cost="7 runs of 1,000 items per seed, 5 of which are also runs of kl",
    grid=negatives_grid,
    measure=accuracies,
)


def objectives_grid(setup: Setup) -> Sequence[Setting]:
    """SFT, CE, CE over hard candidates without regularization, StackSL; base rows, control."""
    study = "objectives"
    zero, five = bases(study, "letter")
    full = named(study, "StackSL (Full)", {**stacksl(), **MLE, **LETTER}, chosen=True)
    rows = [
        named(study, "SFT", objective("sft") | LETTER),
        named(study, "Supervised (CE)", objective("ce") | LETTER),
        named(study, "Supervised (CE, no reg.)", objective("ce-hard") | LETTER),
        full,
    ]
    return [zero, five, *rows, *permutation(setup, "letter", zero, full)]


def clipping_grid(setup: Setup) -> Sequence[Setting]:
    """StackSL's loss without a clip, with the paper's, and with one that scales gradients."""
    study = "clipping-lm"
    rows = [
        ("challenging candidates (no ρ)", stacksl(clip="none")),
        ("StackSL (Full)", stacksl()),
        ("StackSL, ρ scales the gradient", stacksl(clip="scale")),
    ]
    named_rows = [named(study, row, {**s, **MLE, **OPTION}, chosen=True) for row, s in rows]
    return [*bases(study, "option"), *named_rows]


def losses(
    setting: Setting, seed: int, bench: LanguageBench, result: Result
) -> Mapping[str, float | None]:
    """Mean and largest loss of the labels in the last epoch, as trained on, and the accuracy."""
    numbers = dict(accuracies(setting, seed, bench, result))
    if setting.shots is not None:
        return {"accuracy": numbers["accuracy"]}
    return {
        "mean_loss": result.mean_loss,
        "max_loss": result.max_loss,
        "clipped": result.clipped,
        "accuracy": numbers["accuracy"],
    }


OBJECTIVES = LanguageStudy(
    name="objectives",
    title="Training objectives",
    claim="StackSL's regularized objective is as good as SFT and cross-entropy on all labels",
    cost="11 runs per seed, 6 of which choose kl_weight and k",
    metrics=("accuracy", "macro_f1", "accuracy_sd"),
    grid=objectives_grid,
    measure=accuracies,
    spread=True,
)

CLIPPING = LanguageStudy(
    name="clipping-lm",
    title="Clipping of the loss",
    claim="Clipping at 5 nats cuts the largest losses and leaves the mean as it is",
    cost="9 runs per seed, 6 of which choose kl_weight and k",
    metrics=("mean_loss", "max_loss", "clipped", "accuracy"),
    grid=clipping_grid,
    measure=losses,
)


def medqa_grid(setup: Setup) -> Sequence[Setting]:
    """The four rows of the paper, the baselines, and `margin` with KL-only steps on its skips."""
    rows = _methods("medqa", None, "MC-Ranker")
    pulled = gated("margin", kl_on_skips=True) | OPTION
    last = named(
        "medqa", "margin, KL-only steps", pulled, budget_fraction=HALF, chosen=True
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
        study, f"{before}LLF-StackSL", llf() | OPTION, budget_fraction=HALF, task=task,
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
    claim="StackSL beats a fine-tuned ranker of options; LLF-StackSL has part of it for half",
    cost="14 runs per seed, 6 of which choose kl_weight and k",
    grid=medqa_grid,
    measure=accuracies,
)

MMLU = LanguageStudy(
    name="mmlu",
    title="Three subjects of MMLU",
    claim="With 11 to 29 questions StackSL or LLF-StackSL is the best in each subject",
    cost="27 runs per seed, 6 of which choose kl_weight and k on MedQA",
    grid=mmlu_grid,
    measure=accuracies,
)


LANGUAGE: Mapping[str, LanguageStudy] = {
    study.name: study
    for study in (LABEL_EFFICIENCY, KL, HARD_NEGATIVES, OBJECTIVES, MEDQA, MMLU, CLIPPING)
}
"""By the name that `stacksl-lab reproduce` takes."""
