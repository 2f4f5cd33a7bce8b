"""The calls of a run to a model: each exact request and answer, and what it may have cost.

One row of the run's database before a request is sent, and one after it ended, each in a
transaction of its own. A call without the second row may have been billed, as one that was lost: it
costs the most that it can.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

from stacksl.labelers.chat.prompts import LATER_LIMIT, LIMIT, THOUGHT, Question, Way, completion
from stacksl.labelers.chat.replies import is_cut
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.stored import read_requests, write_request

UNCOUNTED = (
    "the server counts no tokens of its answers, so each is charged the most that it may cost: let"
    " the server send `usage`"
)


class Completion(NamedTuple):
    """An answer as it was received.

    `order` has the candidates that were shown, by their indices, `way` is how they were asked for,
    `over` is what the call cost above its reservation, in micro-units.
    """

    order: tuple[int, ...]
    way: Way
    answer: str
    over: int


class PlannedCall(NamedTuple):
    """A question about a label, and the most that the call may cost."""

    item: str
    slot: int
    question: Question
    most: int


class Calls:
    """The calls in a run's database, also the cache of its answers by content.

    Args:
        database: of the run.
        secret: the key, which is replaced where a server repeats it.
    """

    def __init__(self, database: Path, secret: str | None = None) -> None:
        self._database, self._secret, self._lock = database, secret, threading.Lock()
        self._answers: dict[str | tuple[str, int], Completion] = {}  # by content, and by purchase
        self._costs: dict[tuple[str, int], dict[int, int]] = {}
        self.payers: dict[tuple[str, int], tuple[str, int]] = {}  # labels that pay for others
        self._sent: dict[int, Mapping[str, Any]] = {}
        self.in_batches: dict[int, Mapping[str, Any]] = {}  # calls in a `batch` without an end
        self.count = 0
        self.refused: set[str] = set()  # parameters of requests, as `without` knows them
        self.ways: set[Way] = set()  # in which the server has answered
        self.thinks = False  # whether the model was given room for its thoughts
        for row in read_calls(database):
            self._apply(row)

    def received(self, item: str, slot: int, questions: Iterable[Question]) -> Completion | None:
        """The answer received for a label, or else to a request equal to one of `questions`."""
        if (own_answer := self._answers.get((item, slot))) is not None:
            return own_answer
        answers = (self._answers.get(_key(question.body)) for question in questions)
        return next((answer._replace(over=0) for answer in answers if answer is not None), None)

    def has_whole(self) -> bool:
        """Whether the model has given an answer that was not cut."""
        answers = [*self._answers.values()]  # other threads add some
        return any(not is_cut(completion(received.answer)) for received in answers)

    def cost(self, item: str, slot: int) -> int:
        """What the calls that a label pays for cost at most, in micro-units."""
        return sum(self._costs.get(self.payers.get((item, slot), (item, slot)), {}).values())

    def record_sent(self, calls: Sequence[PlannedCall], batch: str = "") -> list[int]:
        """Record questions that are about to be sent, maybe as a batch's file; their numbers."""
        batch_entry = {"batch": batch} if batch else {}
        with self._lock:
            numbers, rows = range(self.count + 1, self.count + 1 + len(calls)), list[Any]()
            for number, (item, slot, question, max_cost) in zip(numbers, calls, strict=True):
                row = {"call": number, "item": item, "slot": slot, "way": question.way}
                row |= {"order": list(question.order), "shots": list(question.shots)}
                row |= {"most": max_cost, "time": _now(), "request": dict(question.body)}
                row |= {"payer": self.payers[item, slot]} if (item, slot) in self.payers else {}
                rows.append(row | batch_entry)
            self._write(*rows)
            return [*numbers]

    def record_end(self, call: int, cost: int, why: str | None = None, answer: bytes = b"") -> None:
        """Record how a call ended: what it cost, and the `answer`, or `why` there is none."""
        text = answer.decode("utf-8", "replace")
        if self._secret:
            text = text.replace(self._secret, f"({len(self._secret)} characters left out)")
        with self._lock:
            purchase = {name: self._sent[call][name] for name in ("item", "slot")}
            row = {"call": call, **purchase, "cost": cost, "time": _now()}
            self._write(row | ({} if why is None else {"why": why}) | {"answer": text})

    def _apply(self, row: Mapping[str, Any]) -> None:
        call, purchase = int(row["call"]), (str(row["item"]), int(row["slot"]))
        if "payer" in row:
            self.payers[purchase] = (str(row["payer"][0]), int(row["payer"][1]))
        costs = self._costs.setdefault(self.payers.get(purchase, purchase), {})
        if "request" in row:
            self.count = max(self.count, call)
            if body := row["request"]:  # an erased one is empty
                self.refused |= {LIMIT} if LATER_LIMIT in body else set()
                self.thinks |= body.get(LATER_LIMIT, body.get(LIMIT, 0)) >= THOUGHT
                self.refused |= set() if "temperature" in body else {"temperature"}
            self._sent[call] = {**row, "request": _key(row["request"])}
            costs[call] = int(row["most"])
            if "batch" in row:
                self.in_batches[call] = self._sent[call]
            return
        self.in_batches.pop(call, None)
        costs[call] = int(row["cost"])
        if "why" not in row and (sent_row := self._sent.get(call)) is not None:
            excess, way = max(0, costs[call] - int(sent_row["most"])), cast(Way, sent_row["way"])
            answer = Completion(tuple(sent_row["order"]), way, str(row["answer"]), excess)
            self.ways.add(way)
            self._answers[purchase] = self._answers[sent_row["request"]] = answer

    def _write(self, *rows: dict[str, Any]) -> None:
        with opened(self._database) as store, store.writing():
            for row in rows:
                write_request(store, row)
            store.commit()
        for row in rows:
            self._apply(row)


def read_calls(database: Path) -> list[dict[str, Any]]:
    """The calls of a run, two rows each.

    Raises:
        LedgerError: the database cannot be read.
        LedgerCorrupt: a row is damaged.
    """
    with opened(database, readonly=True) as store:
        return [row for _, row in read_requests(store)]


def _key(request: Mapping[str, Any]) -> str:
    return sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
