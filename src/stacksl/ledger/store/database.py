"""The database of a ledger: one connection, one writer at a time, every fault one sentence."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.files.atomic import sync_folder
from stacksl.ledger.events import NOTES, Row, values_of
from stacksl.ledger.purchases import Head
from stacksl.ledger.store.schema import EVENTS, FORMAT, KINDS, Table

_PAGE: Final = 4096
_PATIENCE: Final = 30.0  # seconds to wait for another process that writes
_READERS: Final = 500  # milliseconds to wait for readers before the log is truncated
_AT_ONCE: Final = 500  # values in one statement
_OF_ROW: Final = (*tuple(EVENTS.columns)[1:-2], "seq", "previous", "hash")  # as `Row` has them


class Store(AbstractContextManager["Store"]):
    """The open database file of a ledger.

    A writer locks the whole file (`BEGIN IMMEDIATE`) before it reads what it decides on. There is
    a write-ahead log, and every commit is synced.

    Attributes:
        name: the file, for messages.
        draft: whether it is the file of a run that is being made.
    """

    def __init__(self, path: Path, *, readonly: bool = False, draft: bool = False) -> None:
        self.readonly, self.draft = readonly, draft
        self.name = str(path)
        with self.sentences():
            self.connection = _open_readonly(path) if readonly else _open(path, draft)

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """Turn the database's errors into ours, one sentence each."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise LedgerError(
                f"the ledger {self.name} refused a row that breaks its rules "
                f"({error}): something was recorded twice, nothing was written"
            ) from error
        except sqlite3.Error as error:
            raise _sentence(self.name, str(error), self.draft) from error
        except UnicodeDecodeError as error:  # raised by the decoding of an error message
            raise _sentence(self.name, "malformed text") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """An exclusive write transaction; rolled back unless `commit` is called.

        Raises:
            LedgerError: the database cannot be written; nothing was written.
        """
        if self.readonly:
            raise LedgerError(f"the ledger {self.name} was opened for reading only")
        with self.sentences():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                self.connection.rollback()  # changes nothing after `commit`

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read inside is of one moment, even if other processes write."""
        if self.connection.in_transaction:
            yield
            return
        with self.sentences():
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.rollback()

    def commit(self) -> None:
        """Make the transaction durable."""
        with self.sentences():
            self.connection.execute("COMMIT")

    def select(
        self, table: Table, columns: Sequence[str] = (), clauses: str = "", *values: object
    ) -> list[Any]:
        """Rows as tuples of some `columns` or all, each value of the type of its column.

        The `clauses` are SQL behind the table's name, with a `?` for each of the `values`.
        """
        columns = columns or tuple(table.columns)
        query = f"SELECT {', '.join(columns)} FROM {table.name} {clauses}"
        with self.sentences():
            return _typed(table, columns, self.connection.execute(query, values))

    def chosen(
        self, table: Table, columns: Sequence[str], column: str, values: Iterable[Any]
    ) -> list[Any]:
        """The rows with one of the `values` in a `column`, as `select` gives them."""
        sorted_values, rows = sorted(values), []
        for start in range(0, len(sorted_values), _AT_ONCE):
            page = sorted_values[start : start + _AT_ONCE]
            marks = ", ".join("?" for _ in page)
            rows += self.select(table, columns, f"WHERE {column} IN ({marks})", *page)
        return rows

    def paged(
        self, table: Table, columns: Sequence[str], after: float, where: str, *values: object
    ) -> Iterator[list[Any]]:
        """Yield the rows with a key above `after`, in its order, some thousands at a time.

        Each row is its key and the `columns`; `where` is SQL that restricts them further.
        """
        clauses = f"WHERE {table.key} > ? {where} ORDER BY {table.key} LIMIT {_PAGE}"
        while page := self.select(table, (table.key, *columns), clauses, after, *values):
            keys = [row[0] for row in page]
            if keys[0] <= after or keys != sorted(keys):  # or it might be read for ever
                raise _sentence(self.name, "malformed order of rows")
            yield page
            if len(page) < _PAGE:
                return
            after = keys[-1]

    def count(self, table: Table, where: str = "true", *values: object) -> int:
        """How many rows a table has, or those that SQL restricts."""
        with self.sentences():
            query = f"SELECT count(*) FROM {table.name} WHERE {where}"
            return int(self.connection.execute(query, values).fetchone()[0])

    def insert(self, table: Table, rows: Iterable[Sequence[object]]) -> None:
        """Insert rows, each with a value for every column in order, in the open transaction."""
        marks = ", ".join("?" for _ in table.columns)
        self.connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows)

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows to the chain, in the open transaction."""
        self.insert(EVENTS, ((r.seq, *values_of(r), r.previous, r.hash) for r in rows))

    def tail(self, *, notes: bool = True) -> Head | None:
        """The last row's place and hash; without `notes` that of the last other row, if any."""
        clause = "" if notes else f"WHERE event NOT IN {NOTES}"
        rows = self.select(EVENTS, ("seq", "hash"), f"{clause} ORDER BY seq DESC LIMIT 1")
        return next((Head(*row) for row in rows), None)

    def pages(
        self, after: float = 0, *, upto: int | None = None, only: Sequence[str] = ()
    ) -> Iterator[list[Row]]:
        """The chain from row `after` + 1 (to row `upto`), some thousands of rows at a time.

        Rows of none of the events `only` are left out, where any is named.
        """
        where, values = "", list[object]()
        if upto is not None:
            where, values = "AND seq <= ?", [upto]
        if only:
            marks = ", ".join("?" for _ in only)
            where, values = f"{where} AND event IN ({marks})", [*values, *only]
        for page in self.paged(EVENTS, _OF_ROW, after, where, *values):
            yield [Row(*row[1:]) for row in page]

    def round_rows(self, rounds: Iterable[int]) -> list[Row]:
        """The `round` rows of rounds, as far as they are on disk, in any order."""
        return [Row(*r) for r in self.chosen(EVENTS, _OF_ROW, "event = 'round' AND round", rounds)]

    def rows_of(self, event: Literal["settings", "derived"]) -> list[Row]:
        """The rows of an event that has an index, the oldest first."""
        rows = self.select(EVENTS, _OF_ROW, f"WHERE event = '{event}' ORDER BY seq")
        return [Row(*row) for row in rows]

    def wipe(self) -> None:
        """Remove the bytes of erased rows from the file and from SQLite's files next to it.

        The file is rewritten without its free pages (VACUUM) and the write-ahead log truncated.

        Raises:
            LedgerError: another process reads the ledger, or the disk is full.
        """
        with self.sentences():
            self._pragma("temp_store=MEMORY")  # VACUUM must leave no copy in another folder
            self.connection.execute("VACUUM")
            busy = self._pragma("wal_checkpoint(TRUNCATE)")
        if busy:
            raise LedgerError(
                f"the ledger {self.name} is read by another process, so what was erased may still "
                "be in its log: wait for that process to end, then give the command again"
            )

    def empty_log(self) -> None:
        """Move committed rows from the write-ahead log into the file, and truncate the log.

        SQLite reads a damaged log only up to the damage and reports nothing, so rows behind it are
        lost; damage in the file is found by `verify`. Where another process reads, or the disk is
        full, the log is kept: it is as durable as the file.
        """
        if not self.readonly:
            with suppress(sqlite3.Error):
                self._pragma(f"busy_timeout={_READERS}")
                self._pragma("wal_checkpoint(TRUNCATE)")
                self._pragma(f"busy_timeout={round(1000 * _PATIENCE)}")

    def _pragma(self, pragma: str) -> int:
        """The first number of a PRAGMA's result; 0 where it has none."""
        row = self.connection.execute(f"PRAGMA {pragma}").fetchone()
        return 0 if row is None else int(row[0])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        with self.sentences(), suppress(sqlite3.ProgrammingError):  # closed before
            self.connection.rollback()
            self.empty_log()
            self.connection.close()


