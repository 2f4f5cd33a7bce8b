"""The code of the page on extending plays runs and passes the contracts."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.core import FOLLOWERS, GATES, SCORERS
from stacksl.features import FEATURES
from stacksl.labelers.registry import LABELERS

from .pages_cases import BLOCK, PAGES, ROOT

EXTENSIONS = "\n".join(
    code for kind, code in BLOCK.findall(PAGES["docs/extending.md"]) if kind == "python"
)


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The page's code, run; the registries are as before afterwards."""
    for known in (GATES, SCORERS, FOLLOWERS, LABELERS, FEATURES):
        for name in list(known):
            monkeypatch.setitem(known, name, known[name])
    for known, name in ((GATES, "unsure"), (SCORERS, "perceptron"), (FEATURES, "letters")):
        monkeypatch.setitem(known, name, None)
    monkeypatch.setitem(LABELERS, "off-by-one", None)
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    exec(compile(EXTENSIONS, "docs/extending.md", "exec"), page.__dict__)
    return page


@pytest.mark.parametrize(
    "settings",
    [
        {"gate": "unsure"},
        {"gate": "unsure", "mode": "pool"},
        {"gate": "unsure", "level": 0.25},
        {"scorer": "perceptron"},
        {"labeler": "off-by-one"},
        {"features": "letters"},
    ],
    ids=str,
)
def test_a_part_written_as_the_page_says_plays_a_run(
    extended: Any, tmp_path: Path, settings: dict[str, str]
) -> None:
    plan = stacksl.prepare(
        extended.items, extended.answers, out=tmp_path / "run", settings={"budget": 8, **settings}
    )
    run = plan.start()
    assert run.status()["state"] == "finished"
    assert run.status()["asked"] == 8
    if "labeler" in settings:
        assert run.status()["accuracy_before"] is not None
        with run.ledger as ledger:
            bought = [(r["item"], r["answer"]) for r in ledger.export()]
        assert all(answer == 1 - extended.answers[item] for item, answer in bought)


def test_the_pages_gate_is_not_taken_for_a_compiled_one(tmp_path: Path) -> None:
    """It stands in the registry before any engine is loaded."""
    play = """
import numpy as np
from stacksl.lab.engines import run_stream
rows = np.random.default_rng(0).normal(size=(30, 4, 3)) / 4
told = dict(labels=np.zeros(30, dtype=int), gate=Unsure(), budget=5, engine="auto")
print(run_stream("newton", rows, **told).engine)
"""
    own = EXTENSIONS.partition('GATES["unsure"] = Unsure')
    done = subprocess.run(
        [sys.executable, "-c", own[0] + own[1] + play], capture_output=True, text=True, check=True
    )
    assert done.stdout == "loop\n"


def test_the_pages_gate_and_scorer_pass_their_contracts(tmp_path: Path) -> None:
    (tmp_path / "extending_page.py").write_text(EXTENSIONS, encoding="utf-8")
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "extending_page", "-p", "no:cacheprovider",
        "tests/contracts/test_gates.py", "tests/contracts/test_scorers.py",
        "-k", "unsure or perceptron",
    ]  # fmt: skip
    path = f"{tmp_path}:{ROOT / 'src'}"
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.count(".") > 30, "they were run"
