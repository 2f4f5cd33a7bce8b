"""A command line in the same process, and an api that only plays its part."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stacksl.cli.entry import call
from stacksl.data import Dataset
from stacksl.runs.settings.budget import Budget
from stacksl.types import Item


@dataclass(frozen=True)
class Said:
    """What one call of the command line gave back."""

    code: int
    out: str
    err: str


ITEMS = tuple(Item(f"i{n}", f"text {n}", ("a", "b")) for n in range(50))
NO_FORECAST = {"labels": 0, "rests_on": "", "now": None, "expected": [], "reason": "a toy"}


@dataclass(frozen=True)
class Shell:
    """`stacksl("run", "--json")`, in this process."""

    capfd: pytest.CaptureFixture[str]

    def __call__(self, *words: str | Path) -> Said:
        self.capfd.readouterr()
        code = call([str(word) for word in words])
        return Said(code, *self.capfd.readouterr())

    def done(self, *words: str | Path) -> Said:
        """Of a call that ends well."""
        said = self(*words)
        assert said.code == 0, said.err
        return said

    def told(self, *words: str | Path) -> Any:
        """The JSON of a call that ends well."""
        return json.loads(self.done(*words, "--json").out)

    def refused(self, *words: str | Path, before: int = 0) -> str:
        """The one sentence of a call that the user has to mend, and lines `before` it."""
        said = self(*words)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1 + before), said
        return said.err


@pytest.fixture
def stacksl(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


@dataclass
class FakeApi:
    """What the verbs asked for, and what they get; `fail` is raised when a run starts."""

    out: Path
    asked: list[tuple[str, Any]] = field(default_factory=list)
    fail: BaseException | None = None
    state: str = "finished"
    money: int | None = None
    steps: Sequence[Any] = ()

    def module(self) -> ModuleType:
        module = ModuleType("stacksl.api")
        module.__dict__.update(prepare=self.prepare, Run=self, list_runs=self.list_runs)
        return module

    @property
    def folder(self) -> SimpleNamespace:
        return SimpleNamespace(resolved=lambda: {"labeler": "oracle", "files": {"mine.xlsx": ""}})

    def prepare(self, data: Any, **options: Any) -> SimpleNamespace:
        self.asked.append(("prepare", {"data": data, **options}))
        settings = options["settings"].settings
        plan = SimpleNamespace(
            spec=SimpleNamespace(
                audit=0,
                test=None,
                budget=Budget(5, self.money, (self.money or 0) // 5),
                settings=settings,
                sources=SimpleNamespace(pool=Dataset("toy", "jsonl:options", ITEMS, {})),
            ),
            out=self.out,
            warnings=["two prompts are the same"],
            start=self.start,
        )
        plan.claimed = lambda: plan
        return plan

    def start(self, progress: Callable[[Any], None] | None = None, **_: Any) -> Any:
        self.asked.append(("start", progress))
        self.out.mkdir()
        (self.out / "run.db").write_text("")
        for step in self.steps:
            if progress is not None:
                progress(step)
        if self.fail is not None:
            raise self.fail
        return SimpleNamespace(path=self.out, status=self.status, folder=self.folder)

    def open(self, path: Path) -> Any:
        self.asked.append(("open", path))
        return SimpleNamespace(
            path=self.out,
            status=self.status,
            resume=self.start,
            report=lambda: self.out / "report.html",
            folder=self.folder,
            forecast=lambda: NO_FORECAST,
        )

    def list_runs(self, folder: Path) -> list[dict[str, Any]]:
        self.asked.append(("list", folder))
        return [self.status()]

    def status(self) -> dict[str, Any]:
        return {
            "run": str(self.out),
            "state": self.state,
            "rounds": 50,
            "budget": 5,
            "asked": 5,
            "spent": 5,
            "measuring": 0,
            "answered": 5,
            "left": 0,
            "money": None,
            "mode": "stream",
            "gate": "margin",
            "last_report": None,
            "sentence": None,
            "resume": None,
            "stopped": "",
            "rest": None,
            "stop_when": None,
            "sheets": None,
            "differing": [],
            "proposed": [],
            "column": None,
            "stated": None,
            "table": None,
            "test": None,
            "audit": None,
        }


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """An api that plays its part; the verbs cannot tell."""
    fake = FakeApi(tmp_path / "first")
    monkeypatch.setitem(sys.modules, "stacksl.api", fake.module())
    return fake
