"""Without the laboratory the program works, and says how to install what is asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl import laboratory
from stacksl.cli.entry import call
from stacksl.errors import MissingExtra
from stacksl.lm.loading import source_of


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "entry_points", lambda **_: ())


@pytest.mark.usefixtures("absent")
def test_what_needs_it_says_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--adapt", "lora", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install ./lab" in said


@pytest.mark.usefixtures("absent")
def test_a_model_called_sample_is_in_it() -> None:
    with pytest.raises(MissingExtra, match="the sample language model is in a package"):
        source_of("sample")


@pytest.mark.parametrize("name", laboratory.OFFERED)
def test_it_offers_what_is_asked_of_it(name: str) -> None:
    assert laboratory.of_laboratory(name)


@pytest.mark.usefixtures("absent")
def test_a_run_does_without_it_and_so_does_the_built_in_sample(tmp_path: Path) -> None:
    rows = "".join(f"{'day' if n % 2 else 'night'} {n},{n % 2}\n" for n in range(20))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    words = [str(tmp_path / "rows.csv"), "--budget", "5", "--quiet", "--out"]
    assert call(["run", *words, str(tmp_path / "run")]) == 0
    assert call(["run", "--dry-run"]) == 0
