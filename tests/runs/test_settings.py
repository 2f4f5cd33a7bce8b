"""Layers of settings, their origins, their mistakes, and the presets as the design has them."""

from __future__ import annotations

import pytest

from stacksl.errors import SettingsError
from stacksl.runs.session.build_learner import default_scorer
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import resolve


def test_a_flag_is_over_the_config_over_the_preset_over_the_aim_over_the_default() -> None:
    def seen(**layers: object) -> tuple[str, str]:
        resolved = resolve(**layers)  # type: ignore[arg-type]
        return resolved.settings.gate, resolved.origin["gate"]

    flags, config = {"gate": "first", "aim": "regret"}, {"gate": "random", "aim": "regret"}
    assert seen(flags=flags, config=config, preset="paper") == ("first", "flag")
    assert seen(flags={"aim": "regret"}, config=config, preset="paper") == ("random", "config")
    assert seen(flags={"aim": "regret"}, preset="paper") == ("llf", "preset")
    assert seen(flags={"aim": "regret"}) == ("information", "aim")
    assert seen() == ("margin", "aim")
    assert resolve().origin["ridge"] == "default"


def test_a_config_may_name_the_preset_and_a_flag_names_another() -> None:
    assert resolve(config={"preset": "paper"}).preset == "paper"
    assert resolve(config={"preset": "paper"}, preset="paper-stacksl").preset == "paper-stacksl"


def test_an_absent_flag_is_no_flag() -> None:
    resolved = resolve({"ridge": None, "gate": None}, {"ridge": 0.5})
    assert (resolved.settings.ridge, resolved.origin["ridge"]) == (0.5, "config")


@pytest.mark.parametrize("budget", [0.1, "0.1", 5, "$4"])
def test_a_budget_keeps_its_decimals(budget: object) -> None:
    settings = resolve({"budget": budget, "price": 2.50}).settings
    assert (settings.budget, settings.price) == (str(budget), "2.5")


def test_the_other_aim_has_its_own_gate_and_nothing_else() -> None:
    model, regret = resolve().settings, resolve({"aim": "regret"}).settings
    other = {"aim": "regret", "gate": "information"}
    assert {name: getattr(regret, name) for name in other} == other
    same = set(Settings.model_fields) - set(other)
    assert regret.model_dump(include=same) == model.model_dump(include=same)
    assert (default_scorer(3), default_scorer(None)) == ("ridge", "newton")


def mistake(**layers: object) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(**layers)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "hints"),
    [
        (
            {"mode": "lake", "noise": float("inf"), "k": 2},
            ["'stream' or 'pool'", "noise must be a finite number", "--set follower=hard"],
        ),
        (
            {"preset": "papr", "delta": float("nan"), "kl_weight": 0.5},
            ["did you mean 'paper'", "delta", "belongs to the scorer 'sgd'"],
        ),
    ],
)
def test_three_mistakes_are_named_at_once(config: dict, hints: list[str]) -> None:
    said = mistake(config=config)
    assert all(hint in said for hint in hints), said
    assert "\n" not in said


def test_kl_and_clipping_belong_to_sgd() -> None:
    for name in ("reference", "ema_decay", "kl_weight", "clip", "inner_steps"):
        value = Settings.model_fields[name].default
        assert "belongs to the scorer 'sgd'" in mistake(flags={name: value})
        assert resolve({"scorer": "sgd", name: value}).settings.scorer == "sgd"
