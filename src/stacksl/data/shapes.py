"""Shapes: how one row of a file gives its prompt, its candidates and its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from stacksl.data.classes import Bank
from stacksl.data.values import RowFault, gold_index, is_missing, options, text

_ROLES = ("prompt", "candidates", "label", "id")


class Draft(NamedTuple):
    """A parsed row. Without `candidates` the classes of the file are meant, and `label` is
    one of them, or empty.
    """

    prompt: str
    candidates: tuple[str, ...] | None = None
    gold: int | None = None
    label: str = ""


class Shape:
    """Reads rows of one kind.

    Attributes:
        name: the shape's name in `Dataset.format`.
    """

    __slots__ = ()

    name: str

    @property
    def columns(self) -> dict[str, str]:
        """Role to the column read for it."""
        found = {role: getattr(self, role, None) for role in _ROLES}
        return {role: column for role, column in found.items() if column is not None}

    @property
    def also_read(self) -> tuple[str, ...]:
        """Columns that are read and have no role of their own."""
        return ()

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row with these values by column; raises `RowFault` where it cannot be used."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ClassShape(Shape):
    """A prompt and a label of a fixed set: the classes become every item's candidates."""

    prompt: str
    label: str | None
    id: str | None = None
    name = "classes"

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row's prompt and label."""
        label = values.get(self.label) if self.label else None
        if isinstance(label, list | tuple):
            if len(label) > 1:
                raise RowFault("several labels: multi-label data is not supported")
            label = label[0] if label else None
        return Draft(text(values.get(self.prompt), "the prompt"), label=text(label, "the label"))


@dataclass(frozen=True, slots=True)
class BankShape(Shape):
    """A prompt and the text or id of its answer in a bank, which is every item's candidates."""

    prompt: str
    label: str | None
    bank: Bank
    id: str | None = None
    name = "bank"

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row's prompt and the place of its answer in the bank."""
        label = text(values.get(self.label), "the answer") if self.label else ""
        if label and label not in self.bank.places:
            raise RowFault("unknown answer: it is neither a text nor an id of the bank")
        gold = self.bank.places[label] if label else None
        return Draft(text(values.get(self.prompt), "the prompt"), self.bank.texts, gold)


@dataclass(frozen=True, slots=True)
class OptionsShape(Shape):
    """A prompt with its own list of options in one column, and the answer in another.

    A row without options, but with a label, is read as one of the file's classes.
    """

    name: str
    prompt: str
    candidates: str
    label: str | None
    id: str | None = None

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row's prompt, options and gold index."""
        prompt = text(values.get(self.prompt), "the prompt")
        answer = values.get(self.label) if self.label else None
        given = values.get(self.candidates)
        if is_missing(given):
            label = next((values[c] for c in ("label", "category") if c in values), None)
            if not is_missing(label):
                return Draft(prompt, label=text(label, "the label"))
            raise RowFault("no options: the candidates are missing")
        candidates, keys = options(given)
        return Draft(prompt, candidates, gold_index(answer, candidates, keys))


@dataclass(frozen=True, slots=True)
class LetteredShape(Shape):
    """A prompt, one column an option (A, B, C, ...), and the letter of the answer."""

    prompt: str
    letters: tuple[str, ...]
    label: str | None
    id: str | None = None
    name = "mmlu"

    @property
    def also_read(self) -> tuple[str, ...]:
        """The columns of the options."""
        return self.letters

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row's prompt, options and gold index; empty columns at the end are no options."""
        cells = [text(values.get(name), "an option") for name in self.letters]
        while cells and not cells[-1]:
            cells.pop()
        keys = [chr(ord("A") + i) for i in range(len(cells))]
        answer = values.get(self.label) if self.label else None
        letter = text(answer, "the answer").upper()
        gold = keys.index(letter) if letter in keys else gold_index(answer, cells, keys)
        return Draft(text(values.get(self.prompt), "the prompt"), tuple(cells), gold)


