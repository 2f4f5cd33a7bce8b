"""`objectives`: what is minimised, on every label; and `clipping-lm`: what clipping does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stacksl.studies.asking import accuracies
from stacksl.studies.cells import Result
from stacksl.studies.grids import bases, named, permutation
from stacksl.studies.language import SEEDS, LanguageBench, LanguageStudy, Setting
from stacksl.studies.methods import MLE, objective, stacksl
from stacksl.studies.tasks import Setup

LETTER = {"protocol": "letter"}
OPTION = {"protocol": "option"}


def objectives_grid(setup: Setup) -> Sequence[Setting]:
    """SFT, CE, CE over hard candidates without regularisation, StackSL; base rows, control."""
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
    found = dict(accuracies(setting, seed, bench, result))
    if setting.shots is not None:
        return {"accuracy": found["accuracy"]}
    return {
        "mean_loss": result.mean_loss,
        "max_loss": result.max_loss,
        "clipped": result.clipped,
        "accuracy": found["accuracy"],
    }


OBJECTIVES = LanguageStudy(
    name="objectives",
    title="Training objectives",
    claim="StackSL's regularised objective is as good as SFT and cross-entropy on all labels",
    cost="11 runs a seed, 6 of them to choose kl_weight and k",
    metrics=("accuracy", "macro_f1", "accuracy_sd"),
    seeds=SEEDS,
    grid=objectives_grid,
    measure=accuracies,
    spread=True,
)

CLIPPING = LanguageStudy(
    name="clipping-lm",
    title="Clipping of the loss",
    claim="Clipping at 5 nats cuts the largest losses and leaves the mean as it is",
    cost="9 runs a seed, 6 of them to choose kl_weight and k",
    metrics=("mean_loss", "max_loss", "clipped", "accuracy"),
    seeds=SEEDS,
    grid=clipping_grid,
    measure=losses,
)
