"""`stacksl-lab reproduce`: from the words typed to a table, and from a run's folder to a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stacksl.data import Dataset
from stacksl.types import Item
from stacksl_lab.language import examining, sources
from stacksl_lab.language.cells import Result
from stacksl_lab.language.tasks import Setup, Task
from stacksl_lab.study.rows import KEYS
from stacksl_lab.verbs import reproduce as verb


def dataset(name: str, count: int) -> Dataset:
    items = tuple(Item(f"{name}{i}", f"{name} {i}", ("a", "b", "c", f"d{i}")) for i in range(count))
    return Dataset(name, "memory", items, {item.id: i % 4 for i, item in enumerate(items)})


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was played, where nothing is."""
    calls: list[Any] = []

    def play(train: Dataset, test: Dataset, settings: Any, folder: Path) -> Result:
        calls.append(dict(settings))
        n = len(train.items)
        asked = n if settings["budget"] == "all" else int(settings["budget"])
        return Result(0.5, 0.4, len(test.items), asked, n, 1.0)

    def setup_of(study: str, *rest: Any) -> Setup:
        return Setup("toy", (Task("MedQA", dataset("a", 30), dataset("b", 10)),), dict(rest[-1]))

    monkeypatch.setattr(verb, "play", play)
    monkeypatch.setattr(examining, "examine", lambda test, *_: Result(0.3, 0.2, len(test.items)))
    monkeypatch.setattr(sources, "setup_of", setup_of)
    return calls


@pytest.fixture
def type_(tmp_path: Path) -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(verb.reproduce)
    return lambda *words: CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])


def test_it_prints_the_table(type_: Any, played: list[Any]) -> None:
    said = type_("kl", "--seeds", "2")
    assert said.exit_code == 0, said.output
    assert "| λ_KL = 0.7 (2) | 30 | 2 | 0.5000 ± 0.0000 |" in said.stdout
    assert "(MedQA, llf, seed 1)" in said.stderr
    assert {s["seed"] for s in played} == {0, 1}


def test_it_gives_rows_as_json_and_goes_on(type_: Any, played: list[Any]) -> None:
    first = json.loads(type_("kl", "--seeds", "1", "--json", "--quiet").stdout)
    assert all(tuple(row) == KEYS for row in first["rows"])
    assert first["seeds"] == [0]
    count = len(played)
    assert json.loads(type_("kl", "--seeds", "1", "--json", "--quiet").stdout) == first
    assert len(played) == count, "everything was kept"


def test_settings_are_passed_on(type_: Any, played: list[Any]) -> None:
    type_("kl", "--seeds", "1", "--set", "checkpointing=true")
    assert all(settings["checkpointing"] is True for settings in played)
    refused = type_("kl", "--set", "seed=3")
    assert "cannot be set here" in str(refused.exception)


def test_a_run_of_other_names_is_refused(type_: Any, played: list[Any]) -> None:
    assert "did you mean 'mmlu'" in str(type_("mmul").exception)


def test_ctrl_c_says_how_to_go_on(played: list[Any], monkeypatch: Any, tmp_path: Path) -> None:
    def stop(pace: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "_tell", stop)
    with pytest.raises(
        BaseException, match=r"1 new measurements are kept .* the same command continues"
    ) as stopped:
        verb.reproduce("kl", seeds=1, out=tmp_path / "out")
    assert isinstance(stopped.value, KeyboardInterrupt)


def run_of(path: Path, rounds: list[str]) -> Any:
    (path / "adapters").mkdir(parents=True)
    (path / "facts.json").write_text('{"test": {"accuracy": 0.5, "macro_f1": 0.4, "n": 10}}')
    for number, loss in ((1, 9.0), (2, 1.5)):
        trained = {
            "loss": loss, "largest": 7.0, "loss_clipped": 1.25, "largest_clipped": 5.0,
            "clipped": 0.1,
        }  # fmt: skip
        record = json.dumps({"number": number, "trained": trained})
        (path / "adapters" / f"{number:02d}.json").write_text(record)

    class Ledger:
        def __enter__(self) -> Ledger:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def rows(self) -> Any:
            for number, status in enumerate(rounds, 1):
                decision = SimpleNamespace(round=number, status=status)
                yield SimpleNamespace(event="round", decision=lambda d=decision: d)
            yield SimpleNamespace(event="refit")

    asked = rounds.count("reserved")
    status = {"asked": asked, "rounds": len(rounds)}
    return SimpleNamespace(path=path, status=lambda: status, ledger=Ledger())


@pytest.mark.parametrize(
    ("rounds", "first"),
    [
        (["reserved", "reserved", "skipped"], True),
        (["reserved", "skipped", "reserved"], False),
        (["skipped", "skipped"], False),
    ],
)
def test_a_run_becomes_a_result(tmp_path: Path, rounds: list[str], first: bool) -> None:
    result = verb._result(run_of(tmp_path, rounds), "literal", 3.0)
    assert (result.first, result.asked, result.rounds) == (
        first,
        rounds.count("reserved"),
        len(rounds),
    )
    assert (result.mean_loss, result.max_loss, result.clipped) == (1.25, 5.0, 0.1)
    assert (result.accuracy, result.macro_f1, result.n, result.seconds) == (0.5, 0.4, 10, 3.0)


def test_a_gradient_that_is_scaled_leaves_the_loss(tmp_path: Path) -> None:
    result = verb._result(run_of(tmp_path, ["reserved"]), "scale", 1.0)
    assert (result.mean_loss, result.max_loss) == (1.5, 7.0)


def test_a_run_that_was_stopped_stops_the_study(monkeypatch: Any, tmp_path: Path) -> None:
    halted = SimpleNamespace(status=lambda: {"state": "stopped"})
    plan = SimpleNamespace(start=lambda: halted)
    monkeypatch.setattr("stacksl.api.prepare", lambda *_, **__: plan)
    with pytest.raises(KeyboardInterrupt):
        verb.play(dataset("a", 3), dataset("b", 3), {}, tmp_path / "run")
