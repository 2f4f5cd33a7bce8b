"""An item to the text a language model reads and the continuations it is asked about.

Two protocols, named in every table: `option` asks for the text of each candidate, `letter` lists
the candidates in the prompt and asks for their letters.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..errors import DataError, SettingsError, unknown_name
from ..items import Item

__all__ = ["PROTOCOLS", "TEMPLATES", "PmiContext", "Prompt", "PromptFormat", "Protocol", "template"]

Protocol: TypeAlias = Literal["letter", "option"]
PmiContext: TypeAlias = Literal["empty", "template"]

PROTOCOLS: tuple[Protocol, ...] = ("letter", "option")
TEMPLATES: Mapping[str, str] = {
    "answer": "{prompt}\nAnswer:",
    "plain": "{prompt}",
    "question": "Question: {prompt}\nAnswer:",
    "letters": "Question: {prompt}\n{options}\nAnswer:",
}
"""The named templates; `answer` is the default of `option`, `letters` that of `letter`."""

_FIELD = re.compile(r"\{(\w+)\}")
_FIELDS = {"prompt", "options"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads of one item, and what may follow.

    Attributes:
        id: the item's.
        text: the context, the same for every candidate.
        continuations: one per candidate, in the item's order, with the delimiter in front.
        lengths: the characters of each continuation without the delimiter (`char_mean`'s divisor).
        opened: `text` already begins with the special tokens that the tokenizer would add.
    """

    id: str
    text: str
    continuations: tuple[str, ...]
    lengths: tuple[int, ...]
    opened: bool = False


@dataclass(frozen=True)
class PromptFormat:
    """How items are put to a model: template, protocol, and the tokenizer's chat form if wanted.

    Args:
        template: the text with `{prompt}` in it; `letter` needs `{options}` too. Text of items is
            put in as it is, so braces in it mean nothing.
        protocol: `option` or `letter`.
        chat: a tokenizer whose chat template wraps the rendered text as the user's turn, with the
            assistant's turn opened; None for plain text. The delimiter between the context and a
            continuation is then empty instead of one space.
        pmi_context: what stands in for the prompt where `pmi` asks how likely a continuation is
            on its own: `empty`, no text at all (lm-eval's `acc_mutual_info`), or `template`, the
            template around an empty prompt.

    Raises:
        SettingsError: the template lacks a field or has an unknown one, the protocol is unknown,
            or the tokenizer has no chat template.
    """

    template: str = TEMPLATES["answer"]
    protocol: Protocol = "option"
    chat: Any = None
    pmi_context: PmiContext = "empty"

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise unknown_name("protocol", self.protocol, PROTOCOLS)
        if self.pmi_context not in ("empty", "template"):
            raise unknown_name("pmi_context", self.pmi_context, ("empty", "template"))
        found = set(_FIELD.findall(self.template))
        needed = _FIELDS if self.protocol == "letter" else {"prompt"}
        if needed - found or found - _FIELDS:
            wrong = sorted(needed - found) or sorted(found - _FIELDS)
            what = "lacks" if needed - found else "has the unknown"
            raise SettingsError(
                f"a template for protocol '{self.protocol}' takes the fields {{prompt}} and "
                f"{{options}}, and this one {what} {', '.join('{' + name + '}' for name in wrong)}"
                ": correct the template"
            )
        if self.chat is not None and not getattr(self.chat, "chat_template", None):
            raise SettingsError(
                "the chat form needs a tokenizer with a chat template, and this model's has none: "
                "leave the chat form out, or take the model's instruction-tuned version"
            )

    def render(self, item: Item) -> Prompt:
        """The prompt of `item` with its continuations.

        Raises:
            DataError: `letter` with more candidates than letters.
        """
        return self._prompt(item, self._wrapped(self._filled(item.prompt, item)))

    def render_alone(self, item: Item) -> Prompt:
        """The continuations of `item` without what it asks: the second term of `pmi`."""
        if self.pmi_context == "empty":
            return self._prompt(item, "", opened=False)
        return self._prompt(item, self._wrapped(self._filled("", item)))

    def _prompt(self, item: Item, text: str, *, opened: bool | None = None) -> Prompt:
        answers = self._answers(item)
        delimiter = " " if self.chat is None else ""
        return Prompt(
            item.id,
            text,
            tuple(delimiter + answer for answer in answers),
            tuple(map(len, answers)),
            opened=self.chat is not None if opened is None else opened,
        )

    def _answers(self, item: Item) -> tuple[str, ...]:
        if self.protocol == "option":
            return item.candidates
        return tuple(_letters(item))

    def _filled(self, prompt: str, item: Item) -> str:
        values = {"prompt": prompt, "options": ""}
        if self.protocol == "letter" or "{options}" in self.template:
            pairs = zip(_letters(item), item.candidates, strict=True)
            values["options"] = "\n".join(f"{letter}. {text}" for letter, text in pairs)
        return _FIELD.sub(lambda field: values[field.group(1)], self.template)

    def _wrapped(self, text: str) -> str:
        if self.chat is None:
            return text
        turn = [{"role": "user", "content": text}]
        return str(self.chat.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))


def template(spec: str | None, protocol: Protocol = "option") -> str:
    """The template that `spec` names: one of `TEMPLATES`, or a UTF-8 file that holds one.

    Args:
        spec: a name, a path, or None for the protocol's default. One line end at the end of a
            file is not part of its template.
        protocol: `option` or `letter`.

    Raises:
        SettingsError: no template of that name and no file there, or a file that is not text.

    >>> template(None, "option")
    '{prompt}\\nAnswer:'
    """
    if spec is None:
        return TEMPLATES["letters" if protocol == "letter" else "answer"]
    if spec in TEMPLATES:
        return TEMPLATES[spec]
    try:
        return Path(spec).read_text(encoding="utf-8").removesuffix("\n")
    except (FileNotFoundError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise SettingsError(
                f"a template is UTF-8 text, and {spec} is not: save it as such"
            ) from None
        raise unknown_name("template (and no file is there)", spec, TEMPLATES) from None
    except OSError as error:
        raise SettingsError(
            f"the template {spec} cannot be read ({error.strerror}): give a name or a text file"
        ) from None


def _letters(item: Item) -> str:
    if len(item.candidates) > len(string.ascii_uppercase):
        raise DataError(
            f"protocol 'letter' has 26 letters, and item '{item.id}' has "
            f"{len(item.candidates)} candidates: use protocol 'option'"
        )
    return string.ascii_uppercase[: len(item.candidates)]
