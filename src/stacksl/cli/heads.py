"""The last head of each run that this user's commands saw, outside the folders of the runs.

A folder that was put back as it was before is whole in itself: only what is kept elsewhere tells
that rows are missing. This is done as well as it can be: a head that cannot be kept is no fault.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from stacksl.errors import StackslError
from stacksl.files.atomic import make_private, write_atomic
from stacksl.ledger.accounts import Terms
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.schema import EVENTS, TERMS
from stacksl.runs.storage.folder import RunFolder

_USED: set[Path] = set()


def keep_at_end(run: Path) -> None:
    """Keep the head that a run has when this command has ended; see `keep`."""
    _USED.add(run.resolve())


def keep() -> None:
    """Keep the heads of the runs that this command has used, as it leaves them."""
    while _USED:
        check_head(RunFolder(_USED.pop()))


def check_head(folder: RunFolder) -> str | None:
    """A sentence where the run has no longer the head that was seen last; else that is kept now."""
    with suppress(OSError, RuntimeError, ValueError, StackslError):
        with opened(folder.database, readonly=True) as store:
            run = f"{folder.path.resolve()}\n{Terms(*store.select(TERMS)[0]).genesis}"
            root = os.environ.get("XDG_STATE_HOME", "")
            state = Path(root) if os.path.isabs(root) else Path.home() / ".local" / "state"
            head_file = state / "stacksl" / "heads" / sha256(run.encode()).hexdigest()[:32]
            if head_file.is_file():
                rows, _, tip = head_file.read_text().strip().partition(":")
                if store.select(EVENTS, ("hash",), "WHERE seq = ?", int(rows)) != [(tip,)]:
                    return (
                        f"{folder.path} has not the row {int(rows):,} of its ledger that a command"
                        " last saw there, so it is an older copy or was rewritten: put the newer"
                        f" copy back, or delete {head_file} to go on with this one"
                    )
            tail = store.tail()
        if tail is not None:
            make_private(head_file.parent)
            write_atomic(head_file, f"{tail.count}:{tail.hash}\n")
    return None