def _typed(table: Table, columns: Sequence[str], rows: Iterable[Any]) -> list[Any]:
    """The `rows`, after a check that their values have the types of their `columns`.

    SQLite accepts a text in a column of integers, so a damaged file can hold one.
    """
    tuples = list(rows)
    for name, values in zip(columns, zip(*tuples, strict=True), strict=bool(tuples)):
        if not KINDS[table.columns[name]][1].issuperset(map(type, values)):
            raise LedgerCorrupt(
                f"the column '{name}' of the ledger's table '{table.name}' holds a value of"
                " another type: the file is damaged, restore it from a copy"
            )
    return tuples


# Opening and placing ---------------------------------------------------------------------------


def opened(path: Path, *, readonly: bool = False) -> Store:
    """The store of a run's database, of the format that this version reads.

    Raises:
        LedgerError: there is none, it is of another format, or cannot be read.
    """
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}: name the run.db of a run")
    store = Store(path, readonly=readonly)
    try:
        with store.sentences():
            ((number,),) = store.connection.execute("PRAGMA user_version")
        if number != FORMAT:
            raise LedgerError(
                f"the database {path} has format {number}, this version of stacksl reads format"
                f" {FORMAT}: name the run.db of a run, or use the version that wrote it"
            )
    except BaseException:
        store.close()
        raise
    return store


