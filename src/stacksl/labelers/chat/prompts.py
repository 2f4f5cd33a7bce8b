"""How a model is asked for labels: a request as a chat completion, what it may cost, its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from stacksl.errors import SettingsError
from stacksl.files import formats
from stacksl.labelers.chat.replies import LETTERS, place_in, text_of

Way = Literal["schema", "letter", "text"]
LIMIT, LATER_LIMIT = "max_tokens", "max_completion_tokens"  # the names of an answer's length
OPTIONAL = (LATER_LIMIT, LIMIT, "temperature")  # what some servers refuse
THOUGHT = 4096  # tokens of an answer where the model thinks before it
SPACE = 64  # tokens of blanks that a server's grammar of JSON lets a model write
TOO_LONG = re.compile(
    r"context[ _](?:size|length|window)|(?:prompt|input) is too long|max_model_len", re.IGNORECASE
)

DEFAULT = """Choose the option that is right.

{examples}{prompt}

Options:
{options}

{answer}"""
"""The template of a prompt. `label_template` names a file with another one."""


class Shot(NamedTuple):
    """A labeled item that is shown as an example: its id, its prompt, and its label's text."""

    item: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Question:
    """A request: its JSON `body`, and what it was made of.

    Attributes:
        way: how it asks.
        order: the candidates that it shows, by their indices.
        shots: the items of its examples, by their ids.
        body: what is sent.
    """

    way: Way
    order: tuple[int, ...]
    shots: tuple[str, ...]
    body: dict[str, Any]


def template_of(text: str, shots: int = 0) -> str:
    """A template after a check of what it has to hold.

    Raises:
        SettingsError: `{prompt}` or `{options}` is missing, or `{examples}` with `shots`.
    """
    placeholders = ("{prompt}", "{options}", "{examples}")[: 3 if shots else 2]
    missing = [name for name in placeholders if name not in text]
    if missing:
        raise SettingsError(
            "the server.label_template should hold {prompt} and {options} (and {answer}, how to"
            f" answer, and {{examples}} for shots), got none of {', '.join(missing)}: add it"
        )
    return text


def ways(count: int) -> tuple[Way, Way]:
    """How a server can be asked about so many options, the best way first: a schema, free text.

    Options have letters as far as there are letters.
    """
    return ("schema", "letter" if count <= len(LETTERS) else "text")


def order_of(seed: int, prompt: str, candidates: Sequence[str]) -> tuple[int, ...]:
    """The order in which candidates are shown: drawn by the content, so that equal items agree."""
    content = sha256(json.dumps([seed, prompt, list(candidates)]).encode()).digest()

    def key(index: int) -> bytes:
        return sha256(content + index.to_bytes(4)).digest()

    return tuple(sorted(range(len(candidates)), key=key))


def body_of(
    model: str,
    template: str,
    prompt: str,
    options: Sequence[str],
    way: Way,
    shots: Sequence[Shot] = (),
    limit: int | None = None,
) -> dict[str, Any]:
    """The JSON body of a request that shows the candidates in the order `options`.

    The answer may have `limit` tokens, or what the options need.
    """
    letters = len(options) <= len(LETTERS)
    marks = [f"{letter}. " for letter in LETTERS] if letters else ["- "] * len(options)
    lines = [f"{mark}{text}" for mark, text in zip(marks, options, strict=False)]
    line_of = {text: line for text, line in zip(options, lines, strict=False) if letters}
    fields = {
        "prompt": prompt,
        "options": "\n".join(lines),
        "examples": "".join(
            f"{s.prompt}\nAnswer: {line_of.get(s.answer, s.answer)}\n\n" for s in shots
        ),
        "answer": "Answer with the letter of one option and nothing else."
        if letters
        else "Answer with one of the options, word for word, and nothing else.",
    }
    placeholder = r"\{(prompt|options|examples|answer)\}"
    text = re.sub(placeholder, lambda match: fields[match[1]], template)
    length = 8 if letters else max(len(option.encode(errors="replace")) for option in options) + 24
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        LIMIT: limit or min(512, length + (SPACE if way == "schema" else 0)),
    }
    if way == "schema":
        answers = LETTERS[: len(options)] if letters else dict.fromkeys(options)
        choice = {"type": "string", "enum": list(answers)}
        schema: dict[str, Any] = {"type": "object", "properties": {"answer": choice}}
        schema |= {"required": ["answer"], "additionalProperties": False}
        json_schema = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return body


