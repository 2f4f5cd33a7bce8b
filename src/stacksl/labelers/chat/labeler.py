"""The labeler that asks a chat-completions endpoint."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from stacksl.labelers.chat.calls import Calls
from stacksl.labelers.chat.endpoint import KEY, Endpoint, Lost, NotSent, Reply
from stacksl.labelers.chat.prompts import (
    Way,
    body_of,
    completion,
    encoded,
    order_of,
    position_of,
    tokens_of,
    ways,
)
from stacksl.labelers.protocol import Pending, Request
from stacksl.ledger.purchases import Answer

TRIES = 5  # calls for one label in a session that cost nothing, before the run waits
FIRST_PAUSE = 0.5  # seconds, doubled each time
PATIENCE = 60.0  # the longest `Retry-After` that is slept through
IN_A_ROW = 3  # lost calls without an answer between them, before the run waits
OVERHEAD = 100  # tokens that a server may add to a request
UNSUPPORTED = (400, 415, 422, 501)


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of a million tokens that are read and written: micro-units of money a token."""

    read: Decimal
    written: Decimal

    def cost(self, read: int, written: int) -> int:
        """What so many tokens cost, in micro-units, rounded up."""
        exact = self.read * read + self.written * written
        return int(exact.to_integral_value(rounding=ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Questions:
    """How a model is asked: its name, the template, the seed of the order, and its rates."""

    model: str
    template: str
    seed: int
    rates: Rates

    def body(self, prompt: str, shown: Sequence[str], way: Way) -> dict[str, Any]:
        """The request that shows candidates in this order."""
        return body_of(self.model, self.template, prompt, shown, way)

    def shown(self, prompt: str, candidates: Sequence[str]) -> tuple[tuple[int, ...], list[str]]:
        """The order of the candidates by their indices, and the candidates in it."""
        order = order_of(self.seed, prompt, candidates)
        return order, [candidates[index] for index in order]

    def most(self, body: dict[str, Any]) -> int:
        """The most that a request costs: a token has one byte at least."""
        return self.rates.cost(len(encoded(body)) + OVERHEAD, body["max_tokens"])

    def dearest(self, prompt: str, candidates: Sequence[str]) -> int:
        """The most that one call about an item costs, whichever way it is asked."""
        _, shown = self.shown(prompt, candidates)
        return max(self.most(self.body(prompt, shown, way)) for way in ways(shown))


class ChatLabeler:
    """Asks a model for each label, several at a time; answers are returned in order of request.

    A label costs what the server counted, and the upper price of each call that may have been
    billed without an answer. A call that might exceed the purchase's price is not made: the label
    is then answered as `broken`, at what its calls cost. Where the server refuses, fails in a row
    or bills too much, no more calls are made and the requests stay open.

    Args:
        endpoint: of the server.
        questions: how it is asked.
        calls: the record of all calls.
        at_once: how many calls are made at a time.
    """

    repeatable = False

    def __init__(
        self, endpoint: Endpoint, questions: Questions, calls: Calls, at_once: int
    ) -> None:
        self.name = f"openai:{questions.model}"
        self.warnings: list[str] = []
        self._endpoint, self._questions, self._calls = endpoint, questions, calls
        self._at_once = at_once
        self._open: dict[tuple[str, int, int], Request] = {}
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._why = ""
        self._in_a_row = 0
        self._unsupported: set[Way] = set()

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests; `answers` sends them."""
        self._open |= {(r.item, r.slot, r.token): r for r in requests}

    def answers(self) -> list[Answer]:
        """The answers to the open requests, as far as the server gives any.

        Raises:
            LabelerError: a call cannot be recorded; then it is not made.
        """
        if self._halt.is_set() or not self._open:
            return []
        groups: dict[tuple[str, tuple[str, ...]], list[Request]] = {}
        for request in self._open.values():
            groups.setdefault((request.prompt, request.candidates), []).append(request)
        with ThreadPoolExecutor(self._at_once) as pool:
            try:  # equal questions one after the other: the first answer serves all
                found = [each for part in pool.map(self._each, groups.values()) for each in part]
            except BaseException:
                self._halt.set()
                self._endpoint.abort()
                raise
        by_key = {(answer.item, answer.slot, answer.token): answer for answer in found}
        given = [by_key[key] for key in self._open if key in by_key]
        self._open = {key: each for key, each in self._open.items() if key not in by_key}
        return given

    def pending(self) -> list[Pending]:
        """The requests without an answer, and why they have none."""
        return [Pending(self._endpoint.url, len(self._open), self._why)] if self._open else []

    def _each(self, requests: Sequence[Request]) -> list[Answer]:
        return [answer for each in requests if (answer := self._one(each)) is not None]

    def _one(self, request: Request) -> Answer | None:
        """The answer to one request; None where the run has to wait."""
        order, shown = self._questions.shown(request.prompt, request.candidates)
        bodies = {w: self._questions.body(request.prompt, shown, w) for w in ways(shown)}
        for way, body in bodies.items():
            if (text := self._calls.cached(body)) is not None:
                return self._answer(request, order, shown, way, completion(text))
        tries = 0
        while not self._halt.is_set():
            way = next((w for w in bodies if w not in self._unsupported), [*bodies][-1])
            body, most = bodies[way], self._questions.most(bodies[way])
            spent = self._calls.cost(request.item, request.slot)
            if spent + most > request.price and most > 0:
                return self._given_up(request, spent, most)
            call = self._calls.sent(request.item, request.slot, order, body, most)
            try:
                reply = self._endpoint.post(encoded(body))
            except NotSent as fault:
                self._calls.ended(call, 0, str(fault))
                tries = self._again(tries, str(fault), None)
                continue
            except Lost as fault:
                self._lost(call, most, str(fault), b"")
                tries += 1
                if tries > 1 and not most:
                    self._stop(f"it gave {fault}")
                continue
            if reply.status in (429, 503):
                self._calls.ended(call, 0, f"HTTP {reply.status}", reply.payload)
                tries = self._again(tries, f"HTTP {reply.status}", reply.retry_after)
            elif reply.status == 200:
                try:
                    found = completion(reply.payload)
                except ValueError:
                    self._lost(call, most, "no chat completion", reply.payload)
                    tries += 1
                    if tries > 1 and not most:
                        self._stop("it sent no chat completion")
                    continue
                self._in_a_row = 0
                counted = tokens_of(found)
                cost = most if counted is None else self._questions.rates.cost(*counted)
                self._calls.ended(call, cost, None, reply.payload)
                return self._answer(request, order, shown, way, found)
            elif (answer := self._refused(request, call, most, reply, way, [*bodies])) is not None:
                return answer
        return None

    def _answer(
        self,
        request: Request,
        order: tuple[int, ...],
        shown: Sequence[str],
        way: Way,
        found: dict[str, Any],
    ) -> Answer:
        """The answer that a completion gives, at what all calls for the label cost."""
        spent = self._calls.cost(request.item, request.slot)
        key, price = (request.item, request.slot, request.token), min(spent, request.price)
        if spent > request.price:
            over = (
                f"the answer about item '{request.item}' cost {_money(spent)}, which is"
                f" {_money(spent - request.price)} more than was reserved and is counted: compare"
                " input_price and output_price with the server's prices"
            )
            self.warnings.append(over)
            self._stop("an answer cost more than was reserved for it; `resume` buys on")
        place = position_of(found, shown, way)
        if place is None:
            return Answer(*key, None, self.name, price, "broken", note="the model named no option")
        return Answer(*key, request.order[order[place]], self.name, price)

    def _given_up(self, request: Request, spent: int, most: int) -> Answer | None:
        """The answer to a label whose price leaves no further call."""
        if not spent:
            self._stop(
                f"a call may cost {_money(most)}, above the {_money(request.price)} reserved for a"
                " label"
            )
            return None
        key = (request.item, request.slot, request.token)
        note = "no answer; calls that may have been billed are charged"
        return Answer(*key, None, self.name, min(spent, request.price), "broken", note=note)

    def _refused(
        self, request: Request, call: int, most: int, reply: Reply, way: Way, known: Sequence[Way]
    ) -> Answer | None:
        """What follows from an HTTP status that is no answer."""
        said = f"HTTP {reply.status}"
        if reply.status >= 500 and reply.status not in UNSUPPORTED:
            self._lost(call, most, said, reply.payload)
            if not most:
                self._stop(f"it answered {said}")
            return None
        self._calls.ended(call, 0, said, reply.payload)
        if reply.status in UNSUPPORTED and way != known[-1]:
            self._unsupported.add(way)  # log-probabilities or constrained output
        elif reply.status in (*UNSUPPORTED, 413) and self._calls.answered:
            spent = self._calls.cost(request.item, request.slot)
            key = (request.item, request.slot, request.token)
            note = f"the server refused the request ({said})"
            return Answer(*key, None, self.name, min(spent, request.price), "broken", note=note)
        elif reply.status in (401, 403):
            self._stop(f"it refused the key ({said}): set {KEY}")
        elif 300 <= reply.status < 400:
            self._stop(f"it answered with a redirect ({said}), which is not followed")
        else:
            self._stop(f"it refused the request ({said}): check the url and the model's name")
        return None

    def _lost(self, call: int, cost: int, why: str, answer: bytes) -> None:
        """Record a call that may have been billed; several in a row stop the buying."""
        self._calls.ended(call, cost, why, answer)
        with self._lock:
            self._in_a_row += 1
            stop = self._in_a_row >= IN_A_ROW
        if stop:
            self._stop(f"{IN_A_ROW} calls in a row gave no answer, the last one {why}")

    def _again(self, tries: int, why: str, after: float | None) -> int:
        """Wait before a call is repeated, or stop; the number of calls so far."""
        pause = FIRST_PAUSE * 2**tries if after is None else after
        if tries + 1 >= TRIES:
            self._stop(f"it was asked {TRIES} times, the last time with {why}")
        elif pause > PATIENCE:
            self._stop(f"it asks to be tried again in {pause:.0f} s ({why})")
        else:
            self._halt.wait(pause)
        return tries + 1

    def _stop(self, why: str) -> None:
        """Make no more calls in this session."""
        with self._lock:
            self._why = self._why or why
        self._halt.set()


def _money(micro: int) -> str:
    return f"${Decimal(micro) / 1_000_000:f}"
