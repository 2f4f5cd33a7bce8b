"""Batches of questions to a server with OpenAI's batch API: half the price, within a day.

Questions go as a file of JSON lines, and a later session collects the answers. A call is recorded
with the file's name at the server before its batch begins, and the batch is found again by that
name: none is begun twice, and one that is not found costs the most that it may have cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stacksl.files import formats
from stacksl.labelers.chat.calls import Asked, Calls
from stacksl.labelers.chat.endpoint import JSON, Endpoint, Lost, NotSent
from stacksl.labelers.chat.prompts import completion, encoded, tokens_of
from stacksl.labelers.chat.questions import Questions, Rates

MOST = 10_000  # questions of a batch
ANSWERS = 400_000_000  # bytes of an answer of the server
AT_WORK = ("validating", "in_progress", "finalizing", "cancelling")
TO = "/v1/chat/completions"
_EDGE = "stacksl-7c1f0e55"  # between the parts of a form: no line of JSON is this
_FORM = (
    f'--{_EDGE}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{_EDGE}\r\n'
    'Content-Disposition: form-data; name="file"; filename="questions.jsonl"\r\n\r\n'
)


class NoBatch(Exception):
    """The server did not do what it was asked for: the run waits."""


class Batches:
    """The batches of a run at a server. A file of another form raises ValueError or LookupError.

    Attributes:
        singly: labels, by item and slot, whose question was refused in a batch.
    """

    def __init__(self, endpoint: Endpoint, calls: Calls) -> None:
        self.singly: set[tuple[str, int]] = set()
        self._endpoint, self._calls = endpoint, calls

    def send(self, asked: Sequence[Asked]) -> int:
        """Begin a batch of the first questions in `asked`; how many they are.

        Raises:
            NoBatch: the server began none, or it is not known whether it did.
        """
        asked, first = asked[:MOST], self._calls.count + 1
        bodies = [{"method": "POST", "url": TO, "body": each.question.body} for each in asked]
        lines = [encoded({"custom_id": str(n), **each}) for n, each in enumerate(bodies, first)]
        form = _FORM.encode() + b"\n".join(lines) + f"\r\n--{_EDGE}--\r\n".encode()
        kind = f"multipart/form-data; boundary={_EDGE}"
        file = str(formats.parsed(self._sent("POST /files", form, kind))["id"])
        numbers = self._calls.sent_together(asked, file)
        wanted = {"input_file_id": file, "endpoint": TO, "completion_window": "24h"}
        try:
            self._sent("POST /batches", encoded(wanted))
        except NoBatch as fault:
            for number in numbers if not isinstance(fault.__cause__, Lost) else ():
                self._calls.ended(number, 0, str(fault))
            raise
        return len(asked)

    def collect(self, questions: Questions) -> str:
        """Record the answers of the batches that have ended; what stands in the way of others.

        Raises:
            NoBatch: the server does not say.
        """
        waits = []
        for file in sorted({row["batch"] for row in self._calls.in_batches.values()}):
            rows = [row for row in self._calls.in_batches.values() if row["batch"] == file]
            batch, size = self._found(file), f"a batch of {len(rows):,} questions"
            if (state := batch.get("status", "lost")) in AT_WORK:
                waits.append(f"{size} is not done ({state})")
                continue
            names = [batch[kind] for kind in ("output_file_id", "error_file_id") if batch.get(kind)]
            files = [self._sent(f"GET /files/{name}/content") for name in names]
            lines = [formats.parsed(line) for each in files for line in each.splitlines() if line]
            ended = {line.get("custom_id"): line for line in lines}
            for row in rows:
                self._record(row, ended.get(str(row["call"])), questions, state)
            waits += [f"{size} was refused as a whole"] * (state == "failed")
            for name in (*names, file) if batch else ():  # the server would keep their prompts
                self._sent(f"DELETE /files/{name}")
        return "; ".join(waits)

    def _record(
        self, row: Mapping[str, Any], line: Mapping[str, Any] | None, of: Questions, state: str
    ) -> None:
        """Record how a call in a batch of a `state` ended, by its line in the server's files."""
        number, cost, why = row["call"], row["most"], None
        said = (line or {}).get("response") or {}
        status, payload = said.get("status_code"), encoded(said.get("body") or {})
        if line is None:
            cost, why = 0 if state == "failed" else cost, f"its batch is {state}"
        elif status is None:  # the batch expired before, or was cancelled
            cost, why = 0, "not answered in its batch"
        elif status != 200:
            why = f"HTTP {status}"
            if 400 <= status < 500:
                cost = 0
                self.singly.add((row["item"], row["slot"]))
        else:
            try:
                if (counted := tokens_of(completion(payload))) is not None:
                    cost = half(of).rates.cost(*counted)
            except ValueError:
                why = "no chat completion"
        self._calls.ended(number, cost, why, payload)

    def _found(self, file: str) -> dict[str, Any]:
        """The batch of an input file; empty where the server has none."""
        page, more = "", True
        while more:
            listed = formats.parsed(self._sent(f"GET /batches?limit=100{page}"))
            for each in listed["data"]:
                if each["input_file_id"] == file:
                    return dict(each)
            if more := bool(listed.get("has_more")):
                page = f"&after={listed['data'][-1]['id']}"
        return {}

    def _sent(self, what: str, body: bytes = b"", kind: str = JSON) -> bytes:
        try:
            reply = self._endpoint.send(what, body, kind, ANSWERS)
        except (NotSent, Lost) as fault:
            raise NoBatch(f"{what} got {fault}") from fault
        if reply.status != 200 and not what.startswith("DELETE"):
            raise NoBatch(f"it answered {what} with HTTP {reply.status}")
        return reply.payload


def half(questions: Questions) -> Questions:
    """The questions at the price of a batch."""
    rates = Rates(questions.rates.read / 2, questions.rates.written / 2)
    return replace(questions, rates=rates)
