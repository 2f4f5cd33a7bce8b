"""Token rows: where prompt and option meet, what is cut, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stacksl.errors import DataError
from stacksl.lm.prompt.format import Prompt
from stacksl.lm.prompt.tokens import Limits, Tokenizing


def prompt_of(text: str, *continuations: str) -> Prompt:
    return Prompt("q", text, continuations, tuple(map(len, continuations)))


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=4))
def test_the_split_is_that_of_lm_eval(tokenizer: Any, text: str, options: list[str]) -> None:
    """Its rule, written down again: space moves over, then the joint ids beyond the context's."""
    follows = [" " + option for option in options]
    context = text.rstrip()
    expected = []
    for follow in follows:
        moved = text[len(context) :] + follow
        whole = tokenizer(context + moved, add_special_tokens=False)["input_ids"]
        skip = len(tokenizer(context, add_special_tokens=False)["input_ids"]) if context else 0
        expected.append(tuple(whole[skip:]))
    assume(all(option.strip() for option in options))
    assume(all(expected) and len(set(expected)) == len(expected))
    row = Tokenizing(tokenizer).items([prompt_of(text, *follows)])[0]
    assert row.options == tuple(expected)


def test_an_option_that_vanishes_in_the_prompts_last_token_is_refused(tokenizer: Any) -> None:
    assert len(tokenizer("the answer")["input_ids"]) <= len(tokenizer("the answ")["input_ids"])
    with pytest.raises(DataError, match="candidate 1 .* becomes one token with the end"):
        Tokenizing(tokenizer).items([prompt_of("the answ", "er", "xyz")])


@pytest.mark.parametrize("wrong", ["", " ", "\n"])
def test_an_empty_option_is_refused(tokenizer: Any, wrong: str) -> None:
    with pytest.raises(DataError, match="candidate 2 of item 'q' has no tokens"):
        Tokenizing(tokenizer).items([prompt_of("a", " b", wrong)])


def test_options_that_are_equal_are_refused(tokenizer: Any) -> None:
    with pytest.raises(DataError, match="candidates 1 and 3 of item 'q' have the same tokens: "):
        Tokenizing(tokenizer).items([prompt_of("a", " b", " c", " b")])
    short = Tokenizing(tokenizer, Limits(max_len_choice=1))
    with pytest.raises(
        DataError, match="first tokens, and lm.max_len_choice keeps 1: set it higher"
    ):
        short.items([prompt_of("a", " the sorted values", " the mean")])


def test_the_end_of_a_prompt_is_kept_and_the_cut_is_noted(tokenizer: Any) -> None:
    whole = Tokenizing(tokenizer).items([prompt_of("values " * 30 + "end:", " one of them", " b")])[
        0
    ]
    limits = Limits(max_len_prompt=6, max_len_choice=2)
    cut = Tokenizing(tokenizer, limits).items(
        [prompt_of("values " * 30 + "end:", " one of them", " b"), prompt_of("end:", " a", " b")]
    )
    assert cut[0].prompt == whole.prompt[-6:]
    assert cut[0].options[0] == whole.options[0][:2]
    assert [row.cut for row in cut] == [True, False]
    long = Limits(max_len_choice=2)
    assert Tokenizing(tokenizer, long).items([prompt_of("a", " one of them", " b")])[0].cut


def test_a_long_text_is_cut_without_a_word_of_the_tokenizer(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers says that a text longer than the model reads will end in errors."""
    said: list[str] = []
    monkeypatch.setattr(tokenizer, "model_max_length", 8)
    monkeypatch.setattr(logging.Logger, "warning", lambda _, text, *__: said.append(text))
    tokenizer("values " * 30)
    assert said.pop().startswith("Token indices sequence length is longer")
    Tokenizing(tokenizer, Limits(positions=8)).items([prompt_of("values " * 30, " a", " b")])
    assert not said


def test_prompts_give_way_to_the_longest_option(tokenizer: Any) -> None:
    row = Tokenizing(tokenizer, Limits(positions=12)).items(
        [prompt_of("values " * 30, "the middle of", "b")]
    )[0]
    assert len(row.prompt) + max(map(len, row.options)) == 12
    with pytest.raises(DataError, match="no room for a prompt in the model's 3 positions"):
        Tokenizing(tokenizer, Limits(positions=3)).items([prompt_of("values", " the mean of two")])


def test_an_empty_prompt_has_one_token(tokenizer: Any) -> None:
    row = Tokenizing(tokenizer).items([prompt_of("", "a", "b")])[0]
    assert row.prompt == (tokenizer.eos_token_id,)


def test_the_opening_token_is_the_tokenizers_own(stories: Path) -> None:
    import transformers as tf

    tokenizer = tf.AutoTokenizer.from_pretrained(stories)
    assert tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
    whole = Tokenizing(tokenizer).items([prompt_of("Once upon", " a", " the")])[0]
    assert whole.prompt[0] == tokenizer.bos_token_id
    short = Tokenizing(tokenizer, Limits(max_len_prompt=2))
    row = short.items([prompt_of("Once upon a time there was", " a", " the")])[0]
    assert row.prompt[0] == tokenizer.bos_token_id  # kept when the prompt is cut
    assert len(row.prompt) == 2
    chat = Prompt("q", "<s>Once", (" a", " the"), (1, 3), opened=True)  # it has one already
    assert Tokenizing(tokenizer).items([chat])[0].prompt.count(tokenizer.bos_token_id) == 1
