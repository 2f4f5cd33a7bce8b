"""Batches of questions to a server with OpenAI's batch API: half the price, within a day.

Questions go as a file of JSON lines, and a later session collects the answers. A call is recorded
with the file's name at the server before its batch begins, and the batch is found again by that
name: none is begun twice, and one that is not found costs the most that it may have cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

from stacksl.files import formats
from stacksl.labelers.chat.calls import UNCOUNTED, Calls, PlannedCall
from stacksl.labelers.chat.endpoint import JSON, Endpoint, Lost, NotSent
from stacksl.labelers.chat.prompts import Questions, Rates, completion, encoded, tokens_of
from stacksl.report.wording import plural

MOST, SPACE = 10_000, 50_000_000  # questions of a batch, and their bytes
ANSWERS = 400_000_000  # bytes of an answer of the server
ENDED = ("completed", "failed", "expired", "cancelled", "lost")  # in others it is at work
TO = "/v1/chat/completions"
_EDGE = "stacksl-7c1f0e55"  # between the parts of a form: no line of JSON is this
_FORM = (
    f'--{_EDGE}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{_EDGE}\r\n'
    'Content-Disposition: form-data; name="file"; filename="questions.jsonl"\r\n\r\n'
)


class Batches:
    """The batches of a run at a server. A file of another form raises ValueError or LookupError.

    Attributes:
        singly: labels, by item and slot, whose question was refused in a batch.
    """

    def __init__(self, endpoint: Endpoint, calls: Calls, warnings: list[str]) -> None:
        self.singly: set[tuple[str, int]] = set()
        self._endpoint, self._calls, self._warnings = endpoint, calls, warnings

    def send(self, calls: Sequence[PlannedCall]) -> int:
        """Begin a batch of the first questions in `calls`; how many they are.

        Raises:
            NotSent, Lost: the server began none, or it may have begun one.
        """
        calls, start = calls[:MOST], self._calls.count + 1
        requests = [{"method": "POST", "url": TO, "body": call.question.body} for call in calls]
        lines = [encoded({"custom_id": str(n), **post}) for n, post in enumerate(requests, start)]
        count = max(1, bisect_right([*accumulate(map(len, lines))], SPACE))
        form = _FORM.encode() + b"\n".join(lines[:count]) + f"\r\n--{_EDGE}--\r\n".encode()
        kind = f"multipart/form-data; boundary={_EDGE}"
        file = str(formats.parsed(self._request("POST /files", form, kind))["id"])
        numbers = self._calls.record_sent(calls[:count], file)
        batch = {"input_file_id": file, "endpoint": TO, "completion_window": "24h"}
        try:
            self._request("POST /batches", encoded(batch))
        except NotSent as fault:
            for number in numbers:
                self._calls.record_end(number, 0, str(fault))
            self._delete(file)
            raise
        return count

    def collect(self, questions: Questions) -> str:
        """Record the answers of the batches that have ended; what stands in the way of others.

        Raises:
            NotSent, Lost: the server does not say.
        """
        waits = []
        for file in sorted({row["batch"] for row in self._calls.in_batches.values()}):
            rows = [row for row in self._calls.in_batches.values() if row["batch"] == file]
            batch, size = self._batch_of(file), f"a batch of {plural(len(rows), 'question')}"
            if (state := batch["status"]) not in ENDED:
                waits.append(f"{size} is not done ({state})")
                continue
            # an answer stands against an error about the same question
            names = [batch[kind] for kind in ("error_file_id", "output_file_id") if batch.get(kind)]
            contents = (f"GET /files/{name}/content" for name in names)
            files = [self._request(content, missing=(404, 410)) for content in contents]
            lines = _answers(files, len(rows))
            missing_count = sum(str(row["call"]) not in lines for row in rows)
            unread = 0 if state == "failed" else missing_count
            if unread:
                self._warnings.append(
                    f"the answer about {plural(unread, 'question')} of a batch is missing or cannot"
                    " be read: each is charged the most that it may have cost, and asked again"
                    " where the label's price allows it"
                )
            for row in rows:
                self._record(row, lines.get(str(row["call"])), half(questions).rates, batch)
            if state == "failed":
                waits.append(f"{size} was refused as a whole (`stacksl ledger requests` shows why)")
            self._delete(file, *(() if unread else names))  # what was not read can be fetched later
        return "; ".join(waits)

    def _delete(self, *files: str) -> None:
        """Delete files, of which the server would keep the prompts; a run does not wait for it."""
        for file in files:
            with suppress(NotSent, Lost):
                self._endpoint.send(f"DELETE /files/{file}", b"")

    def _record(
        self, row: Mapping[str, Any], line: Mapping[str, Any] | None, rates: Rates, batch: Any
    ) -> None:
        """Record how a call in a `batch` ended, by its line in the server's files."""
        number, cost, why = row["call"], row["most"], None
        response = (line or {}).get("response") or {}
        response = response if isinstance(response, dict) else {"status_code": "odd"}
        status, payload = response.get("status_code"), encoded(response.get("body") or {})
        if line is None:
            state, payload = batch["status"], encoded(batch.get("errors") or {})
            cost, why = 0 if state == "failed" else cost, f"its batch is {state}"
        elif status is None:  # the batch expired before, or was cancelled
            cost, why = 0, "not answered in its batch"
        elif status != 200:
            why = f"HTTP {status}"
            if isinstance(status, int) and 400 <= status < 500:
                cost = 0
                self.singly.add((row["item"], row["slot"]))
        else:
            try:
                if (tokens := tokens_of(completion(payload))) is not None:
                    cost = rates.cost(*tokens)
                elif cost:
                    self._warnings.append(UNCOUNTED)
            except ValueError:
                why = "no chat completion"
        self._calls.record_end(number, cost, why, payload)

    def _batch_of(self, file: str) -> dict[str, Any]:
        """The batch of an input file, whose `status` is lost where the server has none."""
        page, previous_page = "", None
        while page != previous_page:
            listing = formats.parsed(self._request(f"GET /batches?limit=100{page}"))
            for batch in listing["data"]:
                if batch["input_file_id"] == file:
                    return dict(batch)
            if not listing.get("has_more"):
                return {"status": "lost"}
            previous_page, page = page, f"&after={listing['data'][-1]['id']}"
        raise ValueError("the same page again")

    def _request(self, call: str, body: bytes = b"", kind: str = JSON, missing: Any = ()) -> bytes:
        try:
            reply = self._endpoint.send(call, body, kind, ANSWERS)
        except (NotSent, Lost) as fault:
            raise type(fault)(f"{call} got {fault}") from fault
        if (status := reply.status) not in missing and not 200 <= status < 300:
            proxied = status >= 500 and status not in (501, 503)  # maybe by one that gave up
            raise (Lost if proxied else NotSent)(f"it answered {call} with HTTP {status}")
        return b"" if status in missing else reply.payload


def _answers(files: Sequence[bytes], questions: int) -> dict[str, dict[str, Any]]:
    """The lines of a batch's files by their ids, without those that cannot be read.

    A file without a readable line may be a page of something else on the way, such as a login. It
    is taken for answers only if there are as many lines as questions.
    """
    by_id, has_page, count = dict[str, dict[str, Any]](), False, 0
    for lines in ([line for line in file.splitlines() if line] for file in files):
        parsed_lines = []
        for line in lines:
            with suppress(ValueError):
                parsed_lines.append(formats.parsed(line))
        by_id |= {str(answer.get("custom_id")): answer for answer in parsed_lines}
        has_page, count = has_page or bool(lines and not parsed_lines), count + len(lines)
    if has_page and count != questions:
        raise ValueError("no line is a JSON object")
    return by_id


def half(questions: Questions) -> Questions:
    """The questions at the price of a batch."""
    rates = Rates(questions.rates.read / 2, questions.rates.written / 2)
    return replace(questions, rates=rates)
