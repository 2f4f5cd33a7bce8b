"""`stacksl run`: what is passed on, what is said and asked before, and what comes out."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest


def steps() -> list[SimpleNamespace]:
    facts = {"spent": 3, "budget": 5, "accuracy": 0.5}
    return [SimpleNamespace(phase="rounds", done=n, total=50, **facts) for n in (1, 20, 50)]


def test_flags_are_passed_on_as_typed(stacksl, api) -> None:
    stacksl.done(
        "run", "toy.csv", "--budget", "10%", "--seed", "3", "--no-header", "--prompt-column", "q",
        "--test", "t.csv", "--out", api.out, "--quiet",
    )  # fmt: skip
    (_, given), _ = api.asked
    assert (given["data"], given["test"], given["out"]) == ("toy.csv", "t.csv", api.out)
    resolved = given["settings"]
    flags = {name for name, where in resolved.origin.items() if where == "flag"}
    assert flags == {"budget", "seed", "read.header", "columns.prompt"}
    assert resolved.settings.budget == "10%"
    assert resolved.settings.read.header is False


def test_a_flag_goes_before_a_pair_and_a_pair_before_the_config(stacksl, api, tmp_path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('seed = 1\nbudget = "7"\n[scorer]\nridge = 0.5\ndelta = 0.1\n')
    words = ("--config", config, "--set", "scorer.ridge=0.25", "--set", "seed=2", "--seed", "3")
    assert stacksl("run", "--quiet", *words).code == 0
    settings = api.asked[0][1]["settings"].settings
    assert (settings.seed, settings.scorer.ridge, settings.scorer.delta) == (3, 0.25, 0.1)
    assert settings.budget == "7"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--config", "nowhere.toml"], "cannot read the config nowhere.toml"),
        (["--config", "/dev/null", "--set", "ridge"], "--set expects NAME=VALUE"),
        (["--gate", "margn"], "did you mean 'margin'"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_read(stacksl, api, words, hint) -> None:
    assert hint in stacksl.refused("run", *words)
    assert api.asked == []


def test_a_config_that_is_no_toml(stacksl, api, tmp_path) -> None:
    config = tmp_path / "other.toml"
    config.write_bytes(b"\xff\xfe = 1")
    assert "must be TOML" in stacksl.refused("run", "--config", config)


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


def test_a_price_is_agreed_to_on_a_terminal(stacksl, api, terminal) -> None:
    api.money = 12_500_000
    terminal += ["n"]
    said = stacksl("run", "--price", "2.50", "--quiet")
    assert said.code == 130
    assert "5 labels for $12.50 at most" in said.err
    assert said.err.endswith("stacksl: stopped before anything was bought\n")
    assert [name for name, _ in api.asked] == ["prepare"]
    terminal += ["y"]
    assert stacksl("run", "--price", "2.50", "--quiet").code == 0
    assert api.asked[-1][0] == "start"


@pytest.mark.parametrize("words", [["--yes", "--price", "2.50"], []])
def test_nobody_is_asked_with_yes_or_without_a_price(stacksl, api, terminal, words) -> None:
    api.money = 12_500_000 if words else None
    assert stacksl("run", "--quiet", *words).code == 0
    assert terminal == []


def test_nobody_is_asked_where_there_is_no_terminal(stacksl, api) -> None:
    api.money = 12_500_000
    said = stacksl.done("run", "--price", "2.50", "--quiet")
    assert "$12.50" in said.err


def test_results_go_to_stdout_and_the_rest_to_stderr(stacksl, api) -> None:
    api.steps = steps()
    said = stacksl("run", "--json")
    told = json.loads(said.out)
    assert told["report"] == str(api.out / "report.html")
    assert "rounds 1 of 50" in said.err
    assert "3 of 5 labels" in said.err
    assert "accuracy so far 0.500" in said.err


def test_quiet_is_quiet(stacksl, api) -> None:
    api.steps = steps()
    said = stacksl("run", "--quiet")
    assert "rounds 1 of 50" not in said.err
    assert api.asked[-1] == ("start", None)


def test_the_end_says_where_things_are_and_what_to_type_next(stacksl, api) -> None:
    said = stacksl("run", "--quiet")
    assert str(api.out / "report.html") in said.out
    assert str(api.out / "model") in said.out
    assert f"stacksl export {api.out} --table labeled.xlsx" in said.out
    assert f"stacksl evaluate {api.out} FILE" in said.out
    assert "5 of 5 bought in 50 rounds" in said.out
