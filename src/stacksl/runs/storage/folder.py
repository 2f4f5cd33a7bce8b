"""A run's folder: its database with settings and state, its other files, its lock.

The files of a run hold texts of its data, so only their owner may read them (`files/atomic.py`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, Literal

from stacksl.data import Classes
from stacksl.errors import RunError, RunLocked
from stacksl.features.store import ABOUT
from stacksl.files.atomic import DRAFT, keep_private, make_private
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Head
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.schema import ERASING
from stacksl.ledger.store.settings import (
    Setting,
    expect_digest,
    other_derived,
    read_classes,
    read_settings,
    read_state,
    write_state,
)
from stacksl.report.facts import Facts
from stacksl.runs.settings.resolve import CHOSEN

LOCK = ".lock"
WAIT = 30.0  # seconds for the lock of a run
HELD: ContextVar[frozenset[Path]] = ContextVar("HELD", default=frozenset())  # by callers
POLL = 0.05  # seconds between two tries
DATABASE = "run.db"
FACTS = "facts.json"
SECRET = "secret"  # a setting: what keys, orders and who gets which row are drawn from
RECORDS: Final = (FACTS, "report.html", "README.md")
"""The files that name the ledger's head: one that was cut, or rewritten, differs from them."""
HEAD = re.compile(rb"(\d{1,18}) rows, last ([0-9a-f]{64})")  # as `facts_of` writes it
MAP: Final = "features/map.safetensors"  # fitted on the texts of all items
MODEL: Final = "model"
ADAPTED: Final = "lm.json"  # in the folder of an adapted model
DERIVED: Final = (MODEL, *RECORDS)
"""What a finished run has apart from its database, made again by a resume when it is deleted."""
STARTED = {LOCK, "features", "model"}
"""What a start that was cut off before `run.db` leaves, besides drafts."""
TIMES = "%Y-%m-%d %H:%M:%S UTC"  # how times are shown

