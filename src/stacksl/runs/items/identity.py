"""The items of a run are those that its ledger knows: held against it once, then by one digest.

The ledger has a salted hash of each item, and comparing them one by one takes a query and two
hashes an item. So the digest of all items is kept in the run's folder beside the ledger it was held
against, and while both are the same, nothing has to be compared. Where anything differs, the items
are compared one by one, which names the first that differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from itertools import islice

from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord
from stacksl.runs.spec import RunSpec, content
from stacksl.runs.storage.folder import RunFolder

FILE_LABELERS = ("oracle", "noisy")  # those whose answers are the data file's own
KEPT = "items.json"
_AT_ONCE = 4096


def records_of(spec: RunSpec) -> list[ItemRecord]:
    """The items of a run as the ledger knows them, with the answers where those are the file's."""
    return [
        ItemRecord(item.id, content(item, answer), len(item.candidates))
        for item, answer in spec.stock.as_begun(_answers(spec))
    ]


def _answers(spec: RunSpec) -> Mapping[str, int]:
    own = spec.settings.labeler.partition(":")[0] in FILE_LABELERS
    return spec.dataset.answers if own else {}


def expect_same_items(spec: RunSpec, ledger: Ledger) -> None:
    """Hold the items of a run against those of its ledger.

    Raises:
        LedgerError: items differ, are gone or are new.
    """
    kept = _kept(spec.folder)
    if kept is not None and kept == _seal(spec, ledger, kept["salt"]):
        return
    ledger.check_items(records_of(spec))
    seal(spec, ledger)


def seal(spec: RunSpec, ledger: Ledger) -> None:
    """Keep the digest of the items, which are those of the ledger."""
    sealed = _seal(spec, ledger, os.urandom(16).hex())
    write_atomic(spec.folder.path / KEPT, json.dumps(sealed))


def unseal(folder: RunFolder) -> None:
    """Drop the digest, which would tell of an item that is to be forgotten."""
    (folder.path / KEPT).unlink(missing_ok=True)


def _kept(folder: RunFolder) -> dict[str, str] | None:
    """The digest in the run's folder; None where there is none that can be read."""
    try:
        kept = json.loads((folder.path / KEPT).read_bytes())
        return kept if bytes.fromhex(kept["salt"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _seal(spec: RunSpec, ledger: Ledger, salt: str) -> dict[str, str]:
    """What is kept: a salt, the ledger's first hash, and the digest of all items with the salt."""
    whole = blake2b(key=bytes.fromhex(salt)[:64], digest_size=32)
    classes = spec.stock.began or spec.dataset.classes  # once, where all items share them
    told = (
        repr((item.id, item.prompt, item.candidates != classes and item.candidates, answer))
        for item, answer in spec.stock.as_begun(_answers(spec))
    )
    whole.update(repr(classes).encode())
    while part := list(islice(told, _AT_ONCE)):
        whole.update("\n".join(part).encode())
    return {"salt": salt, "ledger": ledger.genesis, "digest": whole.hexdigest()}
