"""Layers of settings, their origins, their mistakes, and the presets as the design has them."""

from __future__ import annotations

import re

import pytest

from stacksl.errors import SettingsError
from stacksl.runs.session.assignment import SHEET
from stacksl.runs.session.build_learner import default_scorer
from stacksl.runs.settings.fields import FIELDS, descriptions
from stacksl.runs.settings.resolve import RENAMED, known_settings, resolve


def test_a_flag_is_over_the_config_over_the_preset_over_the_default() -> None:
    def seen(**layers: object) -> tuple[str, str]:
        resolved = resolve(**layers)  # type: ignore[arg-type]
        return resolved.settings.gate.name, resolved.origin["gate.name"]

    flags, config = {"gate": "first"}, {"gate": "random"}
    assert seen(flags=flags, config=config, preset="paper") == ("first", "flag")
    assert seen(config=config, preset="paper") == ("random", "config")
    assert seen(preset="paper") == ("llf", "preset")
    assert seen() == ("margin", "default")
    assert resolve().origin["scorer.ridge"] == "default"


@pytest.mark.parametrize("names", ["owner", "anna,Owner"])
def test_nobody_is_called_as_the_page_calls_its_owner(names: str) -> None:
    found = mistake(flags={"labeler": "file", "annotators": names})
    assert found.startswith("the page calls you 'owner', so no annotator may be called that")
    resolve({"labeler": "file", "annotators": "anna,owner-2"})


def test_names_may_have_marks_between_their_letters() -> None:
    names = "अनीता,ปิ่น,Zoe\u0308"
    assert resolve({"labeler": "file", "annotators": names}).settings.annotators == names
    assert all(SHEET(f"0001-{name}.xlsx") for name in names.split(","))


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"url": "ftp://x", "input_price": 1, "output_price": 1}, "the url should be http://"),
        ({"url": "http://x/v1", "input_price": "dear"}, "a price must be a number such as 2.50"),
    ],
)
def test_a_wrong_value_is_not_told_to_be_missing(server: dict[str, object], told: str) -> None:
    found = mistake(flags={"labeler": "openai:m", "budget": "$4", "server": server})
    assert re.match(told, found)
    assert "; " not in found


@pytest.mark.parametrize("budget", [0.1, "0.1", 5, "$4"])
def test_a_budget_keeps_its_decimals(budget: object) -> None:
    settings = resolve({"budget": budget, "price": 2.50}).settings
    assert (settings.budget, settings.price) == (str(budget), "2.5")


def test_the_default_scorer_depends_on_the_classes() -> None:
    assert (default_scorer(3), default_scorer(None)) == ("ridge", "newton")


def mistake(**layers: object) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(**layers)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "hints"),
    [
        (
            {"mode": "lake", "scorer.noise": float("inf"), "top_k": 0},
            ["'stream' or 'pool'", "noise must be a finite number", "top_k"],
        ),
        (
            {"preset": "papr", "scorer.delta": float("nan"), "update.kl_weight": 0.5},
            ["did you mean 'paper'", "delta", "belongs to the scorer 'sgd'"],
        ),
    ],
)
def test_three_mistakes_are_named_at_once(config: dict, hints: list[str]) -> None:
    said = mistake(config=config)
    assert all(hint in said for hint in hints), said
    assert "\n" not in said


def test_kl_and_clipping_belong_to_sgd() -> None:
    for name in ("reference", "kl_weight", "clip", "kl_on_skips"):
        given = {f"update.{name}": FIELDS[f"update.{name}"].default}
        assert "belongs to the scorer 'sgd'" in mistake(flags=given)
        assert resolve({"scorer": "sgd", **given}).settings.scorer.name == "sgd"


def test_a_group_is_a_table_dotted_names_or_its_first_setting() -> None:
    written = resolve({"gate": {"name": "llf", "kappa": 0.5}, "update": {"clip": "none"}, **SGD})
    dotted = resolve({"gate.name": "llf", "gate.kappa": 0.5, "update.clip": "none", **SGD})
    short = resolve({"gate": "llf", "gate.kappa": "0.5", "update.clip": "none", **SGD})
    assert written == dotted == short
    assert written.origin["gate.kappa"] == "flag"


SGD = {"scorer": "sgd"}


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("lora_rank", "lm.lora_rank"),
        ("lm.kappa", "gate.kappa"),
        ("batch", "open_questions"),
        ("ask_dir", "sheets.dir"),
        ("name", "gate.name or scorer.name"),
    ],
)
def test_a_former_name_is_answered_with_the_present_one(former: str, now: str) -> None:
    assert mistake(flags={former: 1}) == f"unknown setting '{former}': it is called {now}"


def test_every_former_name_leads_to_a_setting() -> None:
    assert set(RENAMED.values()) <= set(known_settings())
    assert not set(RENAMED) & set(known_settings())


def test_the_help_of_a_setting_stands_alone() -> None:
    for name, text in descriptions().items():
        assert text, name
        assert not text.startswith(("Of ", "of ")), name
        assert not re.search(r"(?<!docs/paper\.md, )\bD\d+\b", text), name


def test_a_preset_s_setting_of_its_gate_falls_with_the_gate() -> None:
    chosen = resolve({"gate": "margin"}, preset="paper")
    assert chosen.settings.gate.name == "margin"
    assert "gate.kappa" not in chosen.origin


@pytest.mark.parametrize("mode", ["0200", "640x", "7", "0088"])
def test_sheets_are_the_owner_s_to_read(mode: str) -> None:
    said = mistake(flags={"labeler": "file", "sheets": {"mode": mode, "dir": "desk"}})
    assert said == (
        "sheets.mode must be permissions that let the owner read and write, such as 0640,"
        f" not '{mode}'"
    )
