"""How many purchases of a run may be open at a time, and how many annotators answer each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stacksl.ledger.queries import LedgerReader
from stacksl.types import Decision


@dataclass(frozen=True, slots=True)
class Batches:
    """Limits of the open purchases.

    Attributes:
        size: how many, in all.
        measuring: how many of them belong to the audit, as long as it has any.
        overlap: how many of the first items bought are answered by two annotators.
    """

    size: int = 25
    measuring: int = 0
    overlap: int = 0

    def room(self, ledger: LedgerReader) -> int:
        """How many training labels can be bought now, up to `size` open purchases.

        The places of the audit follow the number of all answers, whatever these were for: what
        an answer was for would show in whether it makes room for a purchase.
        """
        leases = ledger.open_purchases()
        measuring = sum(lease.purpose == "audit" for lease in leases)
        if not self.measuring or not measuring:
            return self.size - (len(leases) - measuring)
        rows = ledger.accounts.spent - len(leases) + self.size  # that were or will be out
        places = -(-rows * self.measuring // self.size)
        return (
            rows
            - min(places, ledger.accounts.spent - ledger.accounts.asked)
            - ledger.accounts.asked
        )

    def picks(self, ledger: LedgerReader) -> int:
        """How many items can be bought now: one for two annotators is two purchases."""
        room, doubles = self.room(ledger), self._doubles(ledger)
        return room - doubles if room >= 2 * doubles else -(-room // 2)

    def slots(
        self, decisions: Sequence[Decision], ledger: LedgerReader, train: int
    ) -> dict[str, int]:
        """The items among `decisions` that two annotators answer, each with 2.

        A second label is one of the `train` labels that train: what an audit gave back, and what is
        kept for its second look, buys none.
        """
        if not self.overlap:
            return {}
        wanted = [decision.item for decision in decisions if decision.status == "wanted"]
        free = max(0, train - ledger.accounts.asked - len(wanted))
        return dict.fromkeys(wanted[: min(free, self._doubles(ledger))], 2)

    def _doubles(self, ledger: LedgerReader) -> int:
        return max(0, self.overlap - ledger.accounts.doubled)
