"""Files that are made from a run, known by their digests in `derived` rows of its chain.

The newest row of a name counts. A file is written before its row: a run that was cut off between
the two has not ended, and a resume makes the file again. The weights of an adapter are compared
with the digests in its `lm.json` where they are loaded, and by `ledger verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.settings import other_derived
from stacksl.runs.storage.folder import FACTS, NO_TEXT, RECORDS, RunFolder

MAP: Final = "features/map.safetensors"  # fitted on the texts of all items
MODEL: Final = "model"
ADAPTED: Final = "lm.json"  # in the folder of an adapted model
DERIVED: Final = (MODEL, FACTS, "report.html", "README.md", NO_TEXT)
"""What a finished run has apart from its database, made again by a resume when it is deleted."""


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
    option = " --no-text" if name.startswith(NO_TEXT) else ""
    return f"`stacksl report {folder.path}{option}` writes it again"


def digests(folder: RunFolder, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and SHA-256 of each of these files that is there; of a folder that of its files."""
    for name in names:
        place = folder.path / name
        if place.is_file():
            yield name, _digest(place)
            continue
        # of an adapted model one file has the digests of the others
        files = [place / ADAPTED] if (place / ADAPTED).is_file() else sorted(place.glob("[!.]*"))
        if listed := [f"{_digest(file)} {file.name}" for file in files if file.is_file()]:
            yield name, sha256("\n".join(listed).encode()).hexdigest()


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
