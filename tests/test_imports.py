"""The start stays light, and the public names cannot drift."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import stacksl

HEAVY = """accelerate alembic datasets jinja2 joblib matplotlib numba peft pyarrow safetensors scipy
    sentence_transformers onnx onnxruntime sklearn torch transformers"""
FACADE = Path(stacksl.__file__)

HELP = """
import runpy
for line in ("--help", "run --help", "ledger --help", "--version"):
    sys.argv = ["stacksl", *line.split()]
    try:
        runpy.run_module("stacksl", run_name="__main__")
    except SystemExit as done:
        assert not done.code, (line, done.code)
"""


def loaded_by(script: str) -> set[str]:
    """The top-level modules loaded after a fresh interpreter ran the script."""
    tail = "\nprint('LOADED', *sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", "import sys" + "\n" + script + tail],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_the_help_loads_nothing_heavy() -> None:
    loaded = loaded_by(HELP)
    assert "typer" in loaded, "the probe saw the command line run"
    assert not loaded & {*HEAVY.split(), "numpy"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import stacksl")
    assert "stacksl" in loaded
    assert not loaded & {*HEAVY.split(), "numpy", "pydantic", "typer", "rich"}


@pytest.mark.parametrize("name", sorted(set(stacksl.__all__) - {"__version__"}))
def test_a_public_name_is_the_one_of_its_home(name: str) -> None:
    home = stacksl._HOME[name]
    assert getattr(stacksl, name) is getattr(import_module(home), name)


def test_the_lists_of_public_names_agree() -> None:
    typed = {
        (alias.name, node.module)
        for block in ast.parse(FACADE.read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == set(stacksl._HOME.items())
    assert {*stacksl._HOME, "__version__"} == set(stacksl.__all__) == set(dir(stacksl))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stacksl.nothing


def test_the_version_is_the_installed_one() -> None:
    assert stacksl.__version__ == metadata.version("stacksl")
