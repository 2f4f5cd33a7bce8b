from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stacksl.features.cache import VectorCache, cache_folder, text_key

TEXTS = [f"text number {i}" for i in range(1200)]
KEYS = [text_key(text) for text in TEXTS]
ROWS = np.random.default_rng(0).normal(size=(len(TEXTS), 6)).astype(np.float32)


def entries(rows: np.ndarray = ROWS):
    return [(key, (row, i % 7 == 0)) for i, (key, row) in enumerate(zip(KEYS, rows, strict=True))]


@pytest.fixture
def cache() -> VectorCache:
    cache = VectorCache("some-encoder")
    cache.put(entries())
    return cache


def test_what_was_put_comes_back_bit_for_bit(cache: VectorCache) -> None:
    found = VectorCache("some-encoder").get([*KEYS, text_key("absent")])
    assert len(found) == len(KEYS)
    for key, (row, cut) in entries():
        np.testing.assert_array_equal(found[key][0], row)
        assert found[key][1] is cut
    assert cache.dim() == 6
    assert b"text number" not in cache.path.read_bytes()
    assert VectorCache("other-encoder").get(KEYS) == {}
    assert VectorCache("other-encoder").dim() is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = substr(vector, 1, 8) WHERE key = ?",
        "UPDATE vectors SET vector = zeroblob(24) WHERE key = ?",
        "UPDATE vectors SET cut = 1 - cut WHERE key = ?",
        "UPDATE vectors SET digest = x'00' WHERE key = ?",
    ],
)
def test_a_damaged_entry_is_not_read_and_can_be_written_again(
    cache: VectorCache, damage: str
) -> None:
    with closing(sqlite3.connect(cache.path)) as database, database:
        assert database.execute(damage, (KEYS[3],)).rowcount == 1
    found = cache.get(KEYS)
    assert KEYS[3] not in found
    assert len(found) == len(KEYS) - 1
    cache.put([entries()[3]])
    np.testing.assert_array_equal(cache.get(KEYS)[KEYS[3]][0], ROWS[3])


def test_a_put_that_fails_half_way_keeps_nothing() -> None:
    cache = VectorCache("some-encoder")

    def broken():
        yield from entries()[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.put(broken())
    assert cache.get(KEYS) == {}


@pytest.mark.parametrize("damaged", ["file", "folder"])
def test_a_cache_that_cannot_be_used_warns_once_and_is_left_alone(alone: Path, damaged) -> None:
    if damaged == "file":
        VectorCache("some-encoder").put(entries())
    path = VectorCache("some-encoder").path if damaged == "file" else alone
    path.write_bytes(b"neither a database nor a folder" * 100)
    cache = VectorCache("some-encoder")
    with pytest.warns(UserWarning, match="cannot be used.*STACKSL_NO_CACHE=1") as caught:
        assert cache.get(KEYS) == {}
    assert len(caught) == 1
    cache.put(entries())  # silent from here on
    assert cache.get(KEYS) == {}


def test_the_environment_says_where(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == alone / "stacksl"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/stacksl")
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    assert VectorCache("encoder").path is None
    cache = VectorCache("some-encoder")
    cache.put(entries())
    assert cache.get(KEYS) == {}


def test_two_processes_fill_it_at_once() -> None:
    code = """
import sys, numpy as np
from stacksl.features.cache import VectorCache, text_key
cache = VectorCache("shared")
for i in range(int(sys.argv[1]), int(sys.argv[1]) + 60):
    row = np.full(4, i, np.float32)
    cache.put([(text_key(str(i)), (row, False))])
"""
    workers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, s]) for s in ("0", "30")
    ]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    found = VectorCache("shared").get([text_key(str(i)) for i in range(90)])
    assert sorted(int(vector[0]) for vector, _ in found.values()) == list(range(90))
