"""Check that the items of a run are those of its ledger.

The ledger has a salted hash of each item; comparing all of them takes a query and two hashes an
item. A digest of all items, with the ledger it was compared with, is therefore kept in the run's
folder, and the items are compared one by one only where the digest differs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import islice

from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord
from stacksl.runs.spec import RunSpec, content
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item

FILE_LABELERS = ("oracle", "noisy")  # their answers are those of the data file
KEPT = "items.json"
_AT_ONCE = 4096


def records_of(spec: RunSpec) -> list[ItemRecord]:
    """The items as the ledger records them, with the answers of labelers that read the file."""
    return [
        ItemRecord(item.id, content(item, answer), len(item.candidates))
        for item, answer in _recorded(spec)
    ]


def _recorded(spec: RunSpec) -> Iterator[tuple[Item, int | None]]:
    """Each item and its answer; an answer of a bank, which many share, by its hash."""
    short: dict[str, str] = {}
    bank = spec.settings.bank
    by_file = spec.settings.labeler.partition(":")[0] in FILE_LABELERS
    for item, answer in spec.sources.as_begun(spec.dataset.answers if by_file else {}):
        if bank is None:
            yield item, answer
            continue
        for text in item.candidates:
            if text not in short:
                encoded = text.encode("utf-8", "surrogatepass")
                short[text] = blake2b(encoded, digest_size=16).hexdigest()
        yield replace(item, candidates=tuple(short[text] for text in item.candidates)), answer


def expect_same_items(spec: RunSpec, ledger: Ledger) -> None:
    """Compare the items of a run with those of its ledger.

    Raises:
        LedgerError: items differ, are missing or are new.
    """
    kept = _kept(spec.folder)
    if kept is not None and kept == _seal(spec, ledger, kept["salt"]):
        return
    ledger.check_items(records_of(spec))
    seal(spec, ledger)


def seal(spec: RunSpec, ledger: Ledger) -> None:
    """Write the digest of the items, which were compared with the ledger."""
    sealed = _seal(spec, ledger, os.urandom(16).hex())
    write_atomic(spec.folder.path / KEPT, json.dumps(sealed))


def unseal(folder: RunFolder) -> None:
    """Delete the digest, which depends on an item that is to be forgotten."""
    (folder.path / KEPT).unlink(missing_ok=True)


def _kept(folder: RunFolder) -> dict[str, str] | None:
    """The digest in the run's folder; None where it is missing or unreadable."""
    try:
        kept = json.loads((folder.path / KEPT).read_bytes())
        return kept if bytes.fromhex(kept["salt"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _seal(spec: RunSpec, ledger: Ledger, salt: str) -> dict[str, str]:
    """A salt, the ledger's first hash, and the salted digest of all items."""
    whole = blake2b(key=bytes.fromhex(salt)[:64], digest_size=32)
    classes = spec.sources.began or spec.dataset.classes  # once, where all items share them
    lines = (
        repr((item.id, item.prompt, item.candidates != classes and item.candidates, answer))
        for item, answer in _recorded(spec)
    )
    whole.update(repr(classes).encode())
    while part := list(islice(lines, _AT_ONCE)):
        whole.update("\n".join(part).encode())
    return {"salt": salt, "ledger": ledger.genesis, "digest": whole.hexdigest()}
