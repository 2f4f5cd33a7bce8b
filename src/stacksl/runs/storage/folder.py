"""A run's folder: its files, its state, its lock. Everything is written atomically.

The files of a run hold texts of its data, so only their owner may read them (`files/atomic.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from stacksl.errors import RunError, RunLocked
from stacksl.files import formats
from stacksl.files.atomic import DRAFT, keep_private, make_private, write_atomic
from stacksl.report.facts import Facts

LOCK = ".lock"
WAIT: ContextVar[float] = ContextVar("WAIT", default=30.0)  # seconds for the lock of a run
HELD: ContextVar[frozenset[Path]] = ContextVar("HELD", default=frozenset())  # by callers
POLL = 0.05  # seconds between two tries
STATE = "state.json"
FACTS = "facts.json"
FORGETTING = "forgetting.json"  # while an item is being forgotten
OWN = "data.jsonl"  # the run's own copy of items that are from no file
RESOLVED = "resolved.toml"
BY_HAND = "run.toml"  # may be edited by hand, so it has no digest
TIMES = "%Y-%m-%d %H:%M:%S UTC"  # how times are shown

State = Literal["running", "waiting", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, by its `path`."""

    path: Path

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.path / "ledger.db"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def features(self) -> Path:
        """The feature store: the arrays that this run uses."""
        return self.path / "features"

    @property
    def adapters(self) -> Path:
        """The folder of adapters, one for each refit of a language model."""
        return self.path / "adapters"

    @property
    def model(self) -> Path:
        """What `predict` and `evaluate` load."""
        return self.path / "model"

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new folder at `path`, which must not exist, be empty, or hold an interrupted start.

        Raises:
            RunError: if it is another run's, holds other files, or cannot be written.
        """
        if (path / "run.toml").exists():
            raise RunError(
                f"the folder {path} holds another run: give another --out,"
                f" or `stacksl resume {path}`"
            )
        if path.is_file():
            raise RunError(f"a folder was expected at {path}, but it is a file: give another --out")
        try:
            names = {each.name for each in path.iterdir()} if path.exists() else set()
            if names and LOCK not in names:  # with it, a start interrupted before run.toml
                raise RunError(f"the folder {path} is not empty and is no run: give another --out")
            make_private(path)
            (path / LOCK).touch(mode=0o600)
            for folder in (path / "checkpoints", path / "features", path / "model"):
                make_private(folder)
        except OSError as fault:
            raise RunError(
                f"cannot write the run's folder {path}: {fault.strerror}; give another --out"
            ) from fault
        return cls(path)

    @classmethod
    def open(cls, path: Path, *, forgetting: bool = False) -> RunFolder:
        """The folder of an existing run.

        Raises:
            RunError: there is no run at `path`, another version of the package made it, or an
                item of it is partly forgotten and the caller is not `forgetting`.
        """
        if not path.exists():
            raise RunError(f"there is no run at {path}: `stacksl ls` lists the runs there are")
        if not (path / "run.toml").is_file():
            raise RunError(f"{path} is not a run's folder (it has no run.toml)")
        opened = cls(path)
        if not forgetting:
            opened.expect_whole()
        if (path / RESOLVED).is_file():
            opened.read_toml(RESOLVED)
        return opened

    def expect_whole(self) -> None:
        """Check that no item of the run is partly forgotten.

        Raises:
            RunError: one is, with the command that finishes it.
        """
        if (self.path / FORGETTING).exists():
            raise RunError(
                f"forgetting an item of the run {self.path} was interrupted: finish it with"
                f" `stacksl forget {self.path}`"
            )

    @contextmanager
    def locked(self, *, forgetting: bool = False, page: str = "") -> Iterator[None]:
        """Lock the run for this process; the kernel releases the lock when the process dies.

        Waits at most `WAIT` seconds for another process, but not for a page, which stays open. At
        the start and at the end all files of the folder are made readable by their owner alone.
        Nothing is done inside `as_held`.

        Args:
            forgetting: whether an item of the run may be partly forgotten.
            page: the address of the page for annotators that the caller serves.

        Raises:
            RunLocked: another process has the lock; the message names it, or its page.
            RunError: see `expect_whole`; not with `forgetting`.
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
            if not forgetting:
                self.expect_whole()
            self._sweep()
            keep_private(self.path)  # of a run killed while it wrote
            try:
                yield
            finally:
                keep_private(self.path)  # libraries write a model's files as the umask lets them

    @contextmanager
    def as_held(self) -> Iterator[None]:
        """Let operations that lock the run use the lock that the caller holds."""
        before = HELD.set(HELD.get() | {self.path.resolve()})
        try:
            yield
        finally:
            HELD.reset(before)

    def _acquire(self, file: IO[str]) -> None:
        """Take the lock, after at most `WAIT` seconds of trying."""
        last = time.monotonic() + WAIT.get()
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
                if time.monotonic() < last:
                    time.sleep(POLL)
                    continue
                raise RunLocked(
                    f"the run {self.path} is held by {holder or 'another process'}: wait for it, or"
                    " stop it first"
                ) from None
            return

    def _sweep(self) -> None:
        """Delete partly written files of a killed process."""
        for draft in list(self.path.rglob(f"{DRAFT}*")):
            if draft.is_dir():  # an adapter's folder is drafted as a whole
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)

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
        write_atomic(self.path / STATE, formats.to_json({"state": state, **facts}))

    def read_state(self) -> dict[str, Any]:
        """The recorded state; a `running` run that nobody holds is `interrupted`.

        Raises:
            RunError: the file is damaged.
        """
        try:
            record = formats.from_json((self.path / STATE).read_bytes())
        except FileNotFoundError:
            record = {"state": "running"}
        except (OSError, ValueError) as fault:
            raise RunError(
                f"{STATE} of the run {self.path} cannot be read ({fault}): restore it from a copy,"
                f" or delete it and `stacksl resume {self.path}`"
            ) from fault
        if record["state"] == "running" and not self.held():
            record["state"] = "interrupted"
        return record

    def has_results(self) -> bool:
        """Whether report facts and a model are there; deleted ones are made again by a resume."""
        models = (self.model / name for name in ("model.json", "lm.json"))
        return (self.path / FACTS).is_file() and any(path.is_file() for path in models)

    def write_toml(self, name: str, table: Mapping[str, Any], comment: str) -> None:
        """Write a `table` of numbers, texts and lists as TOML under a `comment`.

        It has a format number and a digest, unless it is the file that may be edited by hand.
        """
        if name != BY_HAND:
            plain = {key: _plain(value) for key, value in table.items()}
            table = formats.with_digest({formats.FORMAT: formats.RUN, **plain})
        lines = [f"# {comment}", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        write_atomic(self.path / name, "\n".join(lines) + "\n")

    def write_resolved(self, table: Mapping[str, Any]) -> None:
        """Write every setting of the run, with its data and versions."""
        self.write_toml(RESOLVED, table, "everything this run was made with")

    def resolved(self) -> dict[str, Any]:
        """What `write_resolved` wrote; raises as `read_toml` does."""
        return self.read_toml(RESOLVED)

    def read_toml(self, name: str) -> dict[str, Any]:
        """A file that `write_toml` wrote.

        Raises:
            RunError: it is missing, no TOML, of another format, or was changed since.
        """
        import tomllib

        try:
            table = tomllib.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise RunError(
                f"cannot read {name} of the run {self.path} ({fault}): restore it from a copy"
            ) from fault
        if name == BY_HAND:
            return table
        try:
            return formats.of_format(table, f"{name} of the run {self.path}", formats.RUN)
        except ValueError as fault:
            raise RunError(
                f"{name} of the run {self.path} was edited or damaged ({fault}): restore it from a"
                f" copy; for other settings start a new run with --config and an edited {BY_HAND}"
            ) from fault


def _plain(value: Any) -> Any:
    """`value` as it is read again."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float) else str(value)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def new_folder_name(root: Path, day: str, name: str) -> Path:
    """The first free folder `root/DAY-NAME`, with a number appended where that is taken."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "run"
    candidate = root / f"{day}-{stem}"
    number = 2
    while candidate.exists():
        candidate = root / f"{day}-{stem}-{number}"
        number += 1
    return candidate


def claim_folder(root: Path, day: str, name: str) -> Path:
    """`new_folder_name`, made as an empty folder that no other process can be given.

    One that cannot be made is given back as it is: `RunFolder.create` says why.
    """
    taken: Path | None = None
    while (folder := new_folder_name(root, day, name)) != taken:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except FileExistsError:
            taken = folder  # by another process, just now; asked again it is another name
        except OSError:
            break
        else:
            break
    return folder


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