State = Literal["running", "waiting", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, by its `path`."""

    path: Path

    @property
    def database(self) -> Path:
        """The database: what the run is made with, where it is, and its ledger."""
        return self.path / DATABASE

    @property
    def features(self) -> Path:
        """The feature store: the arrays that this run uses."""
        return self.path / "features"

    @property
    def model(self) -> Path:
        """What `predict` and `evaluate` load."""
        return self.path / "model"

    @classmethod
    def create(cls, path: Path, *, dry_run: bool = False) -> RunFolder:
        """A new folder for a run at `path`: none yet, empty, or of an interrupted start.

        With `dry_run` it is not made.

        Raises:
            RunError: if it is a run's, holds other files, or cannot be written.
        """
        if os.path.exists(path / DATABASE):
            raise RunError(
                f"the folder {path} holds a run already: give another --out, or go on with it by"
                f" `stacksl resume {path}`, where people answer by `stacksl answer {path} FILE...`,"
                " or where an object made in Python answers by"
                f" stacksl.Run.open({str(path)!r}).resume(labeler=...)"
            )
        if file := next(filter(os.path.isfile, (path, *path.parents)), None):
            raise RunError(f"a folder was expected at {file}, but it is a file: give another --out")
        try:
            names = {entry.name for entry in path.iterdir()} if path.exists() else set()
            if names and LOCK not in names:  # with it, a start interrupted before run.db
                raise RunError(f"the folder {path} is not empty and is no run: give another --out")
            if (path / "features" / ABOUT).exists() or any(
                name not in STARTED and not name.startswith((DRAFT, DATABASE)) for name in names
            ):
                raise RunError(
                    f"the folder {path} holds another run without its {DATABASE}, or one of an"
                    " older version of stacksl: give another --out, or restore the file from a copy"
                )
            if dry_run:
                return cls(path)
            make_private(path)
            (path / LOCK).touch(mode=0o600)
            for folder in (path / "features", path / "model"):
                make_private(folder)
        except OSError as fault:
            raise RunError(
                f"cannot write the run's folder {path}: {fault.strerror}; give another --out"
            ) from fault
        return cls(path)

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """The folder of an existing run, whose database is not read.

        Raises:
            RunError: there is no run at `path`.
        """
        if not os.path.exists(path):
            raise RunError(f"there is no run at {path}: `stacksl ls` lists the runs there are")
        if not (path / DATABASE).is_file():
            if (path / f"{DATABASE}.new").is_file():  # the draft of a run that was being made
                raise RunError(
                    f"the run in {path} was stopped before it began, and nothing was bought: give"
                    " the same `stacksl run` command again"
                )
            raise RunError(
                f"{path} is not a run's folder (it has no {DATABASE}): name one of those that"
                " `stacksl ls` lists, or restore the file from a copy"
            )
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an existing run, with its settings and classes compared with their digest.

        Raises:
            RunError: there is no run at `path`.
            LedgerError: another version of the package made it, or it cannot be read.
            LedgerCorrupt: its settings or classes were edited.
        """
        folder = cls.at(path)
        with opened(folder.database, readonly=True) as store:
            expect_digest(store)
        return folder

    def erasing(self) -> bool:
        """Whether copies or bytes of an erased item may be left."""
        with opened(self.database, readonly=True) as store:
            return bool(store.select(ERASING, ("item",)))

    @contextmanager
    def locked(
        self, *, erasing: bool = False, page: str = "", inside: bool = False
    ) -> Iterator[None]:
        """Lock the run for this process; the kernel releases the lock when the process dies.

        Waits at most `WAIT` seconds for another process, but not for a page, which stays open. At
        the start and at the end all files of the folder are made readable by their owner alone.
        With `erasing` copies of an erased item may be left. The `page` is the address of the page
        for annotators that the caller serves. With `inside` operations that lock the run, of the
        same caller, use this lock.

        Raises:
            RunLocked: another process has the lock; the message names it, or its page.
            RunError: copies of an erased item are left; not with `erasing`.
        """
        if self.path.resolve() in HELD.get():
            yield
            return
        try:
            file = (self.path / LOCK).open("a+")
        except OSError as fault:
            raise RunError(f"cannot lock the run {self.path}: {fault.strerror}") from fault
        with file:
            self._acquire(file)
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n{page}")
            file.flush()
            if not erasing and self.database.is_file() and self.erasing():
                raise RunError(
                    f"the erasing of an item of the run {self.path} was interrupted: any command on"
                    f" the run finishes it, such as `stacksl status {self.path}`"
                )
            for draft in list(self.path.rglob(f"{DRAFT}*")):  # of a process that was killed
                if draft.is_dir():  # an adapter's folder is drafted as a whole
                    shutil.rmtree(draft, ignore_errors=True)
                else:
                    draft.unlink(missing_ok=True)
            keep_private(self.path)  # of a run killed while it wrote
            before = HELD.set(HELD.get() | ({self.path.resolve()} if inside else set()))
            try:
                yield
            finally:
                HELD.reset(before)
                keep_private(self.path)  # libraries write a model's files as the umask lets them

    def _acquire(self, file: IO[str]) -> None:
        """Take the lock, after at most `WAIT` seconds of trying."""
        deadline = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder, _, page = file.read().strip().partition("\n")
                if page:
                    raise RunLocked(
                        f"the run {self.path} is open on its page at {page}: do this on the owner's"
                        " page, or stop the page first (Ctrl-C where it was started)"
                    ) from None
                if time.monotonic() < deadline:
                    time.sleep(POLL)
                    continue
                raise RunLocked(
                    f"the run {self.path} is held by {holder or 'another process'}: wait for it, or"
                    " stop it first"
                ) from None
            return

    def page(self) -> str:
        """The address of the page for annotators that holds the run now; empty if none does."""
        return (self.path / LOCK).read_text().partition("\n")[2] if self.held() else ""

    def held(self) -> bool:
        """Whether some process holds the run right now."""
        try:
            with (self.path / LOCK).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def write_state(self, state: State, **facts: Any) -> None:
        """Record the run's `state` with what else there is to say of it."""
        with opened(self.database) as store, store.writing():
            write_state(store, state, facts)
            store.commit()

    def read_state(self) -> dict[str, Any]:
        """The recorded state; a `running` run that nobody holds is `interrupted`.

        Raises:
            LedgerError: the database cannot be read.
        """
        with opened(self.database, readonly=True) as store:
            record = read_state(store)
        if record["state"] == "running" and not self.held():
            record["state"] = "interrupted"
        return record

    def settings(self) -> dict[str, Setting]:
        """What the run is made with, by name: settings with their origin, and other facts.

        Raises:
            LedgerError: the database cannot be read.
        """
        with opened(self.database, readonly=True) as store:
            return read_settings(store)

    def resolved(self) -> dict[str, Any]:
        """The values of `settings`."""
        return {name: setting.value for name, setting in self.settings().items()}

    def config(self) -> dict[str, Any]:
        """What `stacksl run --config` needs to play the run again: all that somebody chose."""
        settings = self.settings()
        always = {"data", "test", "preset"} | (set() if "lm.model" in settings else {"features"})
        return {k: s.value for k, s in settings.items() if k in always or s.origin in CHOSEN}

    def classes(self) -> Classes | None:
        """The classes that were given to the run, then those added since; None without any."""
        with opened(self.database, readonly=True) as store:
            stored = read_classes(store)
        if stored is None:
            return None
        names, descriptions, examples = stored
        return Classes(tuple(names), tuple(descriptions), tuple(map(tuple, examples)))

    def has_results(self) -> bool:
        """Whether report facts and a model are there; deleted ones are made again by a resume."""
        models = (self.model / name for name in ("model.json", "lm.json"))
        return (self.path / FACTS).is_file() and any(path.is_file() for path in models)


def class_setting(classes: Classes) -> Setting:
    """Classes as the database holds them."""
    return Setting([classes.names, classes.descriptions, classes.examples])


def free_folder(root: Path, day: str, name: str, *, claim: bool = False) -> Path:
    """The first free folder `root/DAY-NAME`, with a number appended where that is taken.

    With `claim` it is made, so that no other process can be given it. One that cannot be made is
    given back as it is: `RunFolder.create` says why.
    """
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "run"
    folder, number = root / f"{day}-{plain}", 1
    while True:
        if claim:
            with suppress(OSError):  # such as that another process was faster
                folder.mkdir(mode=0o700, parents=True)
                return folder
        if not folder.exists():
            return folder
        number += 1
        folder = root / f"{day}-{plain}-{number}"


def shown_facts(folder: RunFolder) -> Facts | None:
    """The facts written when the run last finished; None before."""
    return read_facts(folder) if (folder.path / FACTS).is_file() else None


def read_facts(folder: RunFolder) -> Facts:
    """The facts that the run's report was made from.

    Raises:
        RunError: they cannot be read.
    """
    try:
        return Facts.from_json((folder.path / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise RunError(
            f"{FACTS} of the run {folder.path} cannot be read ({fault}): restore it from a copy, or"
            f" delete it and `stacksl resume {folder.path}`"
        ) from fault


def anchors(folder: RunFolder) -> dict[str, Head]:
    """Every head of the ledger that the run's folder has in a file, by the file's name.

    Files that are missing or have no head are left out.
    """
    heads: dict[str, Head] = {}
    for name in RECORDS:
        with suppress(OSError):
            if match := HEAD.search((folder.path / name).read_bytes()):
                heads[name] = Head(int(match[1]), match[2].decode())
    return heads


def sealed(folder: RunFolder, ledger: LedgerReader) -> frozenset[str]:
    """The items of an audit that was not judged yet: those reserved since the run last finished.

    No output has their answers before the run has finished: who takes part in a second look is not
    to know them, so they stay sealed when a report has their agreement.
    """
    last_shown, facts = anchors(folder).get(FACTS, Head(0, "")), shown_facts(folder)
    rows = ledger.rows(after=ledger.place(last_shown) or 0, only=("reserved",))
    looked_at = facts.audit.n if facts and facts.audit and facts.audit.waits else 0
    audit = ledger.bought("audit")
    reserved_since = (str(row.item) for row in rows if row.purpose == "audit")
    return frozenset((*reserved_since, *audit[len(audit) - looked_at :]))


# Files that are made from a run ------------------------------------------------------------------
#
# They are known by their digests in `derived` rows of its chain; the newest row of a name counts. A
# file is written before its row: a run that was cut off between the two has not ended, and a resume
# makes the file again. The weights of an adapter are compared with the digests in its `lm.json`
# where they are loaded, and by `ledger verify`.


def note_derived(folder: RunFolder, ledger: Ledger, *names: str) -> None:
    """Record in the `ledger` that files of these names were made."""
    ledger.note_derived(dict(digests(folder, names)))


def expect_derived(folder: RunFolder, *names: str) -> None:
    """Compare files of these names with their rows; a missing one is as good.

    Raises:
        RunError: naming the first that is not the one which was made last.
    """
    with opened(folder.database, readonly=True) as store:
        changed = other_derived(store, dict(digests(folder, names)))
    for name in changed:
        raise RunError(
            f"{folder.path / name} is not the one that the ledger of this run records: it was"
            f" edited, is of another run, or was not written to its end; {_remedy(folder, name)}"
        )


def expect_all_derived(folder: RunFolder) -> None:
    """Compare all derived files with their rows; of a run that is cut off the feature map alone."""
    ended = folder.read_state()["state"] in ("finished", "waiting")
    expect_derived(folder, MAP, *((MODEL, *RECORDS) if ended else ()))
    if ended and (folder.model / ADAPTED).is_file():
        from stacksl.lm.export.folder import expect_whole

        expect_whole(folder.model)


def _remedy(folder: RunFolder, name: str) -> str:
    if name == MAP:
        return "restore it from a copy"
    if name in (MODEL, FACTS):
        return f"delete it, and `stacksl resume {folder.path}` makes it again"
    return f"`stacksl report {folder.path}` writes it again"


def digests(folder: RunFolder, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and SHA-256 of each of these files that is there; of a folder that of its files."""
    for name in names:
        path = folder.path / name
        if path.is_file():
            yield name, _digest(path)
            continue
        # of an adapted model one file has the digests of the others
        files = [path / ADAPTED] if (path / ADAPTED).is_file() else sorted(path.glob("[!.]*"))
        if lines := [f"{_digest(file)} {file.name}" for file in files if file.is_file()]:
            yield name, sha256("\n".join(lines).encode()).hexdigest()


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
