"""Prompts to token rows: the context once, each continuation where the joint text splits.

The split is lm-eval's: context and continuation are encoded together, the context alone as well,
and the continuation's tokens are what the joint encoding has beyond the context's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stacksl.errors import DataError
from stacksl.lm.prompt.format import Prompt


@dataclass(frozen=True, slots=True)
class TokenItem:
    """The token rows of one item: P tokens of prompt and k options of L_1 .. L_k tokens.

    Attributes:
        prompt: token ids of the context, at least one.
        options: token ids of each continuation, at least one each and no two alike.
        lengths: the characters of each candidate's text.
        cut: whether the prompt lost tokens at its start, or an option at its end.
    """

    id: str
    prompt: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    cut: bool = False

    def among(self, chosen: Sequence[int]) -> TokenItem:
        """The item with some of its options, in the order given."""
        return replace(
            self,
            options=tuple(self.options[index] for index in chosen),
            lengths=tuple(self.lengths[index] for index in chosen),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """How long token rows may be.

    Args:
        max_len_prompt: tokens of a prompt, whose end is kept; None for no limit of its own.
        max_len_choice: tokens of an option, whose start is kept; None for no limit.
        positions: what the model can read at once; the prompt gives way to the longest option.
    """

    max_len_prompt: int | None = None
    max_len_choice: int | None = None
    positions: int | None = None


class Tokenizing:
    """A tokenizer as this package uses it: ids without special tokens, one opening token at most.

    A prompt begins with the beginning-of-text token where the tokenizer adds one by default. An
    empty prompt always has that token, or the end-of-text token where there is no other, since the
    first token needs a context.
    """

    def __init__(self, tokenizer: Any, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._tokenizer = tokenizer
        bos = tokenizer.bos_token_id
        added = bos is not None and list(tokenizer("a")["input_ids"])[:1] == [bos]
        self._opening = (bos,) if added else ()
        self._lone = bos if bos is not None else tokenizer.eos_token_id

    @property
    def opens(self) -> bool:
        """Whether there is a token for an empty prompt to begin with."""
        return self._lone is not None

    def items(self, prompts: Sequence[Prompt]) -> list[TokenItem]:
        """The token rows of `prompts`, in their order.

        Raises:
            DataError: an option has no tokens, two options of an item have the same ones, or the
                limits leave no room for the prompt.
        """
        return [self._item(prompt) for prompt in prompts]

    def _item(self, prompt: Prompt) -> TokenItem:
        text = prompt.text.rstrip()  # the space goes to the continuations: tokens begin with it
        space = prompt.text[len(text) :]
        head = self._encode([text])[0] if text else []
        joint = self._encode([text + space + follow for follow in prompt.continuations])
        options = [tuple(ids[len(head) :]) for ids in joint]
        item = TokenItem(prompt.id, self._opened(head, prompt), tuple(options), prompt.lengths)
        _check(item, prompt, "tokens: make them differ")
        cut, limit = self._within(item), self.limits.max_len_choice
        _check(cut, prompt, f"first tokens, and lm.max_len_choice keeps {limit}: set it higher")
        return cut

    def _encode(self, texts: list[str]) -> list[list[int]]:
        # without its own warning of long texts, which are cut here
        return list(self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])

    def _opened(self, head: list[int], prompt: Prompt) -> tuple[int, ...]:
        opened = (*(() if prompt.opened else self._opening), *head)
        if opened:
            return opened
        if self._lone is None:
            raise DataError(
                f"item '{prompt.id}' has an empty prompt or premise, and this tokenizer has no"
                " token to begin with: give the prompt a text, or choose another template or"
                " lm.normalization"
            )
        return (self._lone,)

    def _within(self, item: TokenItem) -> TokenItem:
        """The item cut to the limits: the end of the prompt is kept, after its opening token."""
        limit = self.limits.max_len_choice
        options = tuple(option[:limit] for option in item.options)
        room = self.limits.max_len_prompt
        if self.limits.positions is not None:
            positions_left = self.limits.positions - max(map(len, options))
            room = positions_left if room is None else min(room, positions_left)
        shortened = replace(item, options=options, cut=options != item.options)
        if room is None or len(item.prompt) <= room:
            return shortened
        opening = self._opening if item.prompt[: len(self._opening)] == self._opening else ()
        opening = opening if room > len(opening) else ()
        if room < 1:
            raise DataError(
                f"item '{item.id}' has an option of {max(map(len, options))} tokens, which leaves "
                f"no room for a prompt in the model's {self.limits.positions} positions: "
                "shorten the option, or set lm.max_len_choice in a new run"
            )
        tail = item.prompt[len(item.prompt) - room + len(opening) :]
        return replace(shortened, prompt=(*opening, *tail), cut=True)


def _check(item: TokenItem, prompt: Prompt, alike: str) -> None:
    numbers: dict[tuple[int, ...], int] = {}
    for number, option in enumerate(item.options):
        if not prompt.continuations[number].strip():
            raise DataError(
                f"candidate {number + 1} of item '{item.id}' has no tokens: give it a text"
            )
        if not option:
            raise DataError(
                f"candidate {number + 1} of item '{item.id}' becomes one token with the end of its "
                "prompt: take a template that ends with a mark or a line end"
            )
        if option in numbers:
            raise DataError(
                f"candidates {numbers[option] + 1} and {number + 1} of item '{item.id}' have the"
                f" same {alike}"
            )
        numbers[option] = number
