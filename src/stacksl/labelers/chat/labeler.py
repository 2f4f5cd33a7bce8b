"""The labeler that asks a chat-completions endpoint."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from stacksl.labelers.chat.batches import Batches, half
from stacksl.labelers.chat.calls import UNCOUNTED, Calls, Completion, PlannedCall
from stacksl.labelers.chat.endpoint import COMPLETIONS, KEY, Endpoint, HttpReply, Lost, NotSent
from stacksl.labelers.chat.prompts import (
    LATER_LIMIT,
    THOUGHT,
    Question,
    Questions,
    Shot,
    Way,
    completion,
    encoded,
    position_of,
    refused_in,
    tokens_of,
    too_long,
    without,
)
from stacksl.labelers.chat.replies import is_cut, text_of
from stacksl.labelers.protocol import Pending, Request
from stacksl.ledger.purchases import Answer
from stacksl.report.wording import money

TRIES = 5  # calls for one label without a connection or price, before the run waits
FIRST_PAUSE = 0.5  # seconds, doubled each time
PATIENCE = 60.0  # seconds that a label waits for a server's limits in a session
IN_A_ROW = 3  # lost calls without an answer between them, before the run waits
UNNAMED = 5  # answers in a row that name no option, before the run waits
FIRST = 20  # answers of a run that are looked at together
ALIKE = 18  # of them at one position, from which the model does not read the options
NAMELESS = 10  # of them that name no option, before the run waits
SHOWN = ": `stacksl ledger requests` shows the calls"
CHARGED = "no answer; calls that may have been billed are charged"
UNSUPPORTED = (400, 415, 422, 501)
LIMITED = (429, 503, 529)  # the last one is Anthropic's, of a server that is overloaded


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
        shots: the labeled examples to show with an item, by its id.
        check: asks about owned items before labels: why their answers speak against going on, empty
            where they do not, None where some are missing. None where it had ended before.
        batched: whether questions go in batches, but the first ones and those that one refused.
    """

    repeatable = False

    def __init__(
        self,
        endpoint: Endpoint,
        questions: Questions,
        calls: Calls,
        at_once: int,
        shots: Callable[[str], Sequence[Shot]],
        check: Callable[[Callable[[Sequence[Request]], list[Answer]]], str | None] | None = None,
        *,
        batched: bool = False,
    ) -> None:
        self.name = f"openai:{questions.model}"
        self.warnings: list[str] = []
        self._endpoint, self._questions, self._calls = endpoint, questions, calls
        self._at_once, self._shots = at_once, shots
        self._open: dict[tuple[str, int, int], Request] = {}
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._reason = ""
        self._in_a_row, self.unnamed = 0, 0  # lost calls; answers without an option
        self._first: list[tuple[int, int] | None] | None = None if calls.ways else []
        self._check = check
        self._checked: dict[str, Answer] = {}
        self._repeats = check is not None and bool(calls.ways)  # a check that was cut off
        self._limit = questions.limit  # the user's
        if calls.thinks and self._limit is None:
            self._questions = replace(questions, limit=THOUGHT)
        self._unsupported: set[Way] = set()
        self._batches = Batches(endpoint, calls, self.warnings) if batched else None

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests; `answers` sends them."""
        self._open |= {(r.item, r.slot, r.token): r for r in requests}

    def answers(self) -> list[Answer]:
        """The answers to the open requests, as far as the server gives any.

        Raises:
            LedgerError: a call cannot be recorded; then it is not made.
        """
        if self._halt.is_set() or not self._open:
            return []
        if self._check is not None:
            if (why := self._check(self._about_owned)) is not None:
                self._check = None
            if why:
                self._stop(why)
            if self._halt.is_set():
                return []
            if self._repeats:
                self._repeats, self.unnamed = False, 0
        requests = list(self._open.values())
        if self._batches is not None:
            self._of_batches(partial(self._batches.collect, self._questions))
            first_count = 0 if self._first is None else FIRST - len(self._first)
            requests = [*requests[:first_count], *filter(self._alone, requests[first_count:])]
        answers = self._answers_to(requests)
        by_key = {(answer.item, answer.slot, answer.token): answer for answer in answers}
        new_answers = [by_key[key] for key in self._open if key in by_key]
        self._open = {key: request for key, request in self._open.items() if key not in by_key}
        return new_answers

    def _about_owned(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers about owned items so far.

        Where calls cost money, each label pays for one before its own: two were reserved.
        """
        requests_left = [request for request in requests if request.item not in self._checked]
        if self._questions.rates.cost(1, 1):
            payers = [r for r in self._open.values() if not self._calls.cost(r.item, r.slot)]
            for n, (payer, request) in enumerate(zip(payers, requests_left, strict=False)):
                self._calls.payers[request.item, request.slot] = (payer.item, payer.slot)
                shots = self._shots(payer.item)
                own_price = self._questions.dearest(payer.prompt, payer.candidates, shots)
                requests_left[n] = replace(request, price=payer.price - own_price)
            requests_left = requests_left[: len(payers)]
        self._checked |= {answer.item: answer for answer in self._answers_to(requests_left)}
        return list(self._checked.values())

    def _answers_to(self, requests: Sequence[Request]) -> list[Answer]:
        groups: dict[tuple[str, tuple[str, ...]], list[Request]] = {}
        for request in requests:
            groups.setdefault((request.prompt, request.candidates), []).append(request)
        with ThreadPoolExecutor(self._at_once) as pool:
            try:  # equal questions one after the other: the first answer serves all
                results = pool.map(lambda group: [*map(self._answer_one, group)], groups.values())
                return [answer for answers in results for answer in answers if answer is not None]
            except BaseException:
                self._halt.set()
                self._endpoint.abort()
                raise

    def _broken(self, request: Request, note: str) -> Answer:
        """The answer that there is none, at what the calls for it cost."""
        key = (request.item, request.slot, request.token)
        price = min(self._calls.cost(request.item, request.slot), request.price)
        return Answer(*key, None, self.name, price, "broken", note=note)

    def pending(self) -> list[Pending]:
        """The requests without an answer, and why they have none; a batch is sent now."""
        if self._batches is not None and self._open and not self._halt.is_set():
            self._of_batches(self._send)
        return [Pending(self._endpoint.url, len(self._open), self._reason)] if self._open else []

    def _of_batches(self, action: Callable[[], str]) -> None:
        """Do something about batches, which may say what to wait for; stop then."""
        try:
            if why := action():
                self._stop(f"{why}: `resume` goes on")
        except (NotSent, Lost) as fault:
            self._stop(f"{fault}: `resume` tries again")
        except (ValueError, LookupError, TypeError, AttributeError):
            self._stop("its batch API answers in another form than OpenAI's")

    def _send(self) -> str:
        """Send open requests as a batch, equal questions once; what is waited for then."""
        by_content: dict[tuple[str, tuple[str, ...]], PlannedCall] = {}
        for request in self._open.values():
            content = (request.prompt, request.candidates)
            by_content.setdefault(content, self._in_batch(request))
        assert self._batches is not None
        count = self._batches.send([*by_content.values()])
        questions = "1 question was" if count == 1 else f"{count:,} questions were"
        return f"{questions} sent as a batch, which takes up to a day"

    def _in_batch(self, request: Request) -> PlannedCall:
        by_way = self._questions_by_way(request)
        way = next((way for way in by_way if way not in self._unsupported), [*by_way][-1])
        max_cost = half(self._questions).most(by_way[way].body)
        return PlannedCall(request.item, request.slot, self._without_refused(by_way[way]), max_cost)

    def _alone(self, request: Request) -> bool:
        """Whether a request is for no batch: answered, without money left, or refused in one."""
        assert self._batches is not None
        call, key = self._in_batch(request), (request.item, request.slot)
        if key in self._batches.singly or self._calls.received(*key, [call.question]) is not None:
            return True
        return self._calls.cost(*key) + call.most > request.price and call.most > 0

    def _answer_one(self, request: Request) -> Answer | None:
        """The answer to one request; None where the run has to wait."""
        by_way = self._questions_by_way(request)
        open_ways = [self._without_refused(by_way[w]) for w in by_way if w not in self._unsupported]
        received = self._calls.received(request.item, request.slot, open_ways)
        if received is not None and (answer := self._answer(request, received, self._limit)):
            return answer
        tries, wait_time, refused = 0, 0.0, set[Way]()
        while not self._halt.is_set():
            limit, by_way = self._questions.limit, self._questions_by_way(request)
            way = next((w for w in by_way if w not in self._unsupported | refused), [*by_way][-1])
            max_cost = self._questions.most(by_way[way].body)
            spent = self._calls.cost(request.item, request.slot)
            if spent + max_cost > request.price and max_cost > 0:
                return self._without_money(request, spent, max_cost)
            question = self._without_refused(by_way[way])
            planned_call = PlannedCall(request.item, request.slot, question, max_cost)
            [call] = self._calls.record_sent([planned_call])
            payload, tokens = b"", None
            try:
                reply = self._endpoint.send(f"POST {COMPLETIONS}", encoded(question.body))
                status, payload = reply.status, reply.payload
                if status >= 500 and status not in (*LIMITED, *UNSUPPORTED):
                    if way == "schema" and not self._calls.ways:
                        refused.add(way)  # so some servers fail where they know no schema
                    raise Lost(f"HTTP {status}")
                if status == 200:
                    tokens = tokens_of(completion(payload))
            except NotSent as fault:
                self._calls.record_end(call, 0, str(fault))
                wait_time += self._wait(tries, wait_time, str(fault), 0.0, connected=False)
                tries += 1
                continue
            except (Lost, ValueError) as fault:
                why = str(fault) if isinstance(fault, Lost) else "no chat completion"
                counts = way not in refused  # the next call is another way of asking
                wait_time += self._lost(call, max_cost, why, payload, tries, wait_time, counts)
                tries += 1
                continue
            if status in LIMITED:
                self._calls.record_end(call, 0, f"HTTP {status}", payload)
                wait_time += self._wait(tries, wait_time, f"HTTP {status}", reply.retry_after)
                tries += 1
            elif status == 200:
                self._in_a_row = 0
                self._unsupported |= refused - self._calls.ways
                cost = max_cost if tokens is None else self._questions.rates.cost(*tokens)
                self._calls.record_end(call, cost, None, payload)
                if tokens is None and max_cost and UNCOUNTED not in self.warnings:
                    self.warnings.append(UNCOUNTED)
                received = self._calls.received(request.item, request.slot, ())
                assert received is not None
                if (answer := self._answer(request, received, limit)) is not None:
                    return answer
            elif status in UNSUPPORTED and self._does_without(question, payload):
                self._calls.record_end(call, 0, f"HTTP {status}", payload)
            elif answer := self._refused(request, call, reply, way, refused):
                return answer
        return None

    def _without_money(self, request: Request, spent: int, max_cost: int) -> Answer | None:
        """What becomes of a label whose price leaves no room for a call that costs `max_cost`."""
        if request.purpose == "owned":
            return None  # another label may pay later
        note = CHARGED
        if not spent:
            note = f"a call may cost {money(max_cost)}, above the {money(request.price)} of a label"
            self._unnamed_again(f"{UNNAMED} times in a row {note}")
        return self._broken(request, note)

    def _without_refused(self, question: Question) -> Question:
        """A request without what the server has refused in this run."""
        return replace(question, body=without(question.body, self._calls.refused))

    def _does_without(self, question: Question, payload: bytes) -> bool:
        """Whether a refusal names the limit or the temperature, of which the next call knows."""
        name = refused_in(payload, question.body)
        if name is None or too_long(payload):  # where a prompt is too long, some name the limit
            return False
        if name == LATER_LIMIT:
            self._stop(
                "it refuses every limit of an answer's length, without which a label has no highest"
                " price: name another model or server"
            )
        with self._lock:
            self._calls.refused |= {name}
        return True

    def _questions_by_way(self, request: Request) -> dict[Way, Question]:
        """The requests that ask for a label, with examples."""
        return self._questions.of(request.prompt, request.candidates, self._shots(request.item))

    def _answer(self, request: Request, received: Completion, limit: int | None) -> Answer | None:
        """The answer that a completion gives, at what all calls for the label cost.

        None where it is asked for again: as free text where a server ignored the schema and named
        no option, with room for a thought where it was cut and no `limit` was given.
        """
        spent = self._calls.cost(request.item, request.slot)
        key, price = (request.item, request.slot, request.token), min(spent, request.price)
        if received.over:
            excess = f", {money(spent - price)} of it beyond the ledger" if spent > price else ""
            self.warnings.append(
                f"the answer about item '{request.item}' cost {money(received.over)} more than was"
                f" reserved for its call{excess}: compare input_price and output_price with the"
                " server's prices"
            )
            self._stop("an answer cost more than was reserved for it; `resume` continues")
        options = [request.candidates[index] for index in received.order]
        reply = completion(received.answer)
        index = position_of(reply, options)
        cut = index is None and is_cut(reply)
        if cut and limit is None and self._leave_room(request):
            return None
        no_json = received.way == "schema" and not text_of(reply).startswith("{")
        if index is None and no_json and not cut and not received.over:  # else every session stops
            self._unsupported.add("schema")
            return None
        self._judge_first(None if index is None else (index, received.order[index]))
        if index is None:
            cause = ""
            if cut:
                target = f"above {limit or 'its default'} in a new run"
                cause = f": it was cut, raise server.answer_tokens {target}"
                self.warnings.append(f"an answer of the model named no option{cause}")
            self._unnamed_again(
                f"{UNNAMED} answers in a row named no option and are charged{cause}"
            )
            return self._broken(request, f"the model named no option{cause}")
        self.unnamed = 0
        return Answer(*key, received.order[index], self.name, price)

    def _leave_room(self, request: Request) -> bool:
        """Ask a model that thinks with room for its thoughts; stop where a label's price has none.

        False where only this label is broken: the model gave other answers in the room for a short
        one, or its call that was cut left too little of its price.
        """
        questions = replace(self._questions, limit=THOUGHT)
        max_cost = questions.dearest(request.prompt, request.candidates, self._shots(request.item))
        if max_cost <= request.price:
            with self._lock:
                self._questions = questions
            unspent = request.price - self._calls.cost(request.item, request.slot)
            return max_cost <= unspent or request.purpose == "owned"  # another label may pay later
        elif self._calls.has_whole():
            return False
        else:
            self._stop(
                "an answer was cut, as where a model thinks before it answers; a call with room for"
                f" {THOUGHT:,} tokens may cost {money(max_cost)}, and a label has"
                f" {money(request.price)} reserved: start a new run with --set"
                f" server.answer_tokens={THOUGHT}, which reserves more (if it thinks about all"
                " questions, `resume` does not help)"
            )
        return True

    def _judge_first(self, choice: tuple[int, int] | None) -> None:
        """Note what an answer named, by its position and class; stop after nonsense.

        The first answers of a run are looked at together. Options are shuffled, so that a model
        which reads them does not name one position again and again.
        """
        with self._lock:
            if self._first is None:
                return
            self._first.append(choice)
            if len(self._first) < FIRST:
                return
            choices, self._first = self._first, None
        positions = Counter(pair[0] for pair in choices if pair is not None)
        classes = Counter(pair[1] for pair in choices if pair is not None)
        remedy = (
            "; read them with `stacksl ledger requests`, and start a new run with another"
            " server.label_template or model, or `resume`"
        )
        if (nameless := choices.count(None)) >= NAMELESS:
            self._stop(f"{nameless} of its first {FIRST} answers named no option{remedy}")
        elif positions and max(positions.values()) >= ALIKE:
            position, count = positions.most_common(1)[0]
            self._stop(
                f"{count} of its first {FIRST} answers named the option at place {position + 1},"
                f" though options are shuffled: it does not read them{remedy}"
            )
        elif classes and max(classes.values()) >= ALIKE:
            self.warnings.append(
                f"{max(classes.values())} of the model's first {FIRST} answers named one class:"
                " look at them with `stacksl ledger requests`"
            )

    def _unnamed_again(self, why: str) -> None:
        """Count an item without an option; several in a row stop the buying, and `why`.

        The count goes on over a `resume`, which so pays for one such answer, and not for several.
        In a check that is repeated they do not, or its answers of before would stop every session.
        """
        self.unnamed += 1
        if self.unnamed >= UNNAMED and not self._repeats:
            self._stop(
                f"{why}: read the answers with `stacksl ledger requests`; start a new run with"
                " another server.label_template or model, or `resume`"
            )

    def _refused(
        self, request: Request, call: int, reply: HttpReply, way: Way, refused: set[Way]
    ) -> Answer | None:
        """What follows from an HTTP status that is no answer; `refused` are ways of this label."""
        status = f"HTTP {reply.status}"
        self._calls.record_end(call, 0, status, reply.payload)
        is_too_long = reply.status == 413 or too_long(reply.payload)
        if reply.status in UNSUPPORTED and way == "schema" and not is_too_long:
            refused.add(way)
            if way not in self._calls.ways:
                self._unsupported.add(way)
        elif reply.status in (*UNSUPPORTED, 413) and (is_too_long or self._calls.ways):
            self._unsupported -= refused  # it is the item that is refused
            why = "the server refused it"
            if is_too_long:
                why = "the prompt is longer than the model's context"
                self._unnamed_again(f"{UNNAMED} times in a row {why}")
            return self._broken(request, f"{why} ({status})")
        elif reply.status in (401, 403):
            self._stop(f"it refused the key ({status}): set {KEY}")
        elif 300 <= reply.status < 400:
            self._stop(
                f"it answered with a redirect ({status}), which is not followed: start a"
                " new run with the url that it leads to"
            )
        else:
            self._stop(
                f"it refused the request ({status}; `stacksl ledger requests` shows what it said):"
                " check the url and the model's name, and start a new run if one is wrong"
            )
        return None

    def _lost(
        self,
        call: int,
        cost: int,
        why: str,
        answer: bytes,
        tries: int,
        wait_time: float,
        counts: bool,
    ) -> float:
        """Record a call that may have been billed; stop after several in a row that `counts`.

        The seconds waited before a free call is repeated, which no price of a label bounds.
        """
        self._calls.record_end(call, cost, why, answer)
        with self._lock:
            self._in_a_row += counts
            stop = self._in_a_row >= IN_A_ROW
        if stop:
            self._stop(f"{IN_A_ROW} calls in a row gave no answer, the last one with {why}{SHOWN}")
        return 0.0 if cost else self._wait(tries, wait_time, why, 0.0, connected=False)

    def _wait(
        self, tries: int, wait_time: float, why: str, min_pause: float, *, connected: bool = True
    ) -> float:
        """Wait before a call is repeated, or stop; the seconds waited.

        Pauses double, and last at least the `min_pause` seconds that the server asks for.
        """
        exhausted = wait_time >= PATIENCE if connected else tries + 1 >= TRIES
        if min_pause > PATIENCE:
            self._stop(f"it asks to be tried again in {min_pause:.0f} s ({why})")
        elif exhausted or wait_time + min_pause > PATIENCE:
            self._stop(
                f"it was asked {tries + 1} times in {wait_time:.0f} s, the last time with"
                f" {why}{SHOWN}"
            )
        else:
            pause = max(min_pause, min(FIRST_PAUSE * 2**tries, PATIENCE - wait_time))
            self._halt.wait(pause)
            return float(pause)
        return 0.0

    def _stop(self, why: str) -> None:
        """Make no more calls in this session."""
        with self._lock:
            self._reason = self._reason or why
        self._halt.set()
