"""What `stacksl ledger` finds of a run's ledger, and how it prints what others wrote."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stacksl.ledger.events import Entry, link_hash
from stacksl.ledger.store.schema import EVENTS
from stacksl.runs.session.session import Session

from ..saved_arrays import drop, edit, latest_in


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its folder is copied before anything is done to it."""
    from stacksl.cli.entry import call

    home = tmp_path_factory.mktemp("ledger")
    rows = [f"{i},{'red' if i % 2 else 'blue'} thing {i},{'ab'[i % 2]}\n" for i in range(24)]
    (home / "data.csv").write_text("id,text,label\n" + "".join(rows))
    words = ["run", home / "data.csv", "--budget", 8, "--yes", "--quiet", "--out", home / "run"]
    assert call([str(word) for word in words]) == 0
    return home / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def chained_again(path: Path) -> None:
    """Let somebody else have given row 5, and make all hashes from there on anew."""
    columns = tuple(EVENTS.columns)[1:-2]
    with closing(sqlite3.connect(path)) as database:
        query = f"SELECT seq, previous, {', '.join(columns)} FROM events ORDER BY seq"
        previous = ""
        for seq, before, *values in database.execute(query).fetchall():
            time = values[0] + (seq == 5)
            previous, before = previous or before, previous or before
            previous = link_hash(seq, Entry(time, *values[1:]), before)
            database.execute(
                "UPDATE events SET time = ?, previous = ?, hash = ? WHERE seq = ?",
                (time, before, previous, seq),
            )
        database.commit()


def test_the_files_that_agree_are_told(stacksl, run) -> None:
    told = stacksl.told("ledger", "verify", run)
    assert told["arrays"] == latest_in(run).head.count
    assert told["records"] == ["facts.json", "report.html", "README.md"]
    said = stacksl("ledger", "verify", run)
    assert (last := told["arrays"]) == told["rows"] - 1, "their digest is in the row after them"
    files = "facts.json, report.html, README.md"
    assert f"the learner's arrays after row {last}, {files}" in said.out
    assert said.out.endswith(f"head {told['rows']}:{told['tip']}\n")
    played = stacksl.told("ledger", "replay", run)["rows"]
    assert f"Rows played again  {played}\n" in stacksl("ledger", "replay", run).out


def test_a_ledger_that_no_file_names_is_whole(stacksl, toy, monkeypatch) -> None:
    """A run was killed before its first purchase."""
    monkeypatch.setattr(Session, "play", lambda _: None)
    stacksl("run", "toy.csv", "--budget", 8, "--quiet", "--out", toy)
    said = stacksl("ledger", "verify", toy)
    assert said.out.startswith("the ledger is whole: 1 row\nhead 1:")


@pytest.mark.parametrize("keeper", ["facts.json", "report.html", "README.md"])
def test_a_chain_made_anew_is_found_by_each_file_that_names_its_head(
    stacksl, run, keeper, monkeypatch, tmp_path
) -> None:
    drop(run)
    for name in {"facts.json", "report.html", "README.md"} - {keeper}:
        (run / name).unlink()
    assert stacksl("ledger", "verify", run).code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # the user's other memory of it
    chained_again(run / "run.db")
    said = stacksl.refused("ledger", "verify", run)
    assert f"as {keeper} says, but has not: it was cut or rewritten" in said
    assert stacksl("ledger", "replay", run).err == said


def test_a_head_kept_elsewhere_finds_what_nothing_in_the_folder_does(
    stacksl, run, monkeypatch, tmp_path
) -> None:
    head = stacksl("ledger", "verify", run).out.split()[-1]
    assert "--head" in stacksl("ledger", "verify", run, "--head", head).out
    drop(run)
    for name in ("facts.json", "report.html", "README.md"):
        (run / name).unlink()
    chained_again(run / "run.db")
    found = stacksl("ledger", "verify", run)
    assert found.code != 0
    assert "older copy or was rewritten" in found.err, "a command saw the other chain"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert stacksl("ledger", "verify", run).code == 0
    assert "as --head says" in stacksl.refused("ledger", "verify", run, "--head", head)


@pytest.mark.parametrize("head", ["", "12", f"x:{'0' * 64}", f"12:{'0' * 63}", f"-1:{'0' * 64}"])
def test_what_is_no_head_is_one_sentence(stacksl, run, head) -> None:
    assert "ROWS:HASH" in stacksl.refused("ledger", "verify", run, f"--head={head}")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE settings SET value = '9' WHERE name = 'labels'",
        "UPDATE settings SET origin = 'config' WHERE name = 'budget'",
        "DELETE FROM settings WHERE name = 'seed'",
        "UPDATE settings SET value = replace(value, '[', '[ ') WHERE name = 'class_list'",
    ],
)
def test_an_edited_setting_or_class_is_told_by_every_command(stacksl, run, change) -> None:
    edit(run, change)
    words = [["ledger", "verify"], ["ledger", "replay"], ["resume"], ["status"], ["report"]]
    words += [["change", "--budget", "9"], ["run", "--out", run.parent / "new", "--config"]]
    for verb in words:
        said = stacksl.refused(*verb, run)
        assert "the settings or classes in" in said
        assert "were edited or damaged" in said
    assert not (run.parent / "new").exists()


def test_a_folder_that_was_put_back_is_told_by_every_command_and_found(
    stacksl, run, tmp_path
) -> None:
    older = Path(shutil.copytree(run, tmp_path / "older"))
    assert stacksl("change", run, "--budget", 12, "--yes").code == 0  # keeps what it wrote
    shutil.rmtree(run)
    older.rename(run)
    told = stacksl.done("status", run)
    assert "so it is an older copy" in told.err
    kept = Path(told.err.partition("or delete ")[2].partition(" to go on")[0])
    assert kept.stat().st_mode & 0o077 == 0
    assert str(run) not in kept.read_text()
    found = stacksl("ledger", "verify", run)
    assert found.code != 0
    error = found.err.splitlines()[-1]
    assert error.startswith("stacksl: ")
    assert f"an older copy or was rewritten: put the newer copy back, or delete {kept}" in error
    assert "another run" not in found.err
    assert "older copy" in stacksl("predict", run, tmp_path / "none.csv").err, (
        "until somebody agrees"
    )
    kept.unlink()
    assert stacksl("ledger", "verify", run).err == ""


def test_the_files_of_a_run_are_settings_that_can_be_read(stacksl, run) -> None:
    told = stacksl("status", run, "--settings").out
    data = stacksl.told("status", run, "--settings")["data"]["value"]
    lines = [line.split('"')[1] for line in told.splitlines() if line.startswith("files")]
    assert lines == [f"{data}, 438 bytes"]
