"""Facts of an adapted language model: epochs of decisions, and settings of its training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stacksl.lm import LoraSettings, ModelChoices, TrainSettings
from stacksl.report.language import Epoch
from stacksl.runs.finish.adapters import epochs_of, training_of


@dataclass
class Certificate:
    """As much of a decision as an epoch counts."""

    asked: bool
    gate_score: float


@dataclass
class Row:
    """As much of a ledger's row as an epoch counts."""

    event: str
    epoch: int = 0
    certificate: Certificate = field(default_factory=lambda: Certificate(False, 0.0))

    def decision(self) -> Certificate:
        return self.certificate


def training(choices: ModelChoices) -> dict[str, str]:
    return {row.name: row.value for row in training_of(choices)}


def rounds(*scores: tuple[int, bool, float]) -> list[Any]:
    return [Row("round", epoch, Certificate(asked, score)) for epoch, asked, score in scores]


def test_each_epoch_has_its_own_sum() -> None:
    rows = rounds((0, True, 1.5), (0, False, 0.25), (1, True, 8.0), (1, False, -3.0))
    rows.insert(2, Row("refreshed", 0))
    assert list(epochs_of(rows)) == [
        Epoch(0, 2, 1, 1.75, 1.5),
        Epoch(1, 2, 1, 8.0, 8.0),
    ]


@pytest.mark.parametrize("missing", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_counts_as_nothing(missing: float) -> None:
    (epoch,) = epochs_of(rounds((0, True, missing), (0, True, 2.0)))
    assert (epoch.rounds, epoch.asked, epoch.gate_score) == (2, 2, 2.0)
    (alone,) = epochs_of(rounds((3, False, missing)))
    assert alone == Epoch(3, 1, 0, None, None)


def test_a_run_without_a_round_has_no_epoch() -> None:
    assert epochs_of([]) == ()


def test_the_training_facts_are_those_of_the_settings() -> None:
    lora = LoraSettings(rank=4, alpha=8.0, targets=("q_proj", "v_proj"))
    told = training(
        ModelChoices("m", lora=lora, training=TrainSettings(objective="stacksl", kl_weight=0.3))
    )
    assert told["LoRA rank"] == "4"
    assert told["Adapted layers"] == "q_proj, v_proj"
    assert (told["Objective"], told["KL weight at the start"]) == ("stacksl", "0.3")
    assert training(ModelChoices("m"))["Adapted layers"].startswith("every linear layer")


def test_unused_settings_are_left_out() -> None:
    recipe = TrainSettings(objective="sft", kl_weight=0.3, clip="scale")
    told = training(ModelChoices("m", training=recipe))
    assert "Reference" not in told
    assert told["Clipping"] == "none", "only the objective stacksl clips"
