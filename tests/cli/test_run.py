"""`stacksl run`: what is passed on, what is said and asked before, and what comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

PRICED = ("run", "toy.csv", "--budget", "5", "--price", "2.50", "--quiet", "--out", "first")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `prepare` is given; nothing is read or run."""
    given: list[dict[str, Any]] = []

    def prepare(data: Any, **options: Any) -> None:
        given.append({"data": data, **options})
        raise KeyboardInterrupt

    monkeypatch.setattr("stacksl.api.prepare", prepare)
    return given


def test_flags_are_passed_on_as_typed(stacksl, calls, tmp_path) -> None:
    stacksl(
        "run", "toy.csv", "--budget", "10%", "--seed", "3", "--no-header", "--prompt-column", "q",
        "--test", "t.csv", "--out", tmp_path, "--quiet",
    )  # fmt: skip
    (given,) = calls
    assert (given["data"], given["test"], given["out"]) == ("toy.csv", "t.csv", tmp_path)
    resolved = given["settings"]
    flags = {name for name, where in resolved.origin.items() if where == "flag"}
    assert flags == {"budget", "seed", "read.header", "columns.prompt"}
    assert resolved.settings.budget == "10%"
    assert resolved.settings.read.header is False


def test_a_flag_goes_before_a_pair_and_a_pair_before_the_config(stacksl, calls, tmp_path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('seed = 1\nbudget = "7"\n[scorer]\nridge = 0.5\ndelta = 0.1\n')
    words = ("--config", config, "--set", "scorer.ridge=0.25", "--set", "seed=2", "--seed", "3")
    stacksl("run", "--quiet", *words)
    settings = calls[0]["settings"].settings
    assert (settings.seed, settings.scorer.ridge, settings.scorer.delta) == (3, 0.25, 0.1)
    assert settings.budget == "7"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--config", "nowhere.toml"], "cannot read the config nowhere.toml"),
        (["--config", "no.toml"], "must be TOML"),
        (["--config", "/dev/null", "--set", "ridge"], "--set expects NAME=VALUE"),
        (["--gate", "margn"], "did you mean 'margin'"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_read(
    stacksl, calls, toy, words, hint
) -> None:
    toy.with_name("no.toml").write_bytes(b"\xff\xfe = 1")
    assert hint in stacksl.refused("run", *words)
    assert calls == []


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Both ends are a terminal; the list holds what will be answered."""
    answers: list[str] = []
    monkeypatch.setattr("stacksl.cli.verbs.run.is_interactive", lambda: True)

    def confirm(text: str, *, abort: bool, err: bool) -> bool:
        assert abort
        assert err, "a question is no result"
        import typer

        if answers.pop(0) != "y":
            raise typer.Abort
        return True

    monkeypatch.setattr("stacksl.cli.verbs.run.typer.confirm", confirm)
    return answers


def test_a_price_is_agreed_to_on_a_terminal(stacksl, toy, terminal) -> None:
    terminal += ["n"]
    said = stacksl(*PRICED)
    assert said.code == 130
    assert "5 labels for $12.50 at most" in said.err
    assert said.err.endswith("stacksl: stopped before anything was bought\n")
    assert not toy.exists()
    terminal += ["y"]
    assert stacksl(*PRICED).code == 0
    assert toy.exists()


@pytest.mark.parametrize("words", [(*PRICED, "--yes"), ("run", "toy.csv", "--quiet")])
def test_nobody_is_asked_with_yes_or_without_a_price(stacksl, toy, terminal, words) -> None:
    terminal += ["y"]
    stacksl.done(*words)
    assert terminal == ["y"], "nobody asked"


def test_results_go_to_stdout_and_the_rest_to_stderr(stacksl, toy) -> None:
    said = stacksl("run", "toy.csv", "--budget", "5", "--out", toy, "--json")
    assert json.loads(said.out)["report"] == str(toy / "report.html")
    assert "labels asked for" in said.err
    shown = stacksl.done("resume", toy).out
    for words in (
        toy / "report.html",
        toy / "model",
        f"stacksl export {toy} --table labels.csv  # Write the labeled table",
        f"stacksl evaluate {toy} new.csv  # Measure the model on new items",
        "5 of 5 bought",
    ):
        assert str(words) in shown, "where things are and what to type next"
