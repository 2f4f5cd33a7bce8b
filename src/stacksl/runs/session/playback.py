"""Playing a run again from its record: the loop decides and refits, the ledger gives the answers.

What a run decides or computes (`round`, `refit`, `refreshed`) is made again by the functions that
made it, and the ledger compares the rows. All else is taken from the rows as it is:
answers, owned and corrected labels, changes of the budget and of the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stacksl.errors import RunError
from stacksl.labelers.protocol import Request
from stacksl.ledger.events import NOTES, Row
from stacksl.ledger.purchases import Answer, Receipt
from stacksl.runs.loop.choosers import Pool, Stream
from stacksl.runs.loop.game import ATTENDED, BEGINS, UNUSED, Game, play
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.types import Decision

_COMPUTED = ("refit", "refreshed")
_TERMS = ("budget", "class_added")
# Rows that may stand between a refit during which answers are entered and the purchase it is for.
_MEANWHILE = ("answered", "learned", "relabeled", "late", "released", "reserved", *NOTES)


@dataclass(slots=True, eq=False, kw_only=True)
class Playback(Game):
    """A game whose batches, answers and refits are those that its ledger recorded."""

    chooser: Stream | Pool
    _decisions: dict[str, Decision] = field(default_factory=dict)  # of each item asked or owned
    _slots: dict[str, int] = field(default_factory=dict)  # of the items in the next batch
    _withdrawn: set[str] = field(default_factory=set)  # items whose labels were learned and erased

    def remember(self) -> None:
        """Note the labels that were learned before the row at which the ledger stands."""
        for row in self.ledger.rows():
            if row.event == "round":
                decision = row.decision()
                if decision.asked:
                    self._decisions[decision.item] = decision
                self.examples.note(decision)
            elif row.event == "learned" and row.erased:
                self._withdrawn.add(str(row.item))
            elif row.event == "learned":
                decision = self._decisions[str(row.item)]
                self.examples.record(decision, row.label(), self.examples.inputs(decision.item))
            elif row.event == "relabeled" and not row.erased:
                self.examples.relabel(str(row.item), row.payload.get("index"))
            else:
                self._note(row)
            if row.event not in _MEANWHILE:
                self.skips_refit = row.event in _COMPUTED and bool(row.payload.get(ATTENDED))

    def play(self) -> None:
        """Play what the ledger recorded after that row.

        Raises:
            RunError: a decision or a refit comes out otherwise.
        """
        while (start := self._next) is not None:
            self.learn(self.take_answers())
            while (row := self._next) is not None and row.event in _TERMS:
                self._note(self.ledger.take_recorded())
                self.skips_refit = False
            for _ in play(self, self):
                pass
            if self._next is not None and self._next.seq == start.seq:
                raise RunError(
                    f"row {start.seq} of the ledger records the event '{start.event}', but the"
                    " replay got none: the run was made by other versions or on another machine"
                    " (see `stacksl status RUN --settings`)"
                )

    @property
    def _next(self) -> Row | None:
        recorded = self.ledger.recorded
        return None if recorded is None else recorded.next

    def _note(self, row: Row) -> None:
        """Apply a change of the terms; note the decision under which an owned label is learned.

        The label of an item that was erased is withdrawn: refits learn the others.
        """
        if row.event == "budget":
            self.reschedule(row.payload)
        elif row.event == "class_added":
            linear_trainer(self).widen(int(row.payload["size"]))
        elif row.event == "answered" and row.purpose == "owned":
            self._decisions[str(row.item)] = row.decision()
        elif row.event == "forgotten" and str(row.item) in self._withdrawn:
            self.examples.relabeled += 1

    # The loop's questions to what is outside ---------------------------------------------------

    def requests(self) -> list[Request]:
        """None: nobody is asked twice."""
        return []

    def next(self, game: Game) -> list[Decision]:
        """The next decisions, made again where they can be, else as they were recorded."""
        recorded = self._batch()
        if not recorded:
            return []
        assert self.ledger.recorded is not None
        if self.ledger.recorded.comparable:
            return self.chooser.repeat(self, recorded)
        return [
            decision if decision.status == "skipped" else replace(decision, status="wanted")
            for decision in recorded
        ]

    def _batch(self) -> list[Decision]:
        """The recorded decisions that were posted together; one of a stream."""
        decisions: list[Decision] = []
        self._slots = {}
        recorded = self.ledger.recorded
        if recorded is None:
            return decisions
        for row in recorded.upcoming():
            if row.event == "round" and not (recorded.stream and decisions):
                decisions.append(row.decision())
            elif row.event == "reserved" and row.slot and row.purpose == "train" and decisions:
                self._slots[str(row.item)] = row.slot + 1
            elif row.event != "reserved" or not decisions:
                break
        return decisions

    def slots(self, batch: Sequence[Decision]) -> dict[str, int]:
        """How many labels were bought of items of the batch, where it was more than one."""
        return self._slots

    def take_answers(self) -> list[Receipt]:
        """What the loop did not make before the next decision, refit or change of the terms."""
        receipts: list[Receipt] = []
        while (row := self._next) is not None and row.event not in ("round", *_COMPUTED, *_TERMS):
            self._note(self.ledger.take_recorded())
            if row.event not in _MEANWHILE:
                self.skips_refit = False
            if row.event in ("learned", "relabeled") and not row.erased:
                item, relabels = str(row.item), row.event == "relabeled"
                args = row.slot or 0, row.token or 1, row.payload.get("index"), str(row.labeler)
                example = None if relabels else (self._decisions[item], row.label())
                receipts.append(Receipt(Answer(item, *args), "accepted", example, relabels))
        return receipts

    def adopt(self, posted: Sequence[Decision]) -> None:
        """Give the learner the decisions, and note them for the labels that follow."""
        Game.adopt(self, posted)
        self._decisions |= {decision.item: decision for decision in posted if decision.asked}
        self.skips_refit = False

    def refit_if_due(self) -> None:
        """Make the refits that the ledger recorded here."""
        while (row := self._next) is not None and row.event in _COMPUTED:
            if row.payload.get(UNUSED):
                self.ledger.take_recorded()
            else:
                self.trainer.attended = bool(row.payload.get(ATTENDED)) or BEGINS in row.payload
                self.trainer.repeat(row)
            self.skips_refit = bool(row.payload.get(ATTENDED))
        self.trainer.attended = False
