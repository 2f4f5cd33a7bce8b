"""An item to the text a language model reads and the continuations it is asked about.

Two answer formats, named in every table: `option` asks for the text of each candidate, `letter`
lists the candidates in the prompt and asks for their letters.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from stacksl.errors import DataError, SettingsError, unknown_name, warn_user
from stacksl.types import Item

AnswerFormat: TypeAlias = Literal["letter", "option"]
PmiContext: TypeAlias = Literal["template", "last_line", "empty"]

PMI_CONTEXTS: tuple[PmiContext, ...] = ("template", "last_line", "empty")
TEMPLATES: Mapping[str, str] = {
    "answer": "{prompt}\nAnswer:",
    "plain": "{prompt}",
    "question": "Question: {prompt}\nAnswer:",
    "letters": "Question: {prompt}\n{options}\nAnswer:",
}
"""The named templates; `answer` is the default of `option`, `letters` that of `letter`."""

_FIELD = re.compile(r"\{(\w+)\}")
_FIELDS = {"prompt", "options"}
_THOUGHTS = ("<think>", "<thinking>", "<seed:think>", "[THINK]", "◁think▷")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads of one item, and what may follow.

    Attributes:
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
    """How items are put to a model: template, answer format, and the chat form if wanted.

    Args:
        template: the text with `{prompt}` in it; `letter` needs `{options}` too. Text of items is
            put in as it is, so braces in it mean nothing.
        chat: a tokenizer whose chat template wraps the rendered text as the user's turn, with the
            assistant's turn opened; None for plain text. The delimiter between the context and a
            continuation is then empty instead of one space.
        pmi_context: the premise behind which `pmi` asks how likely a continuation is without the
            question: `template`, the template around an empty prompt (Holtzman et al., 2021, call
            it the domain premise); `last_line`, the template around the last line of a prompt of
            several lines, for prompts that end with a cue of their own; or `empty`, no text at
            all (lm-eval's `acc_mutual_info`).
        system: the text of a system turn before the user's; None for none.
        chat_arguments: what the chat template takes besides, such as `enable_thinking`.

    Raises:
        SettingsError: the template lacks a field or has an unknown one, settings of the chat form
            are given without it, or the tokenizer has no chat template.
    """

    template: str = TEMPLATES["answer"]
    answer_format: AnswerFormat = "option"
    chat: Any = None
    pmi_context: PmiContext = "template"
    system: str | None = None
    chat_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        present = set(_FIELD.findall(self.template))
        needed = _FIELDS if self.answer_format == "letter" else {"prompt"}
        if needed - present or present - _FIELDS:
            wrong = sorted(needed - present) or sorted(present - _FIELDS)
            fault = "lacks" if needed - present else "has the unknown"
            raise SettingsError(
                f"a template for answer format '{self.answer_format}' takes the fields {{prompt}}"
                f" and {{options}}, and this one {fault}"
                f" {', '.join('{' + name + '}' for name in wrong)}: correct the template"
            )
        if self.chat is None and (self.system is not None or self.chat_arguments):
            raise SettingsError(
                "lm.system and lm.chat_arguments belong to the chat form: give --chat"
            )
        if self.chat is not None and not getattr(self.chat, "chat_template", None):
            raise SettingsError(
                "the chat form needs a tokenizer with a chat template, and this model's has none: "
                "leave the chat form out, or take the model's instruction-tuned version"
            )
        if self.chat is not None and "text" not in self._wrapped("text"):
            raise SettingsError(
                "the chat template of this model leaves the text of a turn out, as one that takes"
                " lists of parts alone does: leave the chat form out"
            )

    def warn_of_thought(self) -> None:
        """Warn where the chat template opens a thought, in which the options would be scored."""
        if self.chat is not None and self._wrapped("").rstrip().endswith(_THOUGHTS):
            warn_user(
                "the chat template of this model opens a thought, in which options are scored: give"
                " --set lm.chat_arguments=enable_thinking=false if the template knows that, else"
                " leave --chat out"
            )

    def render(self, item: Item) -> Prompt:
        """The prompt of `item` with its continuations.

        Raises:
            DataError: `letter` with more candidates than letters.
        """
        return self._prompt(item, item.prompt)

    def render_alone(self, item: Item) -> Prompt:
        """The continuations of `item` without what it asks: the second term of `pmi`."""
        if self.pmi_context == "empty":
            return self._prompt(item, None)
        line = item.prompt.rfind("\n") if self.pmi_context == "last_line" else -1
        return self._prompt(item, item.prompt[line:] if line >= 0 else "")

    def _prompt(self, item: Item, question: str | None) -> Prompt:
        """The prompt around a `question`; without any text where that is None."""
        answers = item.candidates if self.answer_format == "option" else tuple(letters_of(item))
        delimiter = " " if self.chat is None else ""
        return Prompt(
            item.id,
            "" if question is None else self._wrapped(self._filled(question, item)),
            tuple(delimiter + answer for answer in answers),
            tuple(map(len, answers)),
            opened=self.chat is not None and question is not None,
        )

    def _filled(self, question: str, item: Item) -> str:
        """The template with its fields filled: the candidates one per line behind their letters."""
        values = {"prompt": question}
        if "{options}" in self.template:
            lines = zip(letters_of(item), item.candidates, strict=True)
            values["options"] = "\n".join(f"{letter}. {text}" for letter, text in lines)
        return _FIELD.sub(lambda field: values[field.group(1)], self.template)

    def _wrapped(self, text: str) -> str:
        """The text as the chat template has it."""
        if self.chat is None:
            return text
        turns = [{"role": "user", "content": text}]
        if self.system is not None:
            turns.insert(0, {"role": "system", "content": self.system})
        try:
            return str(
                self.chat.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=True, **self.chat_arguments
                )
            )
        except Exception as error:  # a template can raise anything, such as on a system turn
            given = self.system is not None or self.chat_arguments
            remedy = "lm.system or lm.chat_arguments" if given else "the chat form"
            raise SettingsError(
                f"the chat template of this model refuses the turns ({error}): leave {remedy} out"
            ) from error


def template(spec: str | None, answer_format: AnswerFormat = "option") -> str:
    """The template that `spec` names: one of `TEMPLATES`, or a UTF-8 file that holds one.

    Args:
        spec: a name, a path, or None for the answer format's default. One line end at the end of a
            file is not part of its template.

    Raises:
        SettingsError: no template of that name and no file there, or a file that is not text.

    >>> template(None, "option")
    '{prompt}\\nAnswer:'
    """
    if spec is None:
        return TEMPLATES["letters" if answer_format == "letter" else "answer"]
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


def letters_of(item: Item) -> str:
    """The letters of an item's candidates.

    Raises:
        DataError: it has more than there are letters.
    """
    if len(item.candidates) > len(string.ascii_uppercase):
        raise DataError(
            f"answer format 'letter' has 26 letters, and item '{item.id}' has "
            f"{len(item.candidates)} candidates: use answer format 'option'"
        )
    return string.ascii_uppercase[: len(item.candidates)]
