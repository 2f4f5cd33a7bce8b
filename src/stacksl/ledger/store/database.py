"""The database of a ledger: one connection, one writer at a time, every fault one sentence."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, create_engine, event, insert, make_url, select
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.events import Entry
from stacksl.ledger.purchases import Head
from stacksl.ledger.store.chain import Link
from stacksl.ledger.store.schema import events, runs, typed

if TYPE_CHECKING:
    from sqlalchemy import Connection


_PAGE: Final = 4096
_READERS: Final = 500  # milliseconds to wait for readers before the log is truncated
_ENTRY = [events.c[name] for name in Entry.__dataclass_fields__]
_LINK = [events.c.seq, *_ENTRY, events.c.previous, events.c.hash]


class Store:
    """One open database that holds the chains of one or several runs.

    Writers lock the whole ledger (`BEGIN IMMEDIATE` on SQLite, the run's row elsewhere) before
    they read what they decide on. SQLite keeps a write-ahead log, and every commit is synced.

    Attributes:
        name: the file or the address, without a password, for messages.
        fsyncs, fsync_seconds: how many transactions were made durable, and how long that took.
    """

    def __init__(
        self, where: str | Path, *, readonly: bool = False, patience: float = 30.0
    ) -> None:
        self._url = _url(where)
        self._patience = patience
        self.readonly = readonly
        self.fsyncs = 0
        self.fsync_seconds = 0.0
        self.name = self._url.render_as_string(hide_password=True)
        if self._sqlite:
            self.name = str(self._url.database)
        with self.sentences():
            self.connection = self._connect(patience)

    @property
    def _sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def _connect(self, patience: float) -> Connection:
        if not self._sqlite:
            return create_engine(self._url, poolclass=NullPool).connect()
        path = Path(self.name)

        def open_file() -> sqlite3.Connection:
            if self.readonly:
                return _open_readonly(path, patience)
            _make_private(path)
            return sqlite3.connect(path, timeout=patience, isolation_level=None)

        engine = create_engine("sqlite://", creator=open_file, poolclass=NullPool)
        if not self.readonly:
            event.listen(engine, "connect", _prepare)
        return engine.connect()

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """Turn the database's errors into ours, one sentence each."""
        try:
            yield
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger {self.name} refused a row that breaks its rules "
                f"({error.orig}): something was recorded twice, nothing was written"
            ) from error
        except DBAPIError as error:
            raise _sentence(self.name, str(error.orig)) from error
        except UnicodeDecodeError as error:  # raised by the decoding of an error message
            raise _sentence(self.name, "malformed text") from error
        except (SQLAlchemyError, ImportError) as error:
            raise LedgerError(f"the ledger {self.name} cannot be opened: {error}") from error

    @contextmanager
    def writing(self, run: str | None = None) -> Iterator[Connection]:
        """An exclusive write transaction; rolled back unless `commit` is called.

        Raises:
            LedgerError: the database cannot be written; nothing was written.
        """
        if self.readonly:
            raise LedgerError(f"the ledger {self.name} was opened for reading only")
        with self.sentences():
            self.connection.rollback()  # a database may keep a read transaction open
            if self._sqlite:
                self.connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif run is not None:
                row = select(runs.c.run).where(runs.c.run == run)
                self.connection.execute(row.with_for_update())
            try:
                yield self.connection
            except BaseException:
                self.connection.rollback()
                # after a failed commit SQLAlchemy considers the transaction over, SQLite does not
                self.connection.connection.rollback()
                raise

    def commit(self) -> None:
        """Make the transaction durable, and count it."""
        start = time.perf_counter()
        with self.sentences():
            self.connection.commit()
        self.fsyncs += 1
        self.fsync_seconds += time.perf_counter() - start

    def append(self, run: str, links: Sequence[Link]) -> None:
        """Append links to a chain, in the open transaction."""
        if links:
            self.connection.execute(insert(events), [_values(run, link) for link in links])

    def tail(self, run: str) -> Head | None:
        """The last row's place and hash, or None for an empty chain."""
        query = select(events.c.seq, events.c.hash).where(events.c.run == run)
        found = self.connection.execute(query.order_by(events.c.seq.desc()).limit(1)).all()
        rows = typed([events.c.seq, events.c.hash], found)
        return next((Head(row.seq, row.hash) for row in rows), None)

    def links(
        self,
        run: str,
        after: int = 0,
        *,
        upto: int | None = None,
        without: str | None = None,
        only: Sequence[str] = (),
    ) -> Iterator[Link]:
        """Yield the chain from row `after` + 1 (to row `upto`), a page at a time.

        Rows of the event `without` are left out, and so are those of none of the events `only`.
        """
        query = select(*_LINK).where(events.c.run == run).order_by(events.c.seq).limit(_PAGE)
        if upto is not None:
            query = query.where(events.c.seq <= upto)
        if without is not None:
            query = query.where(events.c.event != without)
        if only:
            query = query.where(events.c.event.in_(only))
        while True:
            with self.sentences():
                page = self.connection.execute(query.where(events.c.seq > after)).all()
            for row in typed(_LINK, page):
                yield Link(row[0], Entry(*row[1:-2]), row[-2], row[-1])
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def certified(self, run: str) -> tuple[set[str], int]:
        """The surrogates of the items with a certificate on disk, and the highest round."""
        query = select(events.c.item, events.c.round).where(
            events.c.run == run, events.c.event == "round"
        )
        seen, last = set(), 0
        with self.sentences():
            rows = self.connection.execute(query)
            for item, round in typed([events.c.item, events.c.round], rows):
                seen.add(item)
                last = max(last, round)
        return seen, last

    def certificate(self, run: str, round: int) -> Entry | None:
        """The `round` row of a round, if it is on disk."""
        query = select(*_ENTRY).where(
            events.c.run == run, events.c.event == "round", events.c.round == round
        )
        with self.sentences():
            found = self.connection.execute(query).all()
        return next((Entry(*row) for row in typed(_ENTRY, found)), None)

    @property
    def unclean(self) -> bool:
        """Whether the file may still hold bytes of erased rows."""
        return self._sqlite and bool(self._pragma("user_version"))

    def mark_unclean(self) -> None:
        """Record, in the open transaction, that the rows it erases are to be wiped."""
        if self._sqlite:
            self._pragma("user_version=1")

    def wipe(self) -> None:
        """Remove the bytes of erased rows from the file and those that SQLite keeps beside it.

        The file is rewritten without its free pages (VACUUM) and the write-ahead log truncated.
        After a crash in between, `unclean` is still true.

        Raises:
            LedgerError: another process reads the ledger, or the disk is full.
        """
        if not self._sqlite:
            return
        with self.sentences():
            self.connection.rollback()
            self._pragma("temp_store=MEMORY")  # VACUUM must leave no copy in another folder
            self.connection.exec_driver_sql("VACUUM")
            busy = self._pragma("wal_checkpoint(TRUNCATE)")
        if busy:
            raise LedgerError(
                f"the ledger {self.name} is read by another process, so what was erased may still "
                "be in its log: wait for that process to end, then open the ledger again"
            )
        with self.sentences():
            self._pragma("user_version=0")

    def empty_log(self) -> None:
        """Move committed rows from the write-ahead log into the file, and truncate the log.

        SQLite reads a damaged log only up to the damage and reports nothing, so rows behind it are
        lost; damage in the file is found by `verify`. Where another process reads, or the disk is
        full, the log is kept: it is as durable as the file.
        """
        if self._sqlite and not self.readonly:
            with suppress(DBAPIError):
                self._pragma(f"busy_timeout={_READERS}")
                self._pragma("wal_checkpoint(TRUNCATE)")
                self._pragma(f"busy_timeout={round(1000 * self._patience)}")

    def _pragma(self, words: str) -> int:
        """The first number of a PRAGMA's result; 0 where it has none."""
        result = self.connection.exec_driver_sql(f"PRAGMA {words}")
        row = result.first() if result.returns_rows else None
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Close the database."""
        if self.connection.closed:
            return
        with self.sentences():
            self.connection.rollback()
            self.empty_log()
            self.connection.close()
            self.connection.engine.dispose()


def expect_file(path: Path) -> None:
    """Check that there is a file that could be a ledger.

    Raises:
        LedgerError: there is none, or a folder, or an empty file.
    """
    if path.is_dir():
        raise LedgerError(f"expected a ledger file, got the folder {path}: name its ledger.db")
    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}: name the ledger.db of a run")
    if path.stat().st_size == 0:
        raise LedgerError(f"the ledger {path} is empty, it was cut: restore the file from a copy")


def remove_file(path: Path) -> None:
    """Remove a ledger's file and those that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        Path(os.fspath(path) + suffix).unlink(missing_ok=True)


