"""A flipped bit in a file of a run: the same output as without, or one sentence and code 2."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stacksl.api import Run
from stacksl.cli.entry import call
from stacksl.runs.storage.folder import RunFolder

from ..ledgers import rows_of
from ..saved_arrays import damage, edit, filled_places, latest_in
from .conftest import write_classes

PREDICT, STATUS = "predict one good.csv", "status one --json"
REPLAY, VERIFY = "ledger replay one --json", "ledger verify one --json"
FLIPS = 5  # of each file; tests/test_formats.py flips every bit of small ones
READ_BY = {  # the commands that read a file of the run
    "model/model.json": [PREDICT],
    "model/head.safetensors": [PREDICT],
    "model/online.safetensors": [PREDICT],
    "model/features.safetensors": [PREDICT],
    "facts.json": [STATUS, "report one"],
    "features/features.json": [REPLAY],
    "features/rows.npy": [REPLAY],
    "features/map.safetensors": [REPLAY],
    "features/names.safetensors": [REPLAY],
}
Said = Callable[[str], tuple[int, str, str]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of given classes, which has forgotten the first item it learned.

    `bare` is a copy of it whose model and report were not made again.
    """
    folder = tmp_path_factory.mktemp("damage")
    write_classes(folder / "good.csv", 60)
    meanings = "".join(f"{name},what {name} means\n" for name in "abcd")
    (folder / "classes.csv").write_text(meanings, encoding="utf-8")
    words = ["run", folder / "good.csv", "--classes", folder / "classes.csv", "--budget", 20]
    words += ["--audit", 8, "--test", folder / "good.csv", "--set", "checkpoint_every=10"]
    assert call([*map(str, words), "--out", str(folder / "one"), "--quiet"]) == 0
    first = next(str(row.item) for row in rows_of(Run.open(folder / "one"), "learned"))
    assert call(["forget", str(folder / "one"), "--id", first]) == 0
    shutil.copytree(folder / "one", folder / "bare")
    assert call(["resume", str(folder / "one"), "--quiet"]) == 0
    return folder


@pytest.fixture
def outcome(capfd: pytest.CaptureFixture[str]) -> Said:
    """The exit code of a command, and what it prints on both streams."""

    def run(words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = call(words.split())
        return code, *capfd.readouterr()

    return run


def flipped(data: bytes) -> Iterator[bytes]:
    rng = random.Random(len(data))
    for _ in range(FLIPS):
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def expect_a_sentence(code: int, out: str, err: str, path: Path) -> None:
    assert code == 2, (code, out, err)
    assert out == ""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("stacksl: ")]
    assert len(lines) == 1, err
    assert path.stem in lines[0] or "ledger" in lines[0], "the sentence names the file"


@pytest.mark.parametrize(
    "name",
    [  # of each kind of file one, the others in `make test-slow`
        pytest.param(name, marks=() if number % 2 == 0 else pytest.mark.slow)
        for number, name in enumerate(READ_BY)
    ],
)
def test_a_flipped_bit_is_harmless_or_refused(home: Path, outcome: Said, name: str) -> None:
    (path,), commands = (home / "one").glob(name), READ_BY[name]
    whole = path.read_bytes()
    before = {words: outcome(words) for words in commands}
    assert all(code == 0 for code, _, _ in before.values()), before
    refused = 0
    for damaged in flipped(whole):
        path.write_bytes(damaged)
        for words in commands:
            found = outcome(words)
            if found != before[words]:
                expect_a_sentence(*found, path)
                refused += 1
    assert refused, "no bit mattered"


@pytest.mark.parametrize(
    ("command", "tables"),
    [
        (STATUS, ("settings", "state")),
        (VERIFY, ("events", "items", "test", "terms", "arrays")),
    ],
)
def test_a_flipped_bit_of_the_database_is_harmless_or_refused(
    home: Path, outcome: Said, command: str, tables: tuple[str, ...]
) -> None:
    """Of what each command must find: the chain is walked by `verify` and not by `status`."""
    path = home / "one" / "run.db"
    whole, before, rng = path.read_bytes(), outcome(command), random.Random(command)
    places = filled_places(path, tables)
    assert before[0] == 0
    refused = 0
    for place in rng.sample(places, 5 * FLIPS):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        found = outcome(command)
        if found != before:
            expect_a_sentence(*found, path)
            refused += 1
    assert refused > FLIPS, "hardly a bit mattered"


@pytest.mark.parametrize("name", ["model/head.safetensors", "model/model.json", "facts.json"])
def test_a_finished_run_makes_again_what_was_deleted(home: Path, outcome: Said, name: str) -> None:
    """What the refusal advises: the folder of the model is deleted as a whole."""
    run = home / "one"
    path = run / name
    before = [outcome(PREDICT), outcome(STATUS)]
    path.write_bytes(path.read_bytes()[:-9])
    code, out, err = outcome(PREDICT if name.startswith("model") else STATUS)
    expect_a_sentence(code, out, err, path)
    gone = path.parent if path.parent != run else path
    assert f"delete it and `stacksl resume {Path('one')}`" in err
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert outcome("resume one --quiet")[0] == 0
    after = [outcome(PREDICT), outcome(STATUS)]
    assert after[0] == before[0]
    assert scores(after[1]) == scores(before[1])


def scores(found: tuple[int, str, str]) -> dict[str, object]:
    table = json.loads(found[1])
    return {key: table[key] for key in ("state", "asked", "spent", "test")}


def test_a_flipped_bit_of_the_arrays_is_refused(home: Path, outcome: Said) -> None:
    """The replay of a run that has forgotten an item needs them."""
    path, replay = home / "bare" / "run.db", REPLAY.replace("one", "bare")
    saved = latest_in(home / "bare")
    assert outcome(replay)[0] == 0
    for damaged in flipped(saved.data):
        edit(home / "bare", "UPDATE arrays SET data = ?", damaged)
        expect_a_sentence(*outcome(replay), path)
    edit(home / "bare", "UPDATE arrays SET data = ?", saved.data)
    for change in ("tip = iif(tip LIKE 'a%', 'b', 'a') || substr(tip, 2)", "round = round + 1"):
        edit(home / "bare", f"UPDATE arrays SET {change}")
        expect_a_sentence(*outcome(replay), path)


def test_forgotten_items_without_whole_arrays(home: Path, outcome: Said) -> None:
    damage(home / "bare")
    RunFolder(home / "bare").write_state("stopped")
    code, out, err = outcome("resume bare --quiet")
    assert (code, out) == (2, "")
    assert "run.db has no whole ones: restore that file" in err
