"""What is made from a run has its digest in the chain: another run's is refused and named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.cli.entry import call
from stacksl.errors import RunError
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.schema import SETTINGS
from stacksl.ledger.store.settings import SALT
from stacksl.runs.changes.forgetting import forget

from ..ledgers import rows_of
from .conftest import Finished, class_items

PAGES = ["facts.json", "report.html", "README.md"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the same classes and settings with other items."""
    folder = tmp_path_factory.mktemp("other")
    return run(*class_items(60, seed=1), budget=12, out=folder / "run", checkpoint_every=10)


@pytest.fixture
def copied(classes: Finished, tmp_path: Path) -> Run:
    """A copy of a finished run, to be spoiled; the commands of its report have its own path."""
    copy = Run(Path(shutil.copytree(classes.run.path, tmp_path / "run")))
    copy.report()
    return copy


def derived(of: Run) -> list[str]:
    return [row.payload["name"] for row in rows_of(of, "derived")]


def derived_files(of: Run) -> dict[str, bytes]:
    places = [*(of.path / "model").iterdir(), *(of.path / name for name in PAGES)]
    return {place.name: place.read_bytes() for place in places}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence with which a command refuses."""
    capsys.readouterr()
    assert call(words) == 2, words
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_each_file_is_named_once_and_the_map_before_all_others(classes: Finished) -> None:
    assert derived(classes.run) == ["features/map.safetensors", "model", *PAGES]
    rows = rows_of(classes.run)
    assert rows[0].event == "derived", "the map decides every number"


@pytest.mark.parametrize("what", ["model", "model/head.safetensors"])
def test_the_model_of_another_run_is_refused_until_it_is_deleted(
    copied: Run, other: Run, what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, names, place = derived_files(copied), derived(copied), copied.path / what
    file = tmp_path / "items.csv"
    file.write_text("text,label\nflour dough,bread\nsalt tide,sea\n", encoding="utf-8")
    if place.is_dir():
        shutil.rmtree(place)
        shutil.copytree(other.path / what, place)
    else:
        shutil.copy(other.path / what, place)
    path = str(copied.path)
    for words in (
        ["predict", path, str(file)],
        ["evaluate", path, str(file)],
        ["status", path],
        ["report", path],
        ["ledger", "verify", path],
        ["resume", path],
    ):
        line = refused(words, capsys)
        assert f"{path}/model is not the one" in line
        assert f"delete it, and `stacksl resume {path}` makes it again" in line
    shutil.rmtree(copied.path / "model")
    copied.resume()
    assert derived_files(copied) == before
    assert derived(copied) == names, "equal bytes need no row"
    assert call(["ledger", "verify", path]) == 0


def edit_number(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    found = re.search(r"\d\d of \d\d|0\.\d\d|\d\d", text)
    shown = found[0].translate(str.maketrans("0123456789", "9876543210"))
    place.write_text(text.replace(found[0], shown, 1), encoding="utf-8")


@pytest.mark.parametrize("name", ["report.html", "README.md"])
def test_an_edited_number_is_found_until_the_page_is_written_again(
    copied: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(copied.path)
    assert call(["report", path]) == 0
    rows, before = derived(copied), (copied.path / name).read_bytes()
    edit_number(copied.path / name)
    line = refused(["ledger", "verify", path], capsys)
    assert f"{path}/{name} is not the one" in line
    assert f"`stacksl report {path}` writes it again" in line
    assert call(["report", path]) == 0
    assert call(["ledger", "verify", path]) == 0
    assert (copied.path / name).read_bytes() == before
    assert derived(copied) == rows


def test_the_map_of_another_run_is_refused(copied: Run, other: Run, capsys) -> None:
    name = "features/map.safetensors"
    (copied.path / name).write_bytes((other.path / name).read_bytes() + b" ")
    line = refused(["ledger", "verify", str(copied.path)], capsys)
    assert f"{name} is not the one" in line
    assert "restore it from a copy" in line


def test_feature_rows_are_made_again_with_the_map_that_was_fitted(
    spoil: Callable[[Finished], Run], classes: Finished
) -> None:
    spoiled = spoil(classes)
    folder = spoiled.path / "features"
    before: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        if path.name != "map.safetensors":
            path.unlink()
    spoiled.resume()
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after == {name: before[name] for name in after}, "the graph was not needed again"
    assert {"map.safetensors", "rows.npy", "features.json"} <= after.keys()


def test_a_run_goes_on_without_its_folder_of_features(tmp_path: Path) -> None:
    """The map is fitted again, on the same texts."""
    whole = run(*class_items(60), budget=12, mode="pool", out=tmp_path / "whole").path
    without = Path(shutil.copytree(whole, tmp_path / "without"))
    shutil.rmtree(without / "features")
    for path in (whole, without):
        Run(path).change(budget=16)
    heads = [(path / "model/head.safetensors").read_bytes() for path in (whole, without)]
    assert heads[0] == heads[1]


def test_a_forgotten_item_leaves_no_digest_that_could_confirm_its_text(copied: Run) -> None:
    def salt() -> str:
        with opened(copied.folder.database, readonly=True) as store:
            return str(store.select(SETTINGS, ("value",), "WHERE name = ?", SALT))

    before, item = salt(), class_items(60)[0][0].id
    forget(copied.path, item)
    assert salt() != before
    assert before.strip("[]()',\"").encode() not in copied.folder.database.read_bytes()
    assert call(["ledger", "verify", str(copied.path)]) == 0
    copied.resume()
    assert derived(copied)[-5:] == ["features/map.safetensors", "model", *PAGES]
    assert call(["ledger", "verify", str(copied.path)]) == 0


def test_a_run_cut_off_between_a_file_and_its_row_is_told_to_resume(
    spoil: Callable[[Finished], Run],
    classes: Finished,
    other: Run,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As after a changed run wrote its new model: the row is of the one before."""
    spoiled = spoil(classes)
    path, before = str(spoiled.path), derived_files(classes.run)
    shutil.rmtree(spoiled.path / "model")
    shutil.copytree(other.path / "model", spoiled.path / "model")
    assert call(["status", path]) == 0
    assert call(["ledger", "verify", path]) == 0
    with pytest.raises(RunError, match="was not written to its end; .*resume"):
        _ = spoiled.model
    spoiled.resume()
    assert derived_files(spoiled)["head.safetensors"] == before["head.safetensors"]
    assert call(["ledger", "verify", path]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("words", [["ledger", "verify"], ["ledger", "replay"]])
def test_a_page_of_another_run_accuses_no_chain(
    copied: Run, other: Run, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(other.path / name, copied.path / name)
    line = refused([*words, str(copied.path)], capsys)
    assert f"as {name} says, but has not: it was cut or rewritten, or {name} is of another" in line
