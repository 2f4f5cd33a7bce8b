"""Checkpoints: the learner's arrays with the ledger's head they belong to.

A checkpoint is two files, `NUMBER.safetensors` and, written last, `NUMBER.json` with the hash of
the first and its own digest. The newest whole one counts; a damaged one is passed over and named.
Facts, report and card name the ledger's head as well: a ledger that was cut, or rewritten with all
its hashes, differs from them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from stacksl.errors import RunError
from stacksl.files import arrays, formats
from stacksl.files.atomic import write_atomic
from stacksl.ledger.purchases import Head
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.storage.folder import RunFolder

KEPT = 3


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The learner's `arrays` after the ledger's first `count` rows, the last with hash `tip`."""

    count: int
    tip: str
    round: int
    arrays: Mapping[str, NDArray[Any]]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the ledger must be on disk up to its head already."""
    data = arrays.to_bytes(checkpoint.arrays)
    stem = f"{checkpoint.count:09d}"
    about = {
        formats.FORMAT: formats.CHECKPOINT,
        "count": checkpoint.count,
        "tip": checkpoint.tip,
        "round": checkpoint.round,
        "arrays": hashlib.sha256(data).hexdigest(),
    }
    write_atomic(folder / f"{stem}.safetensors", data)
    write_atomic(folder / f"{stem}.json", formats.to_json(about))
    kept = {path.stem for path in sorted(folder.glob("*.json"))[-KEPT:]}
    for path in sorted(folder.iterdir()):  # a .json goes before its arrays: none is left alone
        if path.stem not in kept:
            path.unlink()


def latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, if any, and a sentence for each damaged one passed over."""
    warnings: list[str] = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            return _read(path), warnings
        except (OSError, ValueError) as fault:
            warnings.append(
                f"the checkpoint {path.stem} is damaged ({fault}) and was passed over:"
                " the run is rebuilt from the one before and the ledger"
            )
    return None, warnings


def heads(folder: Path) -> list[tuple[int, str]]:
    """The ledger heads (count, hash) that the readable checkpoints name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError):
            about = _about(path)
            found.append((int(about["count"]), str(about["tip"])))
    return found


def at(folder: Path, count: int) -> Checkpoint | None:
    """The checkpoint after the ledger's first `count` rows; None where there is none.

    Raises:
        RunError: it is damaged.
    """
    path = folder / f"{count:09d}.json"
    if not path.is_file():
        return None
    try:
        return _read(path)
    except (OSError, ValueError) as fault:
        raise RunError(
            f"the checkpoint {path} is damaged ({fault}): restore the folder {folder} from a copy"
        ) from fault


def keep_latest(folder: Path) -> None:
    """Drop all checkpoints but the newest whole one: two of them reveal what was learnt between."""
    whole, _ = latest(folder)
    if whole is None:
        return
    for path in sorted(folder.iterdir()):
        if path.stem != f"{whole.count:09d}":
            path.unlink()


def _about(path: Path) -> dict[str, Any]:
    about = formats.from_json(path.read_bytes())
    formats.expect_format(f"the checkpoint {path}", about.get(formats.FORMAT), formats.CHECKPOINT)
    return about


def _read(path: Path) -> Checkpoint:
    about = _about(path)
    data = path.with_suffix(".safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != about["arrays"]:
        raise ValueError("its arrays do not match their SHA-256")
    found = arrays.from_bytes(data)
    return Checkpoint(int(about["count"]), about["tip"], int(about["round"]), found)


RECORDS: Final = (
    "facts.json", "report.html", "README.md", "no-text/report.html", "no-text/README.md",
)  # fmt: skip
_NAMED: Final = re.compile(rb"(\d{1,18}) rows, last ([0-9a-f]{64})")


def naming(head: Head) -> str:
    """A head in the form of facts, report and card."""
    return f"{head.count} rows, last {head.hash}"


def anchors(folder: RunFolder) -> dict[str, Head]:
    """Every head that the run's folder has outside the ledger, by the name of its file.

    Files that are missing or have no head are left out.
    """
    found = {
        f"the checkpoint {count:09d}": Head(count, tip) for count, tip in heads(folder.checkpoints)
    }
    for name in RECORDS:
        with suppress(OSError):
            if said := _NAMED.search((folder.path / name).read_bytes()):
                found[name] = Head(int(said[1]), said[2].decode())
    return found


def sealed(folder: RunFolder, ledger: LedgerReader) -> frozenset[str]:
    """The items of an audit that no report has shown: those reserved since the run last finished.

    No output has their answers before the run has finished.
    """
    shown = anchors(folder).get("facts.json", Head(0, "")).count
    rows = ledger.rows(after=shown)
    return frozenset(
        str(row.item) for row in rows if row.event == "reserved" and row.purpose == "audit"
    )
