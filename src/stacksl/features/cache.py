"""A cache of vectors on disk, so that a text is encoded once on a machine, and encoders with it.

A text is stored under its SHA-256, never as text. SQLite makes the file safe for several processes
at once; a digest per entry makes sure that a damaged one is not read. Deleting the folder is always
safe: the vectors are made again.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from socket import gethostname
from typing import Any, TypeAlias, TypeVar

import numpy as np

from stacksl.engine import on_ray, over_ray
from stacksl.errors import FeatureError, warn_user
from stacksl.features.encoders import Encoder, Progress, Vectors, readable

Entry: TypeAlias = tuple[Vectors, bool]
"""A text's vector (d,) and whether the encoder cut the text."""

FOLDER = "vectors-1"  # within the cache folder; another number when the files change meaning

_Result = TypeVar("_Result")
_KEPT_AT_ONCE = 512  # texts between two writes to the cache
_KEYS_AT_ONCE = 500  # below SQLite's oldest limit on the variables of a statement
_PATIENCE = 30.0  # seconds to wait for another process that writes
_TABLE = """CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, vector BLOB NOT NULL, cut INTEGER NOT NULL, digest BLOB NOT NULL)"""
_SELECT = "SELECT key, vector, cut, digest FROM vectors"


def cache_folder() -> Path | None:
    """Where vectors are kept: `$XDG_CACHE_HOME/stacksl`, else `~/.cache/stacksl`.

    None where there is no home folder.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(root):  # the XDG rule: a relative path is to be ignored
        return Path(root) / "stacksl"
    try:
        return Path.home() / ".cache" / "stacksl"
    except RuntimeError:
        return None


def text_key(text: str) -> bytes:
    """The SHA-256 of `text`, under which its vector is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """The vectors of one encoder, in one SQLite file named by the encoder's identity.

    A cache that cannot be used (read-only folder, full disk, damaged file) gives one warning and
    is then empty: the run continues without it. `STACKSL_NO_CACHE=1` turns it off.
    """

    def __init__(self, identity: str) -> None:
        is_off = os.environ.get("STACKSL_NO_CACHE", "0") not in ("", "0")
        folder = None if is_off else cache_folder()
        self.path = None if folder is None else folder / FOLDER / f"{identity}.sqlite"

    def dim(self) -> int | None:
        """The columns of the vectors kept, None where there is none."""

        def read(database: sqlite3.Connection) -> int | None:
            entries = _read(database.execute(f"{_SELECT} LIMIT 1"))
            return next((len(vector) for vector, _ in entries.values()), None)

        return self._use(read, None)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """The entries of `keys`; absent and damaged ones are left out."""

        def read(database: sqlite3.Connection) -> dict[bytes, Entry]:
            entries: dict[bytes, Entry] = {}
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                chunk = keys[start : start + _KEYS_AT_ONCE]
                marks = ", ".join("?" * len(chunk))
                entries |= _read(database.execute(f"{_SELECT} WHERE key IN ({marks})", chunk))
            return entries

        return self._use(read, {})

    def put(self, entries: Iterable[tuple[bytes, Entry]]) -> None:
        """Store `entries`, all or none of them."""
        rows = [
            (key, vector.tobytes(), int(cut), _digest(key, vector.tobytes(), int(cut)))
            for key, (vector, cut) in entries
        ]

        def write(database: sqlite3.Connection) -> None:
            with database:
                database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)

        self._use(write, None)

    def _use(self, work: Callable[[sqlite3.Connection], _Result], otherwise: _Result) -> _Result:
        if self.path is None:
            return otherwise
        try:
            with _opened(self.path) as database:
                return work(database)
        except (sqlite3.Error, OSError) as error:
            warn_user(
                f"the cache of text vectors {self.path} cannot be used ({error}): every text is "
                "encoded again; deleting the file is safe, and STACKSL_NO_CACHE=1 turns it off"
            )
            self.path = None
            return otherwise


def erase_keys(keys: Iterable[bytes]) -> int:
    """Remove every encoder's vectors of texts, by their keys, from the cache; how many there were.

    No byte of them, keys included, remains in the files. It works with the cache turned off too,
    which may have been on before.

    Raises:
        FeatureError: a file of the cache cannot be written; deleting it is safe.
    """
    folder = cache_folder()
    files = [] if folder is None else sorted((folder / FOLDER).glob("*.sqlite"))
    rows = [(key,) for key in keys]
    return sum(_erase(path, rows) for path in files)


