"""The tables of the pages hold what the code resolves to."""

from __future__ import annotations

import dataclasses

from stacksl.lm.prompt.format import TEMPLATES, template
from stacksl.lm.size import Size
from stacksl.runs.session.build_learner import default_scorer
from stacksl.runs.settings.conflicts import OF_MODEL
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.presets import PRESETS
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.language.paper import FIXED
from stacksl_lab.study.rows import KEYS

from .pages_cases import PAGES, rows_under, spans


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_table_of_presets_is_what_they_resolve_to() -> None:
    page = PAGES["docs/presets.md"]
    table = {row[0].strip("`"): row[1:] for row in rows_under(page, "setting")}
    resolved = {
        "default": resolve(),
        "paper-stacksl": resolve(preset="paper-stacksl"),
        "paper": resolve(preset="paper"),
    }
    for name, cells in table.items():
        if name not in Settings.model_fields:
            assert name == "feedback"
            continue
        for cell, made in zip(cells, resolved.values(), strict=False):
            value = getattr(made.settings, name)
            if name == "scorer" and value is None:
                value = default_scorer(2)
                assert f"`{default_scorer(None)}` for pairs" in cell
            if name == "clip_level" and value is None:
                assert cell == "95 % quantile"
                continue
            assert cell.startswith(f"`{shown(value)}`"), f"{name}: {cell}, resolved {value}"
    assert resolve({"aim": "regret"}).settings.gate in table["gate"][0]
    differing = {
        name
        for made in resolved.values()
        for name, origin in made.origin.items()
        if origin == "preset"
    }
    assert differing <= set(table), "every setting that a preset sets has its row"


SHARED = (  # settings of a language model's refits that `sgd` has too
    "learning_rate", "kl_weight", "kl_target", "kl_on_skips", "reference", "ema_decay", "clip",
    "clip_level", "clip_multiple",
)  # fmt: skip


def test_the_settings_of_a_language_model_are_all_there_with_their_defaults() -> None:
    table = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/lm.md"], "setting")}
    assert set(table) == {"model", "adapt", *OF_MODEL, *SHARED}
    unset = {"model": "none", "template": "`answer`, for `letter` `letters`"}
    found = resolve({"model": "sample"}).settings.model_copy(update=dict.fromkeys(unset))
    for name, cell in table.items():
        value = getattr(found, name)
        wanted = unset.get(name, "none") if value is None else f"`{shown(value)}`"
        assert cell.startswith(wanted), f"{name}: {cell}, resolved {value}"
    assert TEMPLATES["answer"] == template(None, "option")
    assert TEMPLATES["letters"] == template(None, "letter")


def test_what_the_studies_fix_is_what_the_page_says() -> None:
    rows = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/presets.md"], "left open")}
    for name, value in FIXED.items():
        assert rows[name] == f"`{shown(value)}`", name


def test_the_contract_of_size_and_reproduce_is_that_of_their_records() -> None:
    page = PAGES["docs/cli.md"]
    keys = {row[0].strip("`") for row in rows_under(page.partition("### Group size")[2], "key")}
    assert keys == {*(field.name for field in dataclasses.fields(Size)), "memory", "free", "refits"}
    reproduce = page.partition("### `stacksl-lab reproduce`")[2].partition("### ")[0]
    assert set(KEYS) <= set(spans(reproduce))


def test_the_recipes_are_the_presets() -> None:
    table = [
        [row[0].strip("`"), *map(float, row[2:])]
        for row in rows_under(PAGES["docs/presets.md"], "preset")
    ]
    named = {name: PRESETS[name] for name in ("small", "medium", "large")}
    assert table == [
        [name, preset["kappa"], preset["kl_weight"], preset["learning_rate"]]
        for name, preset in named.items()
    ]
