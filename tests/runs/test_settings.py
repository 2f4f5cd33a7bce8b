"""Layers of settings, their origins, their mistakes, and the presets as the design has them."""

from __future__ import annotations

from itertools import pairwise

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


def test_what_run_toml_holds_is_what_differs_from_the_defaults() -> None:
    assert resolve({"seed": 3}).explicit() == {"seed": 3}
    again = resolve(config=resolve({"seed": 3}, preset="paper").explicit())
    assert again.settings == resolve({"seed": 3}, preset="paper").settings


@pytest.mark.parametrize("budget", [0.1, "0.1", 5, "$4"])
def test_a_budget_keeps_its_decimals(budget: object) -> None:
    settings = resolve({"budget": budget, "price": 2.50}).settings
    assert (settings.budget, settings.price) == (str(budget), "2.5")


PAPER = {
    "scorer": "sgd", "action": "ucb", "track": "all", "radius_counts": "rounds",
    "clip": "literal", "clip_level": 5.0, "ridge": 1.0, "delta": 0.05, "noise": 1.0,
    "norm_bound": 1.0, "learning_rate": 0.1, "kl_weight": 0.5, "refit": False,
}  # fmt: skip
TABLE = {
    None: {
        "scorer": None, "action": "greedy", "gate": "margin", "track": "labelled",
        "radius_counts": "learnt", "reference": "frozen", "kl_on_skips": False, "clip": "scale",
        "clip_level": None, "ridge": 1.0, "delta": 0.05, "noise": 1.0, "norm_bound": 1.0,
        "learning_rate": 0.1, "kl_weight": 0.1, "refit": True, "follower": "given",
        "labeler": "oracle", "mode": "stream", "order": "shuffled", "budget": "0.1",
        "features": "hashing", "aim": "model", "batch": 25,
    },
    "paper-stacksl": {**PAPER, "gate": "always", "reference": "previous", "kl_on_skips": False},
    "paper": {
        **PAPER, "gate": "llf", "gate_scale": None, "kappa": 1.0, "reference": "frozen",
        "kl_on_skips": True, "reading": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("preset", TABLE)
def test_a_preset_is_the_column_of_the_designs_table(preset: str | None) -> None:
    settings = resolve(preset=preset).settings
    assert {name: getattr(settings, name) for name in TABLE[preset]} == TABLE[preset]


def test_the_other_aim_has_its_own_gate_and_nothing_else() -> None:
    model, regret = resolve().settings, resolve({"aim": "regret"}).settings
    other = {"aim": "regret", "gate": "information"}
    assert {name: getattr(regret, name) for name in other} == other
    same = set(Settings.model_fields) - set(other)
    assert regret.model_dump(include=same) == model.model_dump(include=same)
    assert (default_scorer(3), default_scorer(None)) == ("ridge", "newton")


def test_the_recipes_go_the_way_the_paper_says() -> None:
    """Smaller budgets: larger κ, larger KL weight, smaller learning rate."""
    made = [resolve(preset=name).settings for name in ("small", "medium", "large")]
    assert {each.gate for each in made} == {"llf"}
    for small, large in pairwise(made):
        assert small.kappa > large.kappa
        assert small.kl_weight > large.kl_weight
        assert small.learning_rate < large.learning_rate


def mistake(**layers: object) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(**layers)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "hints"),
    [
        (
            {"bugdet": 5, "ridge": -1, "gate": "margn"},
            [
                "did you mean 'budget'",
                "ridge must be greater than or equal to 0.000001, not -1",
                "'margin'",
            ],
        ),
        (
            {"budget": "abc", "features": "hashin", "labeler": "oracel"},
            ["not 'abc'", "did you mean 'hashing'", "did you mean 'oracle'"],
        ),
        (
            {"mode": "lake", "noise": float("inf"), "k": 2},
            ["'stream' or 'pool'", "noise must be a finite number", "--set follower=hard"],
        ),
        (
            {"preset": "papr", "delta": float("nan"), "kl_weight": 0.5},
            ["did you mean 'paper'", "delta", "belongs to the scorer 'sgd'"],
        ),
        (
            {"width_scale": 0, "seed": "x", "scorer": "newtn"},
            ["width_scale must be above 0", "seed", "did you mean 'newton'"],
        ),
    ],
)
def test_three_mistakes_are_named_at_once(config: dict, hints: list[str]) -> None:
    said = mistake(config=config)
    assert all(hint in said for hint in hints), said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["reference", "ema_decay", "kl_weight", "clip", "inner_steps"])
@pytest.mark.parametrize("scorer", [None, "ridge", "newton"])
def test_kl_and_clipping_belong_to_sgd(name: str, scorer: str | None) -> None:
    value = Settings.model_fields[name].default
    assert "belongs to the scorer 'sgd'" in mistake(flags={"scorer": scorer, name: value})
    assert resolve({"scorer": "sgd", name: value}).settings.scorer == "sgd"


def test_contested_needs_a_width() -> None:
    said = mistake(flags={"gate": "contested", "width_scale": 0})
    assert "never asks" in said
