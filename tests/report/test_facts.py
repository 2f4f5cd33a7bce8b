import math
from dataclasses import replace

import pytest

from stacksl.files import formats
from stacksl.report import render
from stacksl.report.facts import Facts


def test_json_round_trip(made):
    for name in set(made) - {"hostile"}:  # whose texts JSON cannot hold
        facts = made[name]()
        assert Facts.from_json(facts.to_json()) == facts, name


def test_json_is_plain_ascii_and_the_same_each_time(case):
    text = case.to_json()
    assert text == case.to_json()
    text.encode("ascii")
    assert "NaN" not in text
    assert "Infinity" not in text


def test_non_finite_numbers_become_none(made):
    facts = made["usual"]()
    known, unknown = (
        replace(facts, refit=replace(facts.refit, mixture=(("plain", 1.0, loss),)))
        for loss in (math.inf, None)
    )
    assert Facts.from_json(known.to_json()) == unknown


def test_a_lone_surrogate_becomes_the_replacement_character(made):
    facts = made["hostile"]()
    assert any("\ud800" in row.name for row in facts.classes)
    back = Facts.from_json(facts.to_json())
    assert [row.name for row in back.classes] == [
        row.name.replace("\ud800", "\ufffd") for row in facts.classes
    ]
    assert render(back) == render(facts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(extra=1), r"extra: Unexpected keyword argument"),
        (lambda raw: raw.pop("run"), r"run: Field required"),
        (
            lambda raw: raw["budget"].update(asked="many"),
            r"budget\.asked: Input should be a valid integer",
        ),
        (lambda raw: raw.update(curve={}), r"curve: Input should be a valid array"),
        (lambda raw: raw.update(data=[]), r"data: Input should be an object"),
        (
            lambda raw: raw["refit"]["mixture"].append(["plain", 1.0]),
            r"refit\.mixture\.0\.2: Field required",
        ),
    ],
)
def test_what_is_not_a_run_is_refused_by_the_field(made, change, said):
    raw = formats.from_json(made["usual"]().to_json())
    change(raw)
    with pytest.raises(ValueError, match=rf"facts\.{said}"):
        Facts.from_json(formats.to_json(raw))


def test_an_edited_number_is_refused(made):
    text = made["usual"]().to_json()
    with pytest.raises(ValueError, match="does not match its SHA-256"):
        Facts.from_json(text.replace('"run": "', '"run": "x', 1))
