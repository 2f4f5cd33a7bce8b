"""The examples in the docstrings of both packages give what they say.

Pytest's own option would load every module of the packages, and of the tests, in each process.
"""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from .pages_cases import ROOT

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
