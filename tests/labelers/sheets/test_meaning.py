"""What an answer means: each way to write one, and each that could be two things is refused."""

from __future__ import annotations

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.labelers.sheets.cells import (
    Meaning,
    Misread,
    _loose,
    guarded,
    listed,
    sign,
    understood,
    visible,
)

YES_NO = ("yes, at once", "No", "later")
MANY = tuple(f"option number {n}" for n in range(20))


def label(position: int) -> Meaning:
    return Meaning("label", position)


SECOND = ["B", "b", " b ", "b)", "(b)", "[B]", "B.", "B:", "\u200bB", "Ｂ", "(B) no", "B) No"]
SECOND += ["2", "2)", "(2)", "#2", "2.", "2.0", "2,0", "2.00", "02", "2. no"]
SECOND += ["No", "NO", "no", "\u00a0no\n", "\u200fno"]


@pytest.mark.parametrize("cell", SECOND)
def test_every_way_to_write_the_second_option(cell: str) -> None:
    assert understood(cell, YES_NO) == label(1)


@pytest.mark.parametrize(
    ("cell", "said", "text"),
    [
        ("none", "none", None),
        ("NONE ", "none", None),
        ("none of these", "none", None),
        ("None of the above", "none", None),
        ("[none]", "none", None),
        ("none:", "none", None),
        ("none: tomorrow", "none", "tomorrow"),
        ("None of these:  =soon; or not", "none", "=soon; or not"),
        ("none: '=soon", "none", "=soon"),
        ("none：two\nlines", "none", "two\nlines"),
        ("?", "ambiguous", None),
        ("??", "ambiguous", None),
        ("Ambiguous", "ambiguous", None),
        ("[?]", "ambiguous", None),
        ("broken", "broken", None),
        ("BROKEN ITEM", "broken", None),
    ],
)
def test_every_way_to_say_none_ambiguous_and_broken(cell: str, said: str, text: str | None) -> None:
    assert understood(cell, YES_NO) == Meaning(said, None, text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "options", "position"),
    [
        ("B", ("B", "or C", "AB"), 0),  # not the second
        ("B)", ("B", "or C", "AB"), 1),
        ("3", ("3 of them", "3", "none"), 1),  # not the third
        ("none", ("none", "one"), 0),
        ("?", ("!", "?"), 1),
        ("broken", ("whole", "broken"), 1),
        ("TRUE", ("False", "True"), 1),
        ("0.5", ("0.50", "0.25"), 0),
        ("0,5", ("0.50", "0.25"), 0),
        ("10", ("10.0", "2.5"), 0),
        ("Größe", (normalize("NFD", "Größe"), "Grösse"), 0),
        ("MAY", ("May", "MAY"), 1),
        ("A", ("B", "A", "C"), 1),  # options that are letters have numbers before them
        ("1", ("B", "A", "C"), 0),
        ("4", ("5", "4", "3"), 1),  # options that are numbers have letters alone
        ("A", ("5", "4", "3"), 0),
        ("2)", ("5", "4", "3"), 1),
        ("4.0", ("5", "4", "3"), 1),
        ("B) 4", ("5", "4", "3"), 1),
        ("©", MANY, 2),  # what (c), (r) and (e) are corrected to while typing
        ("®", MANY, 17),
        ("€", MANY, 4),
    ],
)
def test_the_text_of_an_option_wins(cell: str, options: tuple[str, ...], position: int) -> None:
    assert understood(cell, options) == label(position)


@pytest.mark.parametrize(
    ("cell", "options", "says"),
    [
        ("b", ("B", "or C"), "option 2 or option 1"),
        ("None", ("none", "NONE", "x"), "none of these or option 1 or option 2"),
        ("1.0", ("x", "1", "y"), "option 1 or option 2"),
        ("may", ("May", "MAY"), "option 1 or option 2"),
        ("a b", ("a b", "a  b"), "2 options have this text"),
        ("none: No", YES_NO, "answer 2, or none alone"),
        ("4", YES_NO, "'4' is no option's number: they go from 1 to 3"),
        ("0", YES_NO, "they go from 1 to 3"),
        ("D", YES_NO, "'D' is not understood: write a letter A to C"),
        ("03.Apr", ("3-4", "5-6"), "a formula or an error that the spreadsheet made"),
        ("4-Mar", ("3-4", "5-6"), "a date"),
        ("1.00E+05", ("1e5", "1e6"), "a formula or an error that the spreadsheet made"),
        ("1,000", ("1000", "10"), "not understood"),  # a thousand or one
        ("2", ("5", "4", "3"), "'2' is not understood"),
        ("#NAME?", YES_NO, "an error that the spreadsheet made"),
        ("B) because", YES_NO, "words after a letter"),
        ("B) later", YES_NO, "words after a letter"),
        ("A, B", YES_NO, "not understood"),
        ("resturant", ("weather", "restaurant reviews"), "did you mean B)? Write a letter A to B"),
        ("1.5", ("5", "7"), "that the spreadsheet made"),  # not the first line, `1. 5`
    ],
)
def test_what_could_be_two_things_or_is_none_is_refused(
    cell: str, options: tuple[str, ...], says: str
) -> None:
    assert says in str(_fault(cell, options))


def test_a_fault_quotes_nothing_longer_than_three_characters() -> None:
    for cell in ("canary", "B) canary", "none canary", "canary 3-4", "2024-canary"):
        assert "canary" not in str(_fault(cell, ("the canary sings", "canary?")))
    assert f"({len('canary')} characters)" in str(_fault("canary", YES_NO))
    near = _fault("resturant", ("weather", "restaurant\n reviews"), classes=True)
    assert "did you mean B) restaurant reviews? Write" in str(near), "if it is a class"


def _fault(cell: str, options: tuple[str, ...], *, classes: bool = False) -> Misread:
    with pytest.raises(Misread) as fault:
        understood(cell, options, classes=classes)
    return fault.value


def test_many_options_have_numbers() -> None:
    names = tuple(f"class {n:02}" for n in range(77))
    assert [sign(0, names), sign(76, names)] == ["1", "77"]
    assert understood("77", names) == label(76)
    assert understood("CLASS 03", names) == label(3)
    assert "write a number" in str(_fault("B", names))


options = st.lists(
    st.text(min_size=1, max_size=12).filter(str.strip) | st.sampled_from(["B", "2", "none", "?"]),
    min_size=2,
    max_size=30,
).map(tuple)


@given(options, st.data())
def test_a_sign_with_a_bracket_and_a_text_that_one_option_has_are_understood(
    shown: tuple[str, ...], data: st.DataObject
) -> None:
    """Copied from the list of options, with or without the sign, or from the file of classes."""
    position = data.draw(st.sampled_from(range(len(shown))))
    text, others = shown[position], {_loose(text) for n, text in enumerate(shown) if n != position}
    copied = [text, guarded(visible(text))] if _loose(text) not in others else []
    for cell in (f"{sign(position, shown)})", *copied):
        if _loose(cell) not in others:
            assert understood(cell, shown) == label(position)


@given(st.text(), options)
def test_no_answer_breaks_the_reader(cell: str, shown: tuple[str, ...]) -> None:
    try:
        meaning = understood(cell, shown)
    except Misread:
        return
    assert (meaning.position is not None) == (meaning.kind == "label")
    assert meaning.position is None or meaning.position in range(len(shown))


@given(options)
def test_each_option_has_its_line(shown: tuple[str, ...]) -> None:
    lines = listed(shown).split("\n")
    for n in range(len(shown)):
        assert sum(line.startswith(f"{sign(n, shown)}) ") for line in lines) == 1
