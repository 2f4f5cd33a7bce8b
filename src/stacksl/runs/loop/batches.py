"""How many labels a run may wait for at a time, and how many annotators get each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stacksl.ledger.queries import LedgerReader
from stacksl.types import Decision


@dataclass(frozen=True, slots=True)
class Batches:
    """The purchases that are open at a time.

    Attributes:
        size: how many, in all.
        audit_share: how many of them are the audit's while it is open.
        overlap: the first so many items bought go to two annotators each.
    """

    size: int = 25
    audit_share: int = 0
    overlap: int = 0

    def room(self, ledger: LedgerReader) -> int:
        """How many training labels can be asked for now, so that `size` purchases are open."""
        leases = ledger.open_purchases()
        audit = sum(lease.purpose == "audit" for lease in leases)
        return self.size - (len(leases) - audit) - min(audit, self.audit_share)

    def picks(self, ledger: LedgerReader) -> int:
        """How many items fill the room: one that goes to two annotators is two purchases."""
        room, doubles = self.room(ledger), self._doubles(ledger)
        return room - doubles if room >= 2 * doubles else -(-room // 2)

    def slots(self, decisions: Sequence[Decision], ledger: LedgerReader) -> dict[str, int]:
        """The items among `decisions` that two annotators are to answer, with their labels: 2."""
        if not self.overlap:
            return {}
        wanted = [decision.item for decision in decisions if decision.status == "wanted"]
        return dict.fromkeys(wanted[: self._doubles(ledger)], 2)

    def _doubles(self, ledger: LedgerReader) -> int:
        return max(0, self.overlap - ledger.doubled)
