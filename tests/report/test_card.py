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
        "Limits",
        "Training",
    ]
    for words in ("$2,500.00", "87.7% of 3,080 test items", "86.5% to 88.8%", "C = 20"):
        assert words in body, words


def test_marks_are_escaped_once():
    assert plain("a|b_c*d`e\\f") == r"a\|b\_c\*d\`e\\f"


def test_the_example_is_python(case):
    (code,) = re.findall(r"```python\n(.*?)```", card(case), re.DOTALL)
    compile(code, "card", "exec")


def test_the_card_names_what_chose_the_labels(made):
    facts = made["usual"]()
    for name, chooser in (("coverage", "query strategy coverage chose them"), ("random", "")):
        text = card(replace(facts, method=replace(facts.method, gate=name)))
        assert "gate" not in text
        assert ("not a uniform sample" in text) == bool(chooser)
        assert chooser in text
