"""No byte of an item stays in a sheet, in frozen features or in the cache; the others stand."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from openpyxl import load_workbook

from stacksl.core.blocks import PairBlock
from stacksl.errors import FeatureError
from stacksl.features.cache import VectorCache, erase_keys, text_key
from stacksl.features.store import erase, load_block, save_block
from stacksl.labelers.sheets.erasing import erase_rows
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Asked
from stacksl.labelers.sheets.writing import write_sheet


def test_a_sheet_keeps_every_other_byte(tmp_path: Path) -> None:
    rows = ["key;prompt;answer\r\n", 'a2a2-a;"two\nlines; ümläut";b\r\n', "K7F3-Q;zyx\u2028y;a\r\n"]
    rows += ['c3c3-c;"he said ""x""";\r\n']
    ask = tmp_path / "ask"
    ask.mkdir()
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        text = "".join(rows) if encoding != "cp1252" else "".join(rows).replace("\u2028", "")
        (ask / name).write_bytes(text.encode(encoding))
    (ask / "k7f3-q.txt").write_text("zyx, all of it")
    (ask / "README.txt").write_text("how to answer")
    os.chmod(ask / "u.csv", 0o640)
    assert erase_rows(ask, ["k7f3-q"]) == []
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        assert (ask / name).read_bytes().decode(encoding) == rows[0] + rows[1] + rows[3]
    assert (ask / "u.csv").stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in ask.iterdir()) == ["README.txt", "u.csv", "w.csv", "x.csv"]
    times = [path.stat().st_mtime_ns for path in ask.iterdir()]
    assert erase_rows(ask, ["k7f3-q"]) == []
    assert [path.stat().st_mtime_ns for path in ask.iterdir()] == times


def test_a_workbook_loses_the_row_its_choices_and_its_shared_texts(tmp_path: Path) -> None:
    own, shared = ("the zyx choice", "another"), ("yes", "no")
    rows = [Asked("k7f3-q", "zyx, all of it", own)]
    rows += [Asked(key, f"prompt {key}", shared) for key in ("a2a2-a", "c3c3-c")]
    path = tmp_path / "0001-anna.xlsx"
    write_sheet(path, rows, mode=0o640)
    assert erase_rows(tmp_path, ["k7f3-q"]) == []
    assert path.stat().st_mode & 0o777 == 0o640
    with ZipFile(path) as archive:
        assert not any(b"zyx" in archive.read(name) for name in archive.namelist())
    known = {row.key: row for row in rows}
    assert read_sheet(path, known).empty == 2
    left = load_workbook(path)["Questions"].data_validations.dataValidation
    assert [str(each.sqref) for each in left] == ["A2:A4", "D3 D4"]
    before = path.read_bytes()
    assert erase_rows(tmp_path, ["k7f3-q"]) == []
    assert path.read_bytes() == before


def test_a_sheet_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "0001.xlsx").write_bytes(b"PK\x03\x04\xff\xfe\x00")
    (tmp_path / "0002.csv").write_text("key,prompt,answer\nk7f3-q,zyx,a\na2a2-a,another,b\n")
    torn = 'key,prompt,answer\na2a2-a,"another,b\nk7f3-q,zyx,a\n'
    (tmp_path / "0003.csv").write_text(torn)
    (tmp_path / "0004.csv").write_text(torn + "x" * 200_000)
    assert erase_rows(tmp_path, ["k7f3-q"]) == ["0001.xlsx", "0003.csv", "0004.csv"]
    assert (tmp_path / "0003.csv").read_text() == torn
    assert (tmp_path / "0002.csv").read_text() == "key,prompt,answer\na2a2-a,another,b\n"
    assert erase_rows(tmp_path / "none", ["k7f3-q"]) == []


def test_the_rows_of_an_item_are_zero_and_the_others_stand(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.array([0, 2, 5, 7])
    phi = rng.normal(size=(7, 3)).astype(np.float32) / 9
    save_block(tmp_path, PairBlock(phi, offsets, rng.normal(size=7)), "map", ["a", "b", "c"])
    before = (tmp_path / "base.npy").read_bytes()
    erase(tmp_path, 1, ["a", "gone", "c"])
    erase(tmp_path, 1, ["a", "gone", "c"])  # again, as after a crash
    block = load_block(tmp_path, "map", ["a", "gone", "c"])
    assert isinstance(block, PairBlock)
    assert not block.phi[2:5].any()
    assert np.array_equal(np.delete(block.phi, slice(2, 5), axis=0), np.delete(phi, slice(2, 5), 0))
    assert block.base is not None
    assert not block.base[2:5].any()
    assert (tmp_path / "base.npy").read_bytes() != before
    with pytest.raises(FeatureError, match="in the same order"):
        load_block(tmp_path, "map", ["a", "b", "c"])


def test_no_byte_of_a_text_stays_in_the_cache(cache: Path) -> None:
    vectors = {f"text {n}": np.full(8, n, np.float32) for n in range(400)}
    for identity in ("one", "two"):
        store = VectorCache(identity)
        store.put([(text_key(text), (vector, False)) for text, vector in vectors.items()])
    key = text_key("text 7")
    files = [cache / "stacksl" / "vectors-1" / f"{name}.sqlite" for name in ("one", "two")]
    assert all(key in file.read_bytes() for file in files)
    assert erase_keys([key, text_key("never seen")]) == 2
    for file in files:
        assert key not in file.read_bytes()
        assert vectors["text 7"].tobytes() not in file.read_bytes()
    assert len(VectorCache("one").get([text_key(text) for text in vectors])) == 399
    files[0].write_bytes(b"no database at all" * 100)
    with pytest.raises(FeatureError, match="delete that file"):
        erase_keys([text_key("text 8")])
