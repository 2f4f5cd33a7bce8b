"""Templates, protocols and the chat form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import DataError, RunWarning, SettingsError
from stacksl.lm.prompt.format import TEMPLATES, PromptFormat, template
from stacksl.runs.session.language import chat_arguments
from stacksl.types import Item

ITEM = Item("q1", "Which {vitamin} is it?", ("vitamin C", "{options}", "K"))


def test_option_puts_each_candidate_after_one_space() -> None:
    prompt = PromptFormat().render(ITEM)
    assert prompt.text == "Which {vitamin} is it?\nAnswer:"
    assert prompt.continuations == (" vitamin C", " {options}", " K")
    assert prompt.lengths == (9, 9, 1)


def test_letter_lists_the_candidates_and_asks_for_letters() -> None:
    prompt = PromptFormat(template(None, "letter"), "letter").render(ITEM)
    assert prompt.text == (
        "Question: Which {vitamin} is it?\nA. vitamin C\nB. {options}\nC. K\nAnswer:"
    )
    assert prompt.continuations == (" A", " B", " C")
    assert prompt.lengths == (1, 1, 1)


def test_more_candidates_than_letters_are_refused() -> None:
    many = Item("big", "?", tuple(str(number) for number in range(27)))
    with pytest.raises(DataError, match="'big' has 27 candidates: use answer format 'option'"):
        PromptFormat(TEMPLATES["letters"], "letter").render(many)


@pytest.mark.parametrize(
    ("text", "protocol", "said"),
    [
        ("no field", "option", r"lacks \{prompt\}"),
        ("{prompt}", "letter", r"lacks \{options\}"),
        ("{prompt} {anwser}", "option", r"unknown \{anwser\}"),
    ],
)
def test_a_wrong_template_is_refused(text: str, protocol: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        PromptFormat(text, protocol)


@pytest.mark.parametrize(
    ("text", "context", "prompt", "premise"),
    [
        ("# {prompt}\ndef", "template", "Sort.", "# \ndef"),
        ("# {prompt}\ndef", "empty", "Sort.", ""),
        ("{prompt}", "last_line", "# Sort.\n# Fast.\nclass", "\nclass"),
        ("<{prompt}>", "last_line", "Sort.", "<>"),
    ],
)
def test_the_premise_is_what_is_left_without_the_question(
    text: str, context: Any, prompt: str, premise: str
) -> None:
    alone = PromptFormat(text, pmi_context=context).render_alone(replace(ITEM, prompt=prompt))
    assert (alone.text, alone.continuations[0]) == (premise, " vitamin C")
    assert PromptFormat().pmi_context == "template"


class Chat:
    """A tokenizer's chat side."""

    chat_template = "wrapped"

    def apply_chat_template(
        self, turns: Any, *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in turns) + "<assistant>"


def test_chat_wraps_the_text_and_drops_the_delimiter() -> None:
    prompt = PromptFormat("{prompt}", chat=Chat()).render(ITEM)
    assert prompt.text == "<user>Which {vitamin} is it?<assistant>"
    assert prompt.continuations[0] == "vitamin C"
    assert prompt.opened


class Thinking(Chat):
    def apply_chat_template(
        self, turns: Any, *, enable_thinking: bool = True, **settings: Any
    ) -> str:
        whole = super().apply_chat_template(turns, **settings)
        return f"{whole}<think>\n" if enable_thinking else f"{whole}<think>\n\n</think>\n\n"


def test_chat_has_a_system_turn_and_arguments_of_its_own() -> None:
    given = chat_arguments("enable_thinking=false")
    form = PromptFormat("{prompt}", chat=Thinking(), system="Be brief.", chat_arguments=given)
    told = "<system>Be brief.<user>Which {vitamin} is it?<assistant><think>\n\n</think>\n\n"
    assert form.render(ITEM).text == told
    with pytest.raises(SettingsError, match="belong to the chat form: give --chat"):
        PromptFormat(system="Be brief.")
    with pytest.raises(SettingsError, match="chat template of this model refuses .*'depth'"):
        PromptFormat(chat=Chat(), chat_arguments={"depth": 3}).render(ITEM)
    with pytest.raises(SettingsError, match="should be NAME=VALUE .* got 'enable_thinking'"):
        chat_arguments("enable_thinking")


def test_a_chat_template_that_opens_a_thought_is_warned_of(recwarn) -> None:
    PromptFormat(chat=Chat()).warn_of_thought()
    given = chat_arguments("enable_thinking=false")
    PromptFormat(chat=Thinking(), chat_arguments=given).warn_of_thought()
    assert not recwarn
    with pytest.warns(RunWarning, match=r"opens a thought, .* lm.chat_arguments=enable_thinking"):
        PromptFormat(chat=Thinking()).warn_of_thought()


def test_a_chat_template_that_leaves_the_text_out_is_refused() -> None:
    class Parts(Chat):  # as of some models that also see
        def apply_chat_template(self, turns: Any, **settings: Any) -> str:
            parts = [part for turn in turns for part in turn["content"] if isinstance(part, dict)]
            return f"<user>{parts}<assistant>"

    with pytest.raises(SettingsError, match="leaves the text of a turn out.*: leave the chat form"):
        PromptFormat(chat=Parts())


def test_a_chat_template_that_fails_is_refused_with_what_was_given() -> None:
    class Failing(Chat):
        def apply_chat_template(self, turns: Any, **settings: Any) -> str:
            raise ValueError("no roles")

    with pytest.raises(SettingsError, match=r"turns \(no roles\): leave the chat form out"):
        PromptFormat(chat=Failing())
    with pytest.raises(SettingsError, match="leave lm.system or lm.chat_arguments out"):
        PromptFormat(chat=Failing(), system="Be brief.")


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    class Plain:
        chat_template = None

    with pytest.raises(SettingsError, match="has none"):
        PromptFormat(chat=Plain())


def test_templates_come_by_name_or_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Q {prompt}\nA:\n", encoding="utf-8")
    assert template(str(file)) == "Q {prompt}\nA:"
    assert template("plain") == "{prompt}"
    with pytest.raises(SettingsError, match="did you mean 'letters'"):
        template("leters")
    file.write_bytes(b"\xff\xfe{prompt}")
    with pytest.raises(SettingsError, match="UTF-8"):
        template(str(file))
    with pytest.raises(SettingsError, match="cannot be read"):
        template(str(tmp_path))