def place_file(draft: Path, path: Path) -> None:
    """Rename the closed ledger `draft` to `path`, durably.

    Raises:
        LedgerError: the disk is full, or the folder cannot be written.
    """
    try:
        os.replace(draft, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        raise LedgerError(
            f"the ledger {path} cannot be written ({fault.strerror}): make room, or give yourself"
            " the right to write there"
        ) from fault


def _url(where: str | Path) -> URL:
    text = str(where)
    if "://" in text:
        try:
            return make_url(text)
        except SQLAlchemyError as error:
            raise LedgerError(
                f"expected a path or a database URL, got {text!r}: {error}"
            ) from error
    return URL.create("sqlite", database=text)


def _open_readonly(path: Path, patience: float) -> sqlite3.Connection:
    """Open the file for reading only."""
    address = path.absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        # a folder without write permission cannot hold the log's index, and has no writer
        address += "&immutable=1"
        connection = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)
    return connection


def _make_private(path: Path) -> None:
    """Create a missing file with mode 0600; SQLite gives the files beside it the same mode.

    An error here is ignored: opening the file raises it again, with a clear message.
    """
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(handle)


def _prepare(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _values(run: str, link: Link) -> dict[str, object]:
    entry = link.entry
    values: dict[str, object] = {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
    values.update(run=run, seq=link.seq, previous=link.previous, hash=link.hash)
    return values


_SENTENCES: Final = (
    ("is full", LedgerError, "cannot be written, its disk is full: free some space and resume"),
    ("readonly", LedgerError, "cannot be written, it is read-only: make it writable"),
    ("read-only", LedgerError, "cannot be written, it is read-only: make it writable"),
    ("locked", LedgerError, "is held by another process: wait for it to end, or stop it"),
    ("not a database", LedgerError, "should be an SQLite file, got something else"),
    ("decode to UTF-8", LedgerCorrupt, "is damaged (a text in it is none): restore a copy"),
    ("malformed", LedgerCorrupt, "is damaged (its file was cut or overwritten): restore a copy"),
    ("unable to open", LedgerError, "cannot be opened: check its folder and permissions"),
    ("no such table", LedgerError, "should be a ledger, got a database without its tables"),
    ("disk I/O", LedgerError, "cannot be read or written, the disk reports an error"),
)


def _sentence(name: str, fault: str) -> LedgerError:
    for sign, kind, words in _SENTENCES:
        if sign in fault:
            return kind(f"the ledger {name} {words} ({fault})")
    return LedgerError(f"the ledger {name} cannot be used: {fault}")