def without(body: Mapping[str, Any], refused: Set[str]) -> dict[str, Any]:
    """A body as a server takes it that refused some of `OPTIONAL`; the limit is as long as before.

    >>> without({"max_tokens": 8, "temperature": 0}, {"max_tokens", "temperature"})
    {'max_completion_tokens': 8}
    """
    names = {LIMIT: LATER_LIMIT} if LIMIT in refused else {}
    fields = {name: value for name, value in body.items() if name in names or name not in refused}
    return {names.get(name, name): value for name, value in fields.items()}


def refused_in(payload: bytes, body: Mapping[str, Any]) -> str | None:
    """Which of `OPTIONAL` in a `body` a server's error names; its echo of the body is not read."""
    texts = _error_texts(payload)
    names = (name for text in texts for name in OPTIONAL if re.search(rf"\b{name}\b", text))
    return next((name for name in names if name in body), None)


def too_long(payload: bytes) -> bool:
    """Whether a server's error says that the prompt is longer than the model's context."""
    return any(TOO_LONG.search(text) for text in _error_texts(payload))


def _error_texts(payload: bytes) -> list[str]:
    """What an error says, in the places where servers say it."""
    content = payload.decode("utf-8", "replace")
    try:
        reply = formats.parsed(content)
    except ValueError:
        reply = {"message": content}
    error = reply["error"] if isinstance(reply.get("error"), dict) else reply
    values = [error.get(name) for name in ("param", "message", "error", "type", "code", "detail")]
    if isinstance(details := values[-1], list):
        values += [
            str([note.get("loc"), note.get("msg")]) for note in details if isinstance(note, dict)
        ]
    return [text for text in values if isinstance(text, str)]


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as the bytes that are sent."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def completion(payload: bytes | str) -> dict[str, Any]:
    """The chat completion in the content of an answer.

    Raises:
        ValueError: there is none.
    """
    text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
    content = formats.parsed(text)
    choices = content.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise ValueError("no chat completion")
    return content


def tokens_of(reply: Mapping[str, Any]) -> tuple[int, int] | None:
    """The tokens of prompt and answer that the server counted; None where it named none.

    A server may count the tokens of a thought in their total alone. Every prompt has some tokens.
    """
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(read) is not int or type(written) is not int or read < 1 or written < 0:
        return None
    total = usage.get("total_tokens")
    return read, max(written, total - read if type(total) is int else 0)


def position_of(reply: Mapping[str, Any], options: Sequence[str]) -> int | None:
    """The place among `options` that a completion names; None where it names none, or refuses."""
    cut = reply["choices"][0].get("finish_reason") == "length"
    return place_in(text_of(reply), options, letters=len(options) <= len(LETTERS), cut=cut)


OVERHEAD = 100  # tokens that a server may add to a request


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of a million tokens that are read and written: micro-units of money a token."""

    read: Decimal
    written: Decimal

    def cost(self, read: int, written: int) -> int:
        """What so many tokens cost, in micro-units, rounded up."""
        exact_cost = self.read * read + self.written * written
        return int(exact_cost.to_integral_value(rounding=ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Questions:
    """How a model is asked: its name, the template, the seed of the order, and its rates.

    An answer has at most `limit` tokens, or what the options need.
    """

    model: str
    template: str
    seed: int
    rates: Rates
    limit: int | None = None

    def of(
        self, prompt: str, candidates: Sequence[str], shots: Sequence[Shot] = ()
    ) -> dict[Way, Question]:
        """The requests that ask for a label, the best way first."""
        order, by_way = order_of(self.seed, prompt, candidates), {}
        names = tuple(shot.item for shot in shots)
        options = [candidates[index] for index in order]
        for way in ways(len(candidates)):
            body = body_of(self.model, self.template, prompt, options, way, shots, self.limit)
            by_way[way] = Question(way, order, names, body)
        return by_way

    def most(self, body: dict[str, Any]) -> int:
        """The most that a request costs: a token has one byte at least."""
        return self.rates.cost(len(encoded(body)) + OVERHEAD, body[LIMIT])

    def dearest(self, prompt: str, candidates: Sequence[str], shots: Sequence[Shot] = ()) -> int:
        """The most that one call about an item costs, whichever way it is asked."""
        bodies = (
            body_of(self.model, self.template, prompt, candidates, way, shots, self.limit)
            for way in ways(len(candidates))
        )
        return max(map(self.most, bodies))
