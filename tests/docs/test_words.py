"""The documentation stays short: words that somebody wrote, as `make words` counts them."""

from __future__ import annotations

import importlib.util
import types

import pytest

from .pages_cases import PAGES, ROOT


@pytest.fixture(scope="module")
def script() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "scripts" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_keeps_its_limits(script: types.ModuleType) -> None:
    counts = script.pages()
    assert set(counts) == set(PAGES) - {"docs/cli.md"}
    assert counts["README.md"] <= script.LIMIT_OF_README
    assert sum(counts.values()) <= script.LIMIT


def test_what_a_program_writes_is_not_counted(script: types.ModuleType) -> None:
    made = "<!-- study: toy -->\n| a | 0.1 ± 0.2 |\n<!-- end -->\n"
    assert script.words(f"Three words,\n\n{made}\nhere 0.1<!--llf/κ = 1/regret--> | = |") == 4
    assert script.words("| a | b |\n|---|---|\n") == 2
