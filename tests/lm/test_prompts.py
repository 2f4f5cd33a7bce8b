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


def test_candidates_follow_one_space_and_letters_are_listed() -> None:
    prompt = PromptFormat().render(ITEM)
    assert prompt.text == "Which {vitamin} is it?\nAnswer:"
    assert prompt.continuations == (" vitamin C", " {options}", " K")
    assert prompt.lengths == (9, 9, 1)
    prompt = PromptFormat(template(None, "letter"), "letter").render(ITEM)
    listed = "A. vitamin C\nB. {options}\nC. K"
    assert prompt.text == f"Question: Which {{vitamin}} is it?\n{listed}\nAnswer:"
    assert (prompt.continuations, prompt.lengths) == ((" A", " B", " C"), (1, 1, 1))
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


class Parts(Chat):
    """One that leaves the text of a turn out, as of some models that also see."""

    def apply_chat_template(self, turns: Any, **settings: Any) -> str:
        return "<user>[]<assistant>"


class Failing(Chat):
    def apply_chat_template(self, turns: Any, **settings: Any) -> str:
        raise ValueError("no roles")


class Plain:
    chat_template = None


@pytest.mark.parametrize(
    ("chat", "given", "said"),
    [
        (Parts(), {}, "leaves the text of a turn out.*: leave the chat form"),
        (Failing(), {}, r"turns \(no roles\): leave the chat form out"),
        (Failing(), {"system": "Be brief."}, "leave lm.system or lm.chat_arguments out"),
        (Plain(), {}, "has none"),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_refused(chat: Any, given: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        PromptFormat(chat=chat, **given)


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