def remove_file(path: Path) -> None:
    """Remove a ledger's file and the files that SQLite keeps next to it."""
    for suffix in ("", "-wal", "-shm"):
        Path(os.fspath(path) + suffix).unlink(missing_ok=True)


def place_file(draft: Path, path: Path) -> None:
    """Rename the closed ledger `draft` to `path`, durably.

    Raises:
        LedgerError: the disk is full, or the folder cannot be written.
    """
    try:
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as fault:
        raise LedgerError(
            f"the ledger {path} cannot be written ({fault.strerror}): make room, or get"
            " permission to write there"
        ) from fault


def _open(path: Path, draft: bool) -> sqlite3.Connection:
    """Open the file for writing; a missing one is created, and SQLite gives others its mode.

    A draft has no log: a full disk would leave in it what the renamed file then lacks.
    """
    with suppress(OSError):  # which opening the file raises again, with a clear message
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    journal = f"journal_mode={'MEMORY' if draft else 'WAL'}"
    for pragma in (journal, "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _open_readonly(path: Path) -> sqlite3.Connection:
    address = path.absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        # a folder without write permission cannot hold the log's index, and has no writer
        address += "&immutable=1"
        connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
    return connection


_SENTENCES: Final = (
    ("is full", LedgerError, "cannot be written, its disk is full: free some space and {}"),
    ("readonly", LedgerError, "cannot be written, it is read-only: make it writable"),
    ("locked", LedgerError, "is held by another process: wait for it to end, or stop it"),
    ("not a database", LedgerError, "should be an SQLite file, got something else"),
    ("decode to UTF-8", LedgerCorrupt, "is damaged (a text in it is none): restore a copy"),
    ("malformed", LedgerCorrupt, "is damaged (its file was cut or overwritten): restore a copy"),
    ("unable to open", LedgerError, "cannot be opened: check its folder and permissions"),
    ("disk I/O", LedgerError, "cannot be read or written, the disk reports an error or is full"),
)


def _sentence(name: str, fault: str, draft: bool = False) -> LedgerError:
    fault = fault.partition(" with text ")[0]  # which may be anybody's, of several lines
    for pattern, kind, text in _SENTENCES:
        if pattern in fault:
            text = text.format("start the run again" if draft else "resume")
            return kind(f"the ledger {name} {text} ({fault})")
    return LedgerError(f"the ledger {name} cannot be used: {fault}")
