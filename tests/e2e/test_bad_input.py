"""Each kind of bad input, through the real command line and the real package beneath it.

One sentence on stderr, exit code 2, no traceback, and nothing new on the disk.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.cli.entry import call
from stacksl.runs.storage.folder import RunFolder

from ..saved_arrays import damage, edit, latest_in
from .conftest import write_classes, write_pairs


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good files, one finished run of classes and one of pairs."""
    folder = tmp_path_factory.mktemp("bad")
    write_classes(folder / "good.csv", 60)
    write_pairs(folder / "pairs.jsonl", 40)
    for data, out in (("good.csv", "one"), ("pairs.jsonl", "two")):
        words = ["run", folder / data, "--budget", 8, "--out", folder / out, "--quiet"]
        assert call([*map(str, words), "--set", "checkpoint_every=10"]) == 0
    return folder


def disk(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.endswith(("-shm", "-wal"))
    }


@pytest.fixture
def refused(home: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The sentence with which a call is refused; nothing may change on the disk."""

    def check(*words: object, changes: bool = False) -> str:
        before = disk(home)
        capfd.readouterr()
        code = call([str(word) for word in words])
        out, err = capfd.readouterr()
        assert code == 2, (code, out, err)
        assert out == ""
        assert "Traceback" not in err
        sentences = [line for line in err.splitlines() if line.startswith("stacksl: ")]
        assert len(sentences) == 1, err
        assert err.splitlines()[-1] == sentences[0]
        if not changes:
            assert disk(home) == before
        return sentences[0]

    return check


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["godo.csv"], "did you mean 'good.csv'"),
        (["good.csv", "--budget", "61"], "above the 60 usable items"),
        (["good.csv", "--set", "scorer.ridge=0"], "must be greater than or equal to"),
        (["good.csv", "--labeler", "oracel"], "did you mean 'oracle'"),
        (["good.csv", "--mode", "pool", "--gate", "llf"], "llf"),
        (["good.csv", "--test", "pairs.jsonl"], ""),
        (["good.csv", "--max-candidates", "1"], "max_candidates"),
        (["good.csv", "--features", "hashin"], "did you mean 'hashing'"),
        (["good.csv", "--set", "order=any"], "shuffled"),
        (["good.csv", "--out", "."], "not empty and is no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_run_that_cannot_be(refused, words, hint) -> None:
    if not any(w == "--out" for w in words):
        words = [*words, "--out", "new"]
    assert hint in refused("run", *words, "--quiet")


def test_an_encoder_that_is_not_there(home, refused) -> None:
    words = ("--features", "sentences:/nowhere/at-all", "--out", "new", "--quiet")
    assert "/nowhere/at-all" in refused("run", "good.csv", *words, changes=True)
    assert not (home / "new" / "run.db").exists(), "nothing was bought"


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_features_that_are_not_numbers(home, refused, monkeypatch, value) -> None:
    from stacksl.features.hashing import HashingEncoder

    transform = HashingEncoder.encode

    def spoiled(self: Any, *words: Any, **named: Any) -> Any:
        rows = transform(self, *words, **named)
        rows[3] = float(value)
        return rows

    monkeypatch.setattr(HashingEncoder, "encode", spoiled)
    said = refused("run", "good.csv", "--out", "new", "--quiet", changes=True)
    assert "the features of item 'row-000004' should be finite" in said
    assert Run.open(home / "new").status()["spent"] == 0, "nothing was bought"


def unfinish(home: Path) -> Path:
    """A finished run, as it is a moment before its end."""
    RunFolder(home / "one").write_state("running", created="then")
    return home / "one"


@pytest.mark.parametrize(
    "statement",
    [
        "update events set time = time + 1 where seq = 9",
        "delete from events where seq = (select max(seq) from events)",
        "delete from events where seq = 9",
    ],
    ids=["edited", "cut", "a row gone"],
)
def test_an_edited_or_cut_ledger_is_not_resumed(home, refused, statement) -> None:
    unfinish(home)
    edit(home / "one", statement)
    refused("resume", "one", changes=True)


def test_corrupted_arrays_are_passed_over_and_told(home, capfd) -> None:
    newest = latest_in(unfinish(home)).head.count
    damage(home / "one")
    before = (home / "one" / "model" / "head.safetensors").read_bytes()
    assert call(["resume", "one", "--quiet"]) == 0
    assert (home / "one" / "model" / "head.safetensors").read_bytes() == before
    capfd.readouterr()
    assert call(["status", "one", "--json"]) == 0
    warnings = json.loads(capfd.readouterr().out)["warnings"]
    assert any(f"arrays after row {newest} are damaged" in w for w in warnings)


def test_unlabeled_items_cannot_be_evaluated(home, refused) -> None:
    (home / "bare.csv").write_text("text,label\nsome words,\nothers,a\n")
    assert "got 1 of 2 without one" in refused("evaluate", "one", "bare.csv")


def test_a_read_only_folder(home, refused, monkeypatch) -> None:
    make = Path.mkdir

    def refuse(self: Path, *words: Any, **named: Any) -> None:
        if "new" in self.parts:  # root may write anywhere, so it is injected
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        make(self, *words, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert "Permission denied" in refused("run", "good.csv", "--out", "new", "--quiet")


@pytest.mark.parametrize("verb", ["status", "evaluate"])
def test_a_run_that_is_none(refused, verb) -> None:
    more = ["good.csv"] if verb == "evaluate" else []
    assert "stacksl ls" in refused(verb, "nowhere", *more)


def test_a_file_with_other_columns_says_which_file_and_which_flag(home, refused) -> None:
    text = (home / "good.csv").read_text(encoding="utf-8")
    (home / "other.csv").write_text(text.replace("text,label", "said,about"), encoding="utf-8")
    hints = "no column 'text'", "the file has said, about"
    said = refused("run", "good.csv", "--test", "other.csv", "--out", "new", "--quiet")
    assert all(hint in said for hint in ("other.csv", *hints, "name its columns as those of"))
    said = refused("evaluate", "one", "other.csv", "--quiet")
    assert all(hint in said for hint in (*hints, "--prompt-column"))
    flags = ["--prompt-column", "said", "--label-column", "about"]
    assert call(["evaluate", "one", "other.csv", *flags, "--quiet"]) == 0
