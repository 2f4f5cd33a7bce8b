"""What pages and docstrings show is what the code says: tables, options, examples."""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
from importlib import import_module

import pytest

from stacksl.core import GATES
from stacksl.lm.prompt.format import TEMPLATES, template
from stacksl.lm.size import Size
from stacksl.runs.session.build_learner import default_scorer
from stacksl.runs.settings.fields import CalibratedGate, LanguageModel, Update
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.baselines.registry import BASELINES
from stacksl_lab.language.paper import FIXED
from stacksl_lab.study.rows import KEYS

from .pages_cases import PAGES, ROOT, rows_under, spans


def cell_of(value: object) -> str:
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
        if name == "feedback":
            continue
        for cell, made in zip(cells, resolved.values(), strict=False):
            of_llf = CalibratedGate.model_fields["kappa"].default  # the default names another gate
            value = made.settings.flat().get(name, of_llf)
            if name == "scorer.name" and value is None:
                value = default_scorer(2)
                assert f"`{default_scorer(None)}` for pairs" in cell
            if name == "update.clip_level" and value is None:
                assert cell == "95% quantile"
                continue
            assert cell.startswith(f"`{cell_of(value)}`"), f"{name}: {cell}, resolved {value}"
    differing = {
        name
        for made in resolved.values()
        for name, origin in made.origin.items()
        if origin == "preset"
    }
    assert differing <= set(table), "every setting that a preset sets has its row"


def test_the_settings_of_a_language_model_are_all_there_with_their_defaults() -> None:
    table = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/lm.md"], "setting")}
    own = {f"lm.{name}" for name in LanguageModel.model_fields}
    assert set(table) == own | {f"update.{name}" for name in Update.model_fields}
    unset = {"lm.model": "none", "lm.template": "`answer`, for `letter` `letters`"}
    found = resolve({"lm.model": "sample"}).settings.flat() | dict.fromkeys(unset)
    for name, cell in table.items():
        value = found[name]
        wanted = unset.get(name, "none") if value is None else f"`{cell_of(value)}`"
        assert cell.startswith(wanted), f"{name}: {cell}, resolved {value}"
    assert TEMPLATES["answer"] == template(None, "option")
    assert TEMPLATES["letters"] == template(None, "letter")


def test_what_the_studies_fix_is_what_the_page_says() -> None:
    rows = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/presets.md"], "left open")}
    for name, value in FIXED.items():
        assert rows[name] == f"`{cell_of(value)}`", name


def test_the_contract_of_size_and_reproduce_is_that_of_their_records() -> None:
    page = PAGES["docs/cli.md"]
    keys = {row[0].strip("`") for row in rows_under(page.partition("### Group size")[2], "key")}
    counts = {"labels", "refits", "memory", "free"}
    assert keys == {*(field.name for field in dataclasses.fields(Size)), *counts}
    reproduce = page.partition("### `stacksl-lab reproduce`")[2].partition("### ")[0]
    assert set(KEYS) <= set(spans(reproduce))


# The options on docs/cli.md are those of the command line ---------------------------------------


def test_the_options_are_those_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BASELINES:  # a study of the laboratory may have registered them in this process
        monkeypatch.delitem(GATES, name, raising=False)
    spec = importlib.util.spec_from_file_location("cli_page", ROOT / "scripts" / "cli_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = PAGES["docs/cli.md"]
    assert "| `--budget B` |" in page
    assert script.refreshed(page) == page, "run python scripts/cli_page.py"


# The examples in the docstrings of both packages give what they say -----------------------------


MODULES = sorted(
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    for source in (ROOT / "src", ROOT / "lab" / "src")
    for path in source.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_the_examples_were_found() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    found = doctest.testmod(import_module(name))
    assert found.attempted
    assert not found.failed, "the output above says which"