@dataclass(frozen=True, slots=True)
class PreferenceShape(Shape):
    """A prompt with a preferred response and others: candidates in an order that is hashed.

    The responses are `chosen` and `rejected` (one text, or a list of them), or `responses`, the
    best first unless `best` gives the 0-based index of the best one. Where `prompt` is None, it is
    what chosen and rejected begin with alike (the implicit prompt of the library TRL).
    """

    prompt: str | None
    seed: int
    id: str | None = None
    name = "preferences"

    @property
    def also_read(self) -> tuple[str, ...]:
        """The columns of responses."""
        return ("chosen", "rejected", "responses", "best")

    def draft(self, values: Mapping[str, Any], id: str) -> Draft:
        """The row's prompt and its responses, permuted by a hash of (seed, id)."""
        if self.prompt is None:
            asked, values = _shared(values)
        else:
            asked = text(values.get(self.prompt), "the prompt")
        responses, best = _responses(values)
        if not responses:
            raise RowFault("under two options: 0")
        order = permutation(self.seed, id, len(responses))
        return Draft(asked, tuple(responses[i] for i in order), order.index(best))


def permutation(seed: int, id: str, size: int) -> list[int]:
    """The order 0..size−1 sorted by a hash of (seed, id, position): the same on every machine."""

    def key(position: int) -> bytes:
        return blake2b(f"{seed}\x1f{position}\x1f{id}".encode(), digest_size=16).digest()

    return sorted(range(size), key=key)


def _shared(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What chosen and rejected begin with, whole turns or words, and what each has beyond it."""
    chosen: Any = values.get("chosen")
    rejected: Any = values.get("rejected")
    if _is_chat(chosen) and _is_chat(rejected):
        pairs = zip(chosen[:-1], rejected[:-1], strict=False)
        count = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        count = min(len(chosen), len(rejected)) - 1 if count is None else count
        turns = chosen[:count]
        said = [text(turn["content"], "the prompt") for turn in turns]
        if len(turns) > 1:
            said = [f"{turn.get('role', '')}: {own}" for turn, own in zip(turns, said, strict=True)]
        return "\n".join(said), {"chosen": chosen[count:], "rejected": rejected[count:]}
    one, other = text(chosen, "a response"), text(rejected, "a response")
    letters = enumerate(zip(one, other, strict=False))
    count = next((at for at, (a, b) in letters if a != b), min(len(one), len(other)))
    while count and not one[count - 1].isspace():
        count -= 1
    return one[:count].strip(), {"chosen": one[count:], "rejected": other[count:]}


def _responses(values: Mapping[str, Any]) -> tuple[list[str], int]:
    listed = values.get("responses")
    if listed is not None:
        texts, _ = options(listed)
        best = gold_index(values.get("best", 0), texts, ())
        return list(texts), best or 0
    rejected = values.get("rejected")
    others = rejected if isinstance(rejected, list) and not _is_chat(rejected) else [rejected]
    return [_response(values.get("chosen")), *(_response(other) for other in others)], 0


def _response(value: Any) -> str:
    """A response as text; of a chat, its last message."""
    if _is_chat(value):
        value = value[-1]["content"]
    return text(value, "a response")


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, Mapping) and "content" in turn for turn in value)
    )


def letter_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that are options A, B, C, ... (also option_a, option1, choice 1), in order."""
    found: dict[str, str] = {}
    for name in columns:
        bare = name.strip().lower()
        for prefix in ("option", "choice", "answer"):
            if bare.startswith(prefix) and len(bare) > len(prefix):
                bare = bare.removeprefix(prefix).strip(" _-")
        if len(bare) == 1 and bare in "abcdefghijklmnopqrstuvwxyz":
            found.setdefault(bare, name)
        elif bare != name.strip().lower() and re.fullmatch("[1-9]", bare):
            found.setdefault(chr(ord("a") + int(bare) - 1), name)
    run = []
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if letter not in found:
            break
        run.append(found[letter])
    return tuple(run) if len(run) >= 2 else ()
