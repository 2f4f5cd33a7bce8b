import re
from dataclasses import replace

from stacksl.report import card
from stacksl.report.wording import plain


def test_the_card_starts_with_front_matter_and_holds_every_part(made):
    facts = made["usual"]()
    text = card(facts)
    front, body = text.removeprefix("---\n").split("\n---\n", 1)
    keys = [row.split(":")[0] for row in front.splitlines() if not row.startswith("-")]
    assert keys == ["library_name", "tags", "pipeline_tag"]
    headings = re.findall(r"^#+ (.*)$", body, re.MULTILINE)
    assert headings == [
        "Banking77",
        "Use",
        "Label budget",
        "Result",
        "Answers",
        "Limits",
        "Training",
        "Data",
        "Versions",
    ]
    for words in ("$2,500.00", "87.69%", "86.49% to 88.81%", "C = 20", "sentences:minilm"):
        assert words in body, words


def test_macro_f1_is_named_for_what_it_is_of(made):
    facts = made["usual"]()
    own = replace(facts, data=replace(facts.data, classes=None), classes=(), confusions=())
    assert "| Macro F1 |" in card(facts)
    assert "| Macro F1 of the right option’s position |" in card(own)


def test_tables_have_two_columns_whatever_the_data_hold(case):
    for row in card(case).splitlines():
        if row.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", row)) == 3, row


def test_marks_are_escaped_once():
    assert plain("a|b_c*d`e\\f") == r"a\|b\_c\*d\`e\\f"


def test_the_example_is_python(case):
    (code,) = re.findall(r"```python\n(.*?)```", card(case), re.DOTALL)
    compile(code, "card", "exec")
