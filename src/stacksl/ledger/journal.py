"""The writing half of a ledger: what is recorded gets to disk whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Final, Self

from numpy.typing import NDArray

from stacksl.errors import LedgerError
from stacksl.files.arrays import to_bytes
from stacksl.ledger.accounts import Terms
from stacksl.ledger.events import STORED, Entry, canonical, chain
from stacksl.ledger.purchases import Head, ItemRecord
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.database import Store, opened, place_file, remove_file
from stacksl.ledger.store.rows import (
    ROWS,
    RejectedRow,
    check_rows,
    digest_of_rows,
    write_items,
    write_rejected,
)
from stacksl.ledger.store.schema import ERASING, TERMS, TEST, make_indexes, make_tables
from stacksl.ledger.store.settings import (
    SALT,
    Setting,
    digest_of,
    expect_digest,
    new_salt,
    other_derived,
    write_settings,
    write_state,
)
from stacksl.ledger.store.stored import write_arrays

Clock = Callable[[], float]

_MOST_PENDING: Final = 1024  # entries that may be kept in memory


class Journal(LedgerReader):
    """A ledger's rows on their way to disk, with the tables that are changed along with them."""

    _open = False  # whether a transaction is in progress

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        run: str,
        budget: int,
        money: int | None = None,
        price: int = 0,
        items: Iterable[ItemRecord],
        settings: Mapping[str, Setting] | None = None,
        facts: Mapping[str, Any] | None = None,
        test: Iterable[ItemRecord] = (),
        rejected: Iterable[RejectedRow] = (),
        clock: Clock = time.time,
    ) -> Self:
        """Create the database of a run; the file appears whole or not at all.

        Its labels, its `money` in micro-units (None for no limit) and the `price` of one label are
        the most that it may buy, spend and pay. It is made with the `settings`, and begins as
        `running` with these `facts`. It has `test` rows for its model, and rows of its files were
        `rejected`. The `clock` gives seconds since the epoch.

        Raises:
            LedgerError: the path exists or cannot be written, or two items have one id.
        """
        path, terms = Path(path), Terms(run, budget, money, price, created=int(clock() * 1e6))
        if path.exists():
            raise LedgerError(f"{path} exists: open it, or name a path that is free")
        draft = path.with_name(path.name + ".new")
        remove_file(draft)  # left by a process that was killed here
        try:
            with Store(draft, draft=True) as store, store.writing():
                make_tables(store.connection)
                write_settings(store, {**(settings or {}), SALT: new_salt()})
                write_state(store, "running", facts or {})
                write_items(store, items)
                write_items(store, test, TEST)
                write_rejected(store, rejected)
                make_indexes(store.connection)
                write_settings(store, {ROWS: Setting(digest_of_rows(store))})
                store.insert(TERMS, [astuple(replace(terms, settings=digest_of(store)))])
                store.commit()
            place_file(draft, path)
        except BaseException:
            remove_file(draft)
            raise
        return cls(Store(path), clock)

    @classmethod
    def open(cls, path: str | Path, *, readonly: bool = False) -> Self:
        """Open the ledger of a run; one that is `readonly` writes nothing.

        Raises:
            LedgerError: there is no ledger, it is of another format, or cannot be read.
            LedgerCorrupt: its rows contradict each other.
        """
        store = opened(Path(path), readonly=readonly)
        try:
            return cls(store, time.time)
        except BaseException:
            store.close()
            raise

    # Recording ---------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit all that is recorded inside in one transaction, or nothing.

        Inside another such block it is part of that block's transaction. `rows` reads the disk: it
        does not show what is recorded inside before the block ends.

        Raises:
            LedgerError: nothing was written, and nothing is counted that was not before.
        """
        if self._open or self.recorded is not None:
            yield
            return
        try:
            with self._tentative(), self._store.writing():
                self._open = True
                self._catch_up()
                yield
                rows = chain(self.head, self.entries)
                self._store.append(rows)
                self._store.commit()
        finally:
            self._open = False
        if rows:
            self.head = Head(rows[-1].seq, rows[-1].hash)
        self.entries.clear()

    @contextmanager
    def later(self) -> Iterator[None]:
        """Write what is recorded inside with the next commit; nothing of it if the block raises."""
        if self.recorded is not None:
            yield
            return
        if self._store.readonly:
            raise LedgerError(f"the ledger {self._store.name} was opened for reading only")
        if len(self.entries) >= _MOST_PENDING:
            self.flush()
        with self._tentative():
            yield

    @contextmanager
    def _tentative(self) -> Iterator[None]:
        """Drop what is recorded inside if the block raises, and count what is left again."""
        count = len(self.entries)
        try:
            yield
        except BaseException:
            del self.entries[count:]
            self.__dict__.pop("accounts", None)
            with suppress(LedgerError):  # an error here would hide the first one
                _ = self.accounts
            raise

    def record(self, event: str, payload: Mapping[str, object] | str = "{}", **fields: Any) -> None:
        """Count an entry and keep it to be written; one that is on disk is the next one there.

        The `payload` may be its text; `fields` are the other fields of the `Entry`.
        """
        text = payload if isinstance(payload, str) else canonical(payload)
        entry = Entry(int(self._clock() * 1e6), event, text=text, **fields)
        recorded = self._recorded and self.recorded
        if recorded is None:
            self.accounts.apply(entry)
            self.entries.append(entry)
        else:
            self.accounts.apply(recorded.same(entry))

    def _catch_up(self) -> None:
        """Count the rows that another process has written since."""
        tail = self._tail()
        pages = self._store.pages(self.head.count) if tail != self.head else ()
        rows = [row for page in pages for row in page if row.event != STORED]
        if rows and (self.entries or "accounts" not in self.__dict__):
            self.__dict__.pop("accounts", None)
            _ = self.accounts
        elif rows:
            self.items.read()
            self.private.read()
            self.accounts.count(rows)
        self.head = tail

    # Terms, classes and state ------------------------------------------------------------------

    def set_budget(self, labels: int, money: int | None, detail: Mapping[str, object]) -> None:
        """Change what may be spent from here on, as a `budget` row.

        The payload holds the `detail` (JSON values) too: what else changes with it, such as the
        learner's budget and rounds.

        Raises:
            LedgerError: below what is spent or reserved.
        """
        with self.together():
            self.record("budget", {**detail, "budget": labels, "money": money})

    def add_class(self, name: str, size: int) -> None:
        """Add the candidate `name` to every item, which makes `size` of them.

        The chain holds the name: it belongs to the task, not to an item.
        """
        with self.together():
            number = self.accounts.classes_added + 1
            self.record("class_added", {"name": name, "size": size}, number=number)

    def change_settings(
        self,
        changes: Mapping[str, Setting | None],
        report: Mapping[str, object] | None = None,
    ) -> None:
        """Change what the run is made with, as a `settings` row with the new digest.

        Args:
            changes: the settings to set or, with None, to remove.
            report: for the report, in addition to the digest: JSON values without texts
                of items, and people by their codes.
        """
        with self.together():
            self._expect_digest()
            write_settings(self._store, changes)
            self.record("settings", {**(report or {}), "digest": digest_of(self._store)})

    def codes_of(self, names: Iterable[str]) -> list[str]:
        """The codes under which the chain has annotators; new ones where they have none."""
        with self.together():
            return [self.private.enroll(name, "person") for name in names]

    def add_items(self, records: Iterable[ItemRecord], rejected: Sequence[RejectedRow] = ()) -> int:
        """Add items to the run, and the rows of their files that could not be used; how many.

        They are appended as a `settings` row with the new digest.

        Raises:
            LedgerError: an id is taken by another item, or appears twice. None was added then.
        """
        with self.together():
            self._expect_digest()
            check_rows(self._store, one_by_one=False)  # an edited row gets no new digest either
            count = write_items(self._store, records)
            write_rejected(self._store, rejected)
            write_settings(self._store, {ROWS: Setting(digest_of_rows(self._store))})
            self.record("settings", {"digest": digest_of(self._store)})
        self.items.read()
        return count

    def _expect_digest(self) -> None:
        """Check that no edit by hand will get a digest of its own, in the open transaction."""
        if all(entry.event != "settings" for entry in self.entries):  # else done before
            expect_digest(self._store)

    def write_state(self, state: str, facts: Mapping[str, Any]) -> None:
        """Replace the state of the run, and its `facts` (JSON values)."""
        with self.together():
            write_state(self._store, state, facts)

    def note_derived(self, digests: Mapping[str, str]) -> None:
        """Record the SHA-256 of files that were made from the run, by name, where it is new."""
        with self.together():
            for name, digest in other_derived(self._store, digests).items():
                self.record("derived", {"name": name, "digest": digest})

    # What is learned ----------------------------------------------------------------------------

    def note_refit(self, labels: int, detail: Mapping[str, object]) -> None:
        """Record a refit of the learner on `labels` labels; `detail` holds any JSON values."""
        with self.together():
            self.record("refit", {**detail, "labels": int(labels)})

    def note_refreshed(self, labels: int, detail: Mapping[str, object]) -> None:
        """Record that the features were renewed after `labels` labels: a new epoch begins here.

        `detail` holds any JSON values.
        """
        with self.together():
            number = self.accounts.epoch + 1
            self.record("refreshed", {**detail, "labels": int(labels)}, number=number)

    def note_look(self, labels: int, *, reached: bool, **numbers: float) -> None:
        """Record a look at the audit, of the model of so many labels: whether the run may stop.

        The `numbers` are kept as well.
        """
        with self.together():
            number = self.accounts.looks + 1
            self.record("looked", {"labels": labels, "reached": reached, **numbers}, number=number)

    def save_arrays(self, round: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save the learner's arrays after the last row, with all pending rows in one transaction.

        Those saved before are deleted. Equal ones that were saved last are left.
        """
        data = to_bytes(arrays)
        with self.together():
            rows, saved = chain(self.head, self.entries), self.arrays()
            head = Head(rows[-1].seq, rows[-1].hash) if rows else self.head
            end = (head.count - 1, round, data, True)  # the last row is then their digest
            if saved and not rows and (saved.head.count, *saved[1:]) == end:
                return
            self.record(STORED, {STORED: write_arrays(self._store, head, round, data)})

    # Erasing -----------------------------------------------------------------------------------

    def begin_erasing(self, item: str) -> None:
        """Mark an item as one of which copies or bytes may be left until `erased`."""
        surrogate = self.items.surrogates[item]
        with self.together():
            self._store.connection.execute("INSERT OR IGNORE INTO erasing VALUES (?)", [surrogate])

    def erasing(self) -> list[str]:
        """The ids of the marked items; the names of those whose texts are erased."""
        marked = self._store.select(ERASING)
        return [str(self.items.identities[surrogate].id) for (surrogate,) in marked]

    def erased(self) -> None:
        """Wipe the bytes of erased items from the database, and take all marks away.

        Raises:
            LedgerError: another process reads the database; the marks stay.
        """
        self._store.wipe()
        with self.together():
            self._store.connection.execute("DELETE FROM erasing")

    # Opening and closing -----------------------------------------------------------------------

    def flush(self) -> None:
        """Commit the pending entries."""
        if self.entries:
            with self.together():
                pass

    def close(self) -> None:
        """Flush, and close the database."""
        try:
            self.flush()
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._store.close()  # pending entries may be lost; a second error would hide the first
