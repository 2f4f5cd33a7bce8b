"""The ledger: the single source of truth for what was asked, answered and learned.

`queries` reads it, `journal` gets rows to disk, and here are the rules of buying: from a wanted
label to a lease, and from an answer to a learned label. See `docs/ledger.md` for the events, the
rules and what `verify` can find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from stacksl.errors import LabelerError, LedgerError
from stacksl.ledger.accounts import DROPPED, Key, State
from stacksl.ledger.events import STORED, Row, decision_payload, erased_name, owned_decision
from stacksl.ledger.journal import Journal
from stacksl.ledger.purchases import (
    Answer,
    AnswerKind,
    Handed,
    Outcome,
    Purchase,
    Purpose,
    Receipt,
    whole_answer,
)
from stacksl.ledger.store.rows import erase_item
from stacksl.ledger.store.stored import erase_requests
from stacksl.types import Decision, Label


class Ledger(Journal):
    """An append-only journal of decisions, purchases and labels, which never exceeds its budget.

    Purchases are reserved on disk before `post` returns and answers are on disk before `take`
    returns. Two things may stay in memory until the next commit, because losing them loses nothing:
    decisions of rounds that bought nothing, and (`durable=False`) answers of labelers that
    give the same answer again for free.
    """

    # From a wanted label to a lease ------------------------------------------------------------

    def post(
        self, decisions: Sequence[Decision], slots: Mapping[str, int] | None = None
    ) -> list[Decision]:
        """Write decision records and reserve the labels that are wanted.

        `wanted` becomes `reserved`, or `refused` when the budget is spent. The reservations are
        checked against the budget and on disk in one transaction before this returns.

        Args:
            decisions: in order, as returned by `decide`.
            slots: item id to how many labels of it are bought, 1 where it is not named. Those
                beyond the first are reserved after all firsts, as far as the budget goes; of all
                slots of an item only the first accepted label is learned.

        Raises:
            LedgerError: an unknown item, a round posted twice, an item bought before, or a
                database that cannot be written. Nothing has changed then.
        """
        reserves = any(decision.status == "wanted" for decision in decisions)
        with self.together() if reserves else self.later():
            self.items.know([decision.item for decision in decisions])
            posted = [self._post(decision) for decision in decisions]
            # After all firsts: no item goes without a label for another's second, and a replay,
            # which plays round by round, finds them where they were counted.
            for decision in posted:
                slot_counts = slots if slots and decision.status == "reserved" else {}
                for slot in range(1, slot_counts.get(decision.item, 1)):
                    if self.accounts.affords(self.accounts.price):
                        key = (self.items.surrogates[decision.item], slot)
                        self._reserve(key, int(decision.round))
        return posted

    def _post(self, decision: Decision) -> Decision:
        surrogate, round = self.items.surrogates[decision.item], int(decision.round)
        is_bought = decision.status == "wanted" and self.accounts.left > 0
        if decision.status == "wanted":
            decision = decision.reserved() if is_bought else decision.refused()
        self.record("round", decision_payload(decision), round=round, surrogate=surrogate)
        if is_bought:
            self._reserve((surrogate, 0), round)
        return decision

    def _reserve(
        self, key: Key, round: int | None, purpose: str = "train", *, again: bool = False
    ) -> None:
        """Record the next lease of a purchase, at the ledger's price; an owned label costs nothing.

        That of an item which is asked `again` says so.
        """
        state = self.accounts.purchases.get(key)
        self.record(
            "reserved",
            {"again": True} if again else "{}",
            round=round,
            surrogate=key[0],
            slot=key[1],
            token=1 if state is None else state.token + 1,
            purpose=purpose,
            price=0 if purpose == "owned" else self.accounts.price,
        )

    def reserve(
        self, items: Sequence[str], purpose: Purpose | Literal["further", "again"] = "audit"
    ) -> list[Purchase]:
        """Lease labels that no round asked for: of all items in one transaction, or of none.

        Args:
            items: the ids of the items.
            purpose: `audit` (no decision record, round 0, charged and never learned), or one more
                slot each of items that were bought before: `further` of an audit, `train` of
                others, `again` of both where there are more classes to answer with.

        Raises:
            LedgerError: they do not all fit the budget, an item is unknown, is bought already
                (audit) or was not bought before. Nothing was leased then.
        """
        with self.together():
            self.items.know(items)
            leased = []
            for item in items:
                surrogate = self.items.surrogates[item]
                slots = self.accounts.slots(surrogate)
                first_state, slot, round = slots[0][1] if slots else None, 0, None
                item_purpose = "audit" if first_state is None else first_state.purpose
                kind = {"train": "train", "again": item_purpose}.get(purpose, "audit")
                if purpose != "audit":
                    if first_state is None or first_state.purpose != kind:
                        raise LedgerError(
                            "a further slot belongs to an item that was bought before,"
                            f" '{item}' was not"
                        )
                    slot, round = len(slots), first_state.round
                asks_again = purpose == "again" or kind == "train"
                self._reserve((surrogate, slot), round, kind, again=asks_again)
                leased.append(self._purchase((surrogate, slot), item))
            return leased

    def lease(self, item: str, *, slot: int = 0) -> Purchase | None:
        """Lease a released purchase again, under a raised token; None if no budget is left."""
        with self.together():
            key = (self.items.surrogates[item], slot)
            state = self.accounts.purchases[key]
            if not self.accounts.affords(self.accounts.price):
                return None
            self._reserve(key, state.round, state.purpose)
            return self._purchase(key, item)

    def release(self, purchase: Purchase, reason: str, note: str | None = None) -> bool:
        """Release a lease and its reservation; False if it was no longer open.

        The reason is `expired`, `refused`, `dropped` or `skipped: ` with one of `Skip`; a `note` of
        who had it is kept as those of answers are.
        """
        with self.together():
            key = (self.items.surrogates[purchase.item], purchase.slot)
            state = self.accounts.purchases[key]
            if state.stage != "open" or state.token != purchase.token:
                return False
            payload = {"reason": reason}
            if note is not None:
                payload["words"] = self.private.note_texts(key[0], None, note)
            self._record_of(key, state, "released", payload)
            return True

    def free(self, leases: Sequence[Purchase], dropped: Collection[Purchase] = ()) -> None:
        """Release `leases`, and lease all but those `dropped` again, in one transaction.

        An answer to a dropped one comes too late: it is kept, and not paid.
        """
        with self.together():
            for purchase in leases:
                is_dropped = purchase in dropped
                if self.release(purchase, DROPPED if is_dropped else "refused") and not is_dropped:
                    self.lease(purchase.item, slot=purchase.slot)

    def hand_out(self, rows: Sequence[Handed]) -> None:
        """Record which lease is handed out to whom, before a sheet is written.

        Annotators get a code, under which the chain records their answers from then on.

        Raises:
            LedgerError: a key was given before. Nothing was recorded then.
        """
        if rows:
            with self.together():
                self.record(STORED, {STORED: self.private.note_handed(rows)})

    # From an answer to a learned label ----------------------------------------------------------

    def take(self, answers: Iterable[Answer], *, durable: bool = True) -> list[Receipt]:
        """Accept answers; gives a receipt for each, in order, with what is to be learned of it.

        Answers of an audit, those that name no candidate, and those to an item whose label was
        learned are charged and not learned. One that was recorded before is ignored. One whose
        lease was released takes over the purchase's open lease if there is one; it is charged and
        learned if the purchase has no answer and budget is left, and is otherwise kept as `late`,
        uncharged. So is one that contradicts an accepted answer, or adds free texts to it.

        Args:
            answers: in the order in which they are to be learned.
            durable: False for labelers that give the same answer again for free; their rows
                may wait for the next commit.

        Raises:
            LabelerError: an answer to an unknown item or a purchase never made, in anything but
                whole numbers, outside the item's candidates, at a negative price or one above the
                reserved price, or of an unknown kind. None of the answers was taken then.
            LedgerError: the database cannot be written; none was taken.
        """
        answers = [whole_answer(answer) for answer in answers]
        if unknown := self.items.know([answer.item for answer in answers]):
            labeler = next(answer.labeler for answer in answers if answer.item == unknown[0])
            raise LabelerError(
                f"'{labeler}' answered item '{unknown[0]}', which is not among the "
                f"{len(self.items)} items of this run: a labeler answers what it was asked"
            )
        if all(self._is_recorded(answer) for answer in answers):
            return [Receipt(answer, "repeated") for answer in answers]
        waits = not durable and all(self._can_wait(answer) for answer in answers)
        with self.later() if waits else self.together():
            settled = [self._settle(answer) for answer in answers]
        if durable:
            self._store.empty_log()
        learned = self.decisions([round for _, round, _ in settled if round is not None])
        receipts = []
        for answer, (outcome, round, relabels) in zip(answers, settled, strict=True):
            example = None
            if round is not None and answer.index is not None:
                example = (learned[round], Label(answer.index))
            receipts.append(Receipt(answer, outcome, example, relabels))
        return receipts

    def _is_recorded(self, answer: Answer) -> bool:
        """Whether the same answer was recorded before, accepted or late."""
        surrogate = self.items.surrogates[answer.item]
        state = self.accounts.purchases.get((surrogate, answer.slot))
        if state is None or not state.words:
            return False
        digest = None
        if answer.text is not None or answer.note is not None:
            digest = self.items.text_hash(surrogate, answer.text, answer.note)
        return (answer.token, answer.word, digest) in state.words

    def _can_wait(self, answer: Answer) -> bool:
        """Whether an answer is on its purchase's open lease, or was recorded before, without texts.

        Such an answer of a labeler that gives it again for free loses nothing when it is lost.
        """
        key = (self.items.surrogates[answer.item], answer.slot)
        state = self.accounts.purchases.get(key)
        has_texts = answer.text is not None or answer.note is not None
        is_open = state is not None and state.stage == "open" and state.token == answer.token
        return not has_texts and (is_open or self._is_recorded(answer))

    def _settle(self, answer: Answer) -> tuple[Outcome, int | None, bool]:
        """Record an answer.

        Gives its outcome; the round where it is to be learned: of an item's slots the first
        accepted answer that names a candidate, and no answer of an audit; and whether it takes the
        place of a label that was withdrawn.
        """
        if self._is_recorded(answer):
            return "repeated", None, False
        key = (self.items.surrogates[answer.item], answer.slot)
        state = self.accounts.purchases.get(key)
        if state is None or not 1 <= answer.token <= state.token:
            raise LabelerError(
                f"'{answer.labeler}' answered lease {answer.token} of item '{answer.item}', slot "
                f"{answer.slot}, which was never made: a labeler answers what it was asked"
            )
        if answer.index is not None:
            self._expect_candidate(key[0], answer.index)
        code = self.private.codes.get(answer.labeler, answer.labeler)
        if self._accept(key, state, answer, code):
            if self._record_learned(key):
                return "accepted", state.round, False
            return "accepted", None, self._relabel(key[0])
        payload = self._payload_of(key[0], answer)
        self._record_of(key, state, "late", payload, code=code, token=answer.token, price=0)
        if state.stage != "answered" or state.labeler != code:
            return "late", None, False
        return "repeated" if state.word == answer.word else "disputed", None, False

    def _accept(self, key: Key, state: State, answer: Answer, code: str) -> bool:
        """Charge an answer if it can be; a late one takes over the open lease."""
        if state.stage == "answered":
            return False
        if answer.price > state.price:  # of a released lease too: its labeler agreed to that price
            raise LabelerError(
                f"the price of item '{answer.item}' by '{answer.labeler}' should be at most the "
                f"{state.price} micro-units reserved, got {answer.price}: set a price that covers "
                "every answer"
            )
        leased = state.stage == "open"
        if not leased and (state.dropped or not self.accounts.affords(answer.price)):
            return False
        token = state.token if leased else answer.token
        payload = self._payload_of(key[0], answer)
        if token != answer.token:
            payload["given"] = answer.token
        if not leased:
            payload["unleased"] = True  # a new charge: it replaces no reservation
        self._record_of(key, state, "answered", payload, code=code, token=token, price=answer.price)
        return True

    def _payload_of(self, surrogate: str, answer: Answer) -> dict[str, object]:
        """The payload of an answer; its free texts go to the private tables."""
        payload: dict[str, object] = (
            {"kind": answer.kind} if answer.index is None else {"index": answer.index}
        )
        if answer.text is not None or answer.note is not None:
            payload["words"] = self.private.note_texts(surrogate, answer.text, answer.note)
        return payload

    def _record_of(
        self, key: Key, state: State, event: str, data: Mapping[str, object], **fields: Any
    ) -> None:
        """Record a row of a purchase: its round, its purpose, and its last lease unless given."""
        columns = {"surrogate": key[0], "slot": key[1], "token": state.token, **fields}
        self.record(event, data, round=state.round, purpose=state.purpose, **columns)

    def _record_learned(self, key: Key) -> bool:
        """Record `learned` if the accepted answer is the first of its item to learn from."""
        accounts, state = self.accounts, self.accounts.purchases[key]
        if key[0] in accounts.learned_labels or not accounts.is_learnable(state):
            return False
        self._record_of(key, state, "learned", {"index": state.word}, code=state.labeler)
        return True

    def _relabel(self, surrogate: str) -> bool:
        """Record the label that refits learn of an item that was learned before, if it changed."""
        if surrogate not in self.accounts.learned_labels:
            return False
        index = self.accounts.label_of(surrogate)
        if self.accounts.learned_labels[surrogate] == index:
            return False
        self.record("relabeled", {} if index is None else {"index": index}, surrogate=surrogate)
        return True

    def _revise(self, surrogate: str) -> Key | None:
        """Record what is learned of an item from now on; its purchase if it is the first."""
        self._relabel(surrogate)
        slots = self.accounts.slots(surrogate)
        return next((key for key, _ in slots if self._record_learned(key)), None)

    def _expect_candidate(self, surrogate: str, index: int) -> None:
        """Check that an answer names one of its item's K candidates, added classes included."""
        size = self._size(surrogate)
        if not 0 <= index < size:
            raise LabelerError(
                f"the answer to item '{self.items.identities[surrogate].id}' should be the index of"
                f" one of its {size} candidates, got {index}"
            )

    def _size(self, surrogate: str) -> int:
        return self.accounts.classes or self.items.identities[surrogate].size or 0

    def remarks(self, row: Row) -> tuple[str, ...]:
        """The free texts of one row: the right text of an answer, the note of that or of a skip."""
        texts = self.private.texts(row.surrogate) if "words" in row.payload else {}
        return tuple(text for text in texts.get(str(row.payload.get("words")), ()) if text)

    # Owned and revised labels ------------------------------------------------------------------

    def own(self, labels: Sequence[tuple[str, int]], source: str) -> list[tuple[Decision, Label]]:
        """Record the labels of items that are owned already; gives what is to be learned, in order.

        They cost nothing and count neither in `asked` nor in `spent`. Each comes with the decision
        of `events.owned_decision`: round 0, all candidates presented, choice −1.

        Raises:
            LedgerError: an unknown item, or one whose label was bought or owned before.
        """
        learned = []
        with self.together():
            code = self.private.enroll(source, "source") if labels else source
            self.items.know([item for item, _ in labels])
            for item, index in labels:
                surrogate = self.items.surrogates[item]
                key, size = (surrogate, 0), self._size(surrogate)
                self._reserve(key, None, "owned")
                state = self.accounts.purchases[key]
                data = {"index": index, "size": size}
                self._record_of(key, state, "answered", data, code=code, price=0)
                self._record_learned(key)
                learned.append((owned_decision(item, size), Label(index)))
        return learned

    def correct(
        self,
        item: str,
        index: int | None,
        labeler: str,
        *,
        slot: int = 0,
        kind: AnswerKind = "label",
        text: str | None = None,
        note: str | None = None,
        named: bool = False,
    ) -> tuple[Decision, Label] | None:
        """Replace an accepted answer, as a numbered `corrected` row; later refits learn it.

        The arguments are those of `Answer`. Nothing is paid. An audit that was shown stays measured
        by the answer before, unless that `named` the class. Gives what is to be learned, where no
        answer to the item could be learned before (none of these, mapped to a class); else None.

        Raises:
            LedgerError: the purchase has no answer.
            LabelerError: the index is not a whole number, or not one of the item's candidates.
        """
        with self.together():
            key = (self.items.surrogates[item], slot)
            state = self.accounts.purchases[key]
            answer = whole_answer(Answer(item, slot, 1, index, labeler, 0, kind, text, note))
            if answer.index is not None:
                self._expect_candidate(key[0], answer.index)
            data = self._payload_of(key[0], answer) | ({"named": True} if named else {})
            number = state.corrections + 1
            code = self.private.codes.get(labeler, labeler)
            self._record_of(key, state, "corrected", data, code=code, number=number, price=0)
            learned_key = self._revise(key[0])
            learned = None if learned_key is None else self.accounts.purchases[learned_key].index
        round = state.round or 0
        return None if learned is None else (self.decisions([round])[round], Label(learned))

    def set_standing(self, event: str, labeler: str) -> None:
        """Record who gets rows, and whose answers are learned.

        Who is `away` gets no new rows until `back`. After `set_aside` none of the labeler's answers
        is learned, nor measures an audit that was not shown yet; after `kept` all of them are.
        """
        with self.together():
            code = self.private.codes.get(labeler, labeler)
            self.record(event, code=code)
            purchases = self.accounts.purchases.items()
            for item in dict.fromkeys(key[0] for key, state in purchases if state.labeler == code):
                if self.items.identities[item].salt is not None:  # else nothing is left to learn
                    self._revise(item)

    def show_audit(self) -> None:
        """Record that the audit is about to be shown: its answers so far are what it measures."""
        with self.together():
            purchases = self.accounts.purchases.values()
            if any(
                s.purpose == "audit" and s.stage == "answered" and not s.shown for s in purchases
            ):
                self.record("shown")

    def forget(self, item: str) -> str:
        """Erase an item: its texts, id, salt, free texts and rows of sheets; its name from now on.

        Its open leases are released. The chain keeps its numbers under that random name, and still
        verifies. The item is marked as `erasing` until `erased`.

        Raises:
            LedgerError: the item is unknown.
        """
        with self.together():
            for purchase in self.open_purchases():
                if purchase.item == item:
                    self.release(purchase, "refused")
            self.begin_erasing(item)
            surrogate = self.items.surrogates[item]
            erased = erase_requests(self._store, item) | self.private.erase(surrogate)
            erase_item(self._store, surrogate)
            self.record("forgotten", {STORED: erased}, surrogate=surrogate)
        self.items.read()
        return erased_name(surrogate)
