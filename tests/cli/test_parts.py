"""Files in parts: each to a file of labels, kept when it is there; and Ray where it is absent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

import stacksl
from stacksl import engine
from stacksl.api import Run
from stacksl.api.parts import in_parts, label_parts
from stacksl.errors import DataError, FeatureError, MissingExtra, SettingsError
from stacksl.features.cache import CachedEncoder

TEXTS = {"card": "my card has not arrived number", "cash": "the machine kept my cash number"}
ROWS = [
    {"id": f"r{n}", "text": f"{t} {n}", "label": c} for n in range(60) for c, t in TEXTS.items()
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    rows = [f"{row['text']}\t{row['label']}\n" for row in ROWS]
    (folder / "pool.tsv").write_text("".join(["text\tlabel\n", *rows]))
    return stacksl.run(str(folder / "pool.tsv"), out=folder / "run", budget=30, audit=0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three parts, one of each kind, and two files that are none."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv").write_text(
        "ticket,text\n" + "".join(f"t{n},{ROWS[n]['text']}\n" for n in (0, 1))
    )
    (folder / "b.jsonl").write_text(
        "".join(json.dumps({"text": r["text"]}) + "\n" for r in ROWS[2:5])
    )
    pq.write_table(pa.table({"text": [row["text"] for row in ROWS[5:9]]}), folder / "c.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("text\nno\n")
    return folder


def labeled(run: Run, source: str, out: Path, right: str | None = None, **given: str) -> list[Any]:
    return list(label_parts(run, source, str(out), given, right))


def test_a_part_has_the_labels_that_its_file_has_alone(run, source, tmp_path, stacksl) -> None:
    out = tmp_path / "out"
    found = labeled(run, str(source), out)
    assert [(row["file"], row["n"]) for row in found] == [
        ("a.csv", 2),
        ("b.jsonl", 3),
        ("c.parquet", 4),
    ]
    for name in ("a.csv", "b.jsonl", "c.parquet"):
        alone = tmp_path / name
        assert stacksl("predict", run.path, source / name, "--out", alone).code == 0
        assert (out / name).read_bytes() == alone.read_bytes()
        assert (out / name).stat().st_mode & 0o777 == 0o600


def test_what_is_there_is_kept_and_a_newer_part_is_labeled_again(run, source, tmp_path) -> None:
    out = tmp_path / "out"
    assert [row["kept"] for row in labeled(run, f"{source}/*.csv", out)] == [False]
    os.utime(out / "a.csv", ns=(1, 2**61))
    before = (out / "a.csv").stat().st_mtime_ns
    assert [row["kept"] for row in labeled(run, str(source), out)] == [True, False, False]
    assert (out / "a.csv").stat().st_mtime_ns == before
    os.utime(source / "b.jsonl", ns=(1, 2**61))
    again = {row["file"]: row["kept"] for row in labeled(run, str(source), out)}
    assert again == {"a.csv": True, "b.jsonl": False, "c.parquet": True}


def test_labels_of_other_options_and_files_of_others_are_not_mixed(run, source, tmp_path) -> None:
    labeled(run, str(source), tmp_path / "out")
    with pytest.raises(DataError, match="other options"):
        labeled(run, str(source), tmp_path / "out", prompt="text")
    with pytest.raises(DataError, match="give --out a folder that is new, empty"):
        labeled(run, str(source), source)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="another program"):
        labeled(run, str(source), tmp_path / "mine")
    (tmp_path / "february").mkdir()
    (tmp_path / "february" / "a.csv").write_text("text\nof another folder\n", encoding="utf-8")
    with pytest.raises(DataError, match="has files of other parts"):
        labeled(run, str(tmp_path / "february"), tmp_path / "out")


def test_parts_may_be_on_another_file_system(run, source, tmp_path, monkeypatch) -> None:
    bucket = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    seen = []

    class Opened(FileSystem):
        @staticmethod
        def from_uri(uri: str) -> tuple[FileSystem, str]:
            seen.append(uri)
            return bucket, uri.removeprefix("memory://").partition("?")[0]

    here = tmp_path / "here"
    labeled(run, str(source), here)
    monkeypatch.setattr("pyarrow.fs.FileSystem", Opened)
    assert in_parts("memory://parts/*.jsonl")
    found = list(label_parts(run, "memory://parts/*?scheme=http", "memory://there", {}, None))
    assert [row["n"] for row in found] == [2, 3, 4]
    assert seen == ["memory://parts?scheme=http", "memory://there"]
    for name in ("a.csv", "b.jsonl", "c.parquet"):
        assert (tmp_path / "there" / name).read_bytes() == (here / name).read_bytes()


def test_parts_that_are_not_there_are_named(run, source, tmp_path) -> None:
    with pytest.raises(DataError, match=r"there is no file '.*\*\.tsv'"):
        labeled(run, f"{source}/*.tsv", tmp_path / "out")
    with pytest.raises(DataError, match="the folder 'nowhere://x' cannot be opened"):
        labeled(run, "nowhere://x/*.csv", tmp_path / "out")


def test_the_command_prints_a_line_for_each_part(run, source, tmp_path, stacksl) -> None:
    said = stacksl("predict", run.path, f"{source}/[ab]*", "--out", tmp_path / "out")
    assert said.out == "a.csv  2 rows with labels\nb.jsonl  3 rows with labels\n"
    again = stacksl("predict", run.path, source, "--out", tmp_path / "out", "--json")
    rows = [json.loads(line) for line in again.out.splitlines()]
    assert [row["kept"] for row in rows] == [True, True, False]
    nowhere = stacksl("predict", run.path, source)
    assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
    assert "expected --out FOLDER" in nowhere.err


# --- the engine --------------------------------------------------------------------------------


@pytest.fixture
def no_ray(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")
    monkeypatch.setattr(engine, "find_spec", lambda name: None)


@pytest.mark.parametrize("verb", ["predict", "run"])
def test_without_ray_its_engine_is_refused_in_a_sentence(
    verb, no_ray, run, source, stacksl
) -> None:
    words = [run.path, source / "a.csv"] if verb == "predict" else [source / "a.csv"]
    said = stacksl(verb, *words, "--engine", "ray")
    sentence = "RAY_ADDRESS or --engine ray needs the extra 'ray': pip install 'stacksl[ray]'"
    assert (said.code, said.out, said.err) == (2, "", f"stacksl: {sentence}\n")


def test_one_machine_is_the_default_and_can_be_named(no_ray, monkeypatch) -> None:
    assert not engine.on_ray()
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(MissingExtra):
        engine.on_ray()
    assert not engine.on_ray("local")
    with pytest.raises(SettingsError, match="unknown engine 'spark'"):
        engine.on_ray("spark")


class Lengths(CachedEncoder):
    """A text to its length, with weights of a name."""

    dim = 1
    weights = "first"

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name)

    @property
    def identity(self) -> str:
        return f"{self.spec} {self.weights}"

    def vectors(self, texts) -> Any:
        import numpy as np

        yield [(n, (np.array([len(text)], np.float32), False)) for n, text in enumerate(texts)]


def test_many_texts_go_to_ray_in_parts_and_few_do_not(monkeypatch) -> None:
    seen: list[int] = []

    def here(work: Callable[[Any], Any], blocks: list[Any], *, gpu: bool) -> Any:
        seen.extend(len(texts) for _, texts in blocks)
        return map(work, blocks[::-1])  # done in any order

    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr("stacksl.features.cache.over_ray", here)
    texts = ["a" * n for n in range(1200)]
    assert Lengths("l").encode(texts[:512])[:, 0].tolist() == list(range(512))
    assert not seen
    assert Lengths("l").encode(texts)[:, 0].tolist() == list(range(1200))
    assert seen == [512, 512, 176]


def test_an_encoder_has_the_same_weights_on_every_machine(monkeypatch) -> None:
    make, given = Lengths("l").__reduce__()
    assert make(*given).spec == "l"
    monkeypatch.setattr(Lengths, "weights", "second")
    with pytest.raises(FeatureError, match="'l' has other weights on the node"):
        make(*given)


def test_a_part_that_cannot_be_read_ends_the_command_and_earlier_ones_are_kept(
    run, tmp_path: Path
) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for name, text in (("a.csv", "text\nhow many\n"), ("b.csv", ""), ("c.csv", "text\nwhere\n")):
        (folder / name).write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"in the part b\.csv: .*some/b"):
        labeled(run, str(folder), out)
    assert sorted(path.name for path in out.glob("[a-z]*")) == ["a.csv"]
    (folder / "b.csv").write_text("text\nwhy\n", encoding="utf-8")
    assert [row["kept"] for row in labeled(run, str(folder), out)] == [True, False, False]
