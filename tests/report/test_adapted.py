"""What page and card say of an adapted language model."""

import re

import pytest

from stacksl.report import card, figures, render
from stacksl.report.wording import fence

from .test_html import read


@pytest.fixture
def facts(made):
    return made["adapted"]()


def words_of(facts, id):
    """The text of one folded part of the page."""
    check = '<details class="check" id="'
    ends = f"(?={check}|</div>\n</main>)"
    found = re.search(rf'{check}{id}">.*?</details>\n{ends}', render(facts), re.DOTALL)
    return read(found.group()).text


def test_the_curve_begins_with_the_base_at_no_label(facts):
    drawn = figures.accuracy_curve(facts.curve)
    assert "38.0% with 0 labels, 62.0% with 200" in drawn
    text = words_of(facts, "model")
    assert "Without a label the base model answers 38.0% correctly; 200 labels added 24.0" in text
    assert "The dot at 0 is the base model" in text


def test_the_card_names_the_license_and_loads_as_yaml_reads(facts):
    written = card(facts)
    front = written.split("---\n")[1]
    assert 'base_model: "tiny-base"\nlicense: "mit"\n' in front
    assert "The license of the base model tiny-base is mit" in written
    assert "`stacksl evaluate RUN test.jsonl`" in written
    assert "AutoPeftModelForCausalLM" in written
    assert "38.0%" in written


def test_what_a_poor_run_lacks_is_said(made):
    facts = made["adapted_badly"]()
    text, written = read(render(facts)).text, card(facts)
    for words in (
        "names no license",
        "There was no refit: no label was learned.",
        "--test FILE",
    ):
        assert words in text, words
    assert "license:" not in written
    assert fence(facts.language.template) == "`````", "the template's own are shorter"


def test_other_runs_say_nothing_of_language_models(made):
    for name in ("usual", "bare"):
        assert "anguage model" not in render(made[name]())
        assert "anguage model" not in card(made[name]())
        assert made[name]().language is None