def _erase(path: Path, keys: Sequence[tuple[bytes]]) -> int:
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE)) as database:
            for pragma in ("secure_delete=ON", "temp_store=MEMORY"):
                database.execute(f"PRAGMA {pragma}")
            with database:
                rows = database.executemany("DELETE FROM vectors WHERE key = ?", keys).rowcount
            if rows:
                database.execute("VACUUM")  # pages that were split may hold copies
            return rows
    except sqlite3.Error as error:
        raise FeatureError(
            f"the vectors of a text cannot be taken out of {path} ({error}): delete that file, "
            "which is always safe, then give the command again"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)  # vectors reveal their texts
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path, timeout=_PATIENCE)) as database:
        database.execute(_TABLE)
        yield database


def _read(rows: Iterable[tuple[bytes, bytes, int, bytes]]) -> dict[bytes, Entry]:
    """The entries of `rows` by key; damaged ones are left out."""
    return {
        key: (np.frombuffer(vector, np.float32), bool(cut))
        for key, vector, cut, digest in rows
        if _digest(key, vector, cut) == digest and not len(vector) % 4
    }


def _digest(key: bytes, vector: bytes, cut: int) -> bytes:
    return hashlib.sha256(key + bytes([cut & 255]) + vector).digest()[:16]


class CachedEncoder(Encoder):
    """An encoder with fixed weights, whose vectors are kept on disk.

    Args:
        arguments: what the class is called with for the same encoder on another machine.

    Attributes:
        encoded: how many texts went through the model, not the cache.
    """

    bias = 0.0  # a vector of norm 1 is never zero, and the refit has an intercept of its own
    gpu = False  # whether it runs on a GPU where there is one

    def __init__(self, spec: str, **arguments: str) -> None:
        self.spec = spec
        self._arguments = arguments
        self.encoded = 0
        self._cut: set[bytes] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self._arguments, self.identity)

    @abstractmethod
    def vectors(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Entry]]]:
        """Yield the place of each text with its vector and whether it was cut, batch by batch."""

    @property
    def truncated(self) -> int:
        """How many distinct texts were longer than the encoder reads."""
        return len(self._cut)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """The vectors (n, d) of `texts`, from the cache where they are known."""
        clean = [readable(text) for text in texts]
        keys = [text_key(text) for text in clean]
        entries = self._cache.get(list(dict.fromkeys(keys)))
        todo = {key: text for key, text in zip(keys, clean, strict=True) if key not in entries}
        done = len(texts) - len(todo)
        if progress is not None:
            progress(done, len(texts))
        for fresh in self._encode_new(todo) if todo else ():  # without it no model is loaded
            entries.update(fresh)
            done += len(fresh)
            if progress is not None:
                progress(done, len(texts))
        self._cut.update(key for key, (_, cut) in entries.items() if cut)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return np.stack([entries[key][0] for key in keys])

    def _encode_new(self, todo: dict[bytes, str]) -> Iterator[dict[bytes, Entry]]:
        """Encode `todo` batch by batch, writing to the cache from time to time."""
        keys, unkept = list(todo), dict[bytes, Entry]()
        try:
            for batch in self._batches(list(todo.values())):
                fresh = {keys[index]: entry for index, entry in batch}
                self.encoded += len(fresh)
                unkept.update((k, e) for k, e in fresh.items() if np.isfinite(e[0]).all())
                if len(unkept) >= _KEPT_AT_ONCE:
                    self._cache.put(unkept.items())
                    unkept.clear()
                yield fresh
        finally:  # keep what was computed, also when the user interrupts
            if unkept:
                self._cache.put(unkept.items())

    def _batches(self, texts: list[str]) -> Iterator[list[tuple[int, Entry]]]:
        """`vectors`, made by Ray where it is the engine and there is work for more than one."""
        if len(texts) <= _KEPT_AT_ONCE or not on_ray():
            return self.vectors(texts)
        chunks = [(n, texts[n : n + _KEPT_AT_ONCE]) for n in range(0, len(texts), _KEPT_AT_ONCE)]
        return over_ray(partial(_encode_part, self), chunks, gpu=self.gpu)

    @cached_property
    def _cache(self) -> VectorCache:
        return VectorCache(self.identity)


def _encode_part(encoder: CachedEncoder, chunk: tuple[int, list[str]]) -> list[tuple[int, Entry]]:
    """The entries of a part of the texts, by their places among all of them."""
    start, texts = chunk
    return [(start + n, entry) for batch in encoder.vectors(texts) for n, entry in batch]


def _remade(cls: type[CachedEncoder], arguments: Mapping[str, str], identity: str) -> CachedEncoder:
    """An encoder that was pickled, with the weights of this machine."""
    encoder = cls(**arguments)
    if encoder.identity != identity:
        raise FeatureError(
            f"'{encoder.spec}' has other weights on the node {gethostname()}: copy yours there"
        )
    return encoder
