"""A key survives spreadsheets and hands: no value, no look-alikes, each slip found."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.labelers.sheets.cells import guarded
from stacksl.labelers.sheets.keys import _DIGITS, _LETTERS, clean_key, is_key, new_key

keys = st.builds(
    lambda number, seed: new_key(number, np.random.default_rng(seed)),
    st.integers(0, 10**6),
    st.integers(0, 2**32),
)


@given(keys)
def test_a_key_is_no_value_of_a_spreadsheet(key: str) -> None:
    assert re.fullmatch(r"([a-z][2-9]){2,8}-[a-z]", key)
    with pytest.raises(ValueError):
        float(key)
    assert guarded(key) == key  # neither formula nor number, date or truth value
    assert not set(key) & set("0o1il5s2z8b6g9e") - set(_DIGITS)


@given(keys, st.data())
def test_one_wrong_sign_is_found(key: str, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([n for n, sign in enumerate(key) if sign != "-"]))
    alphabet = _DIGITS if key[place].isdigit() else _LETTERS
    other = data.draw(st.sampled_from([sign for sign in alphabet if sign != key[place]]))
    assert is_key(key)
    assert not is_key(key[:place] + other + key[place + 1 :])


@given(keys, st.data())
def test_two_signs_exchanged_are_found(key: str, data: st.DataObject) -> None:
    places = st.sampled_from(range(len(key)))
    one, two = sorted((data.draw(places), data.draw(places)))
    signs = list(key)
    signs[one], signs[two] = signs[two], signs[one]
    assert is_key("".join(signs)) == ("".join(signs) == key)


def test_keys_of_a_run_differ_and_grow() -> None:
    rng = np.random.default_rng(3)
    taken: set[str] = set()
    for number in range(20_000):
        key = new_key(number, rng, taken)
        assert key not in taken
        taken.add(key)
    assert {len(key) for key in taken} == {6, 8}
    assert len(new_key(10**6, rng)) == 10


@pytest.mark.parametrize("cell", [" {} ", "{}\n", "\u00a0{}"])
def test_a_key_is_read_through_capitals_dashes_and_spaces(cell: str) -> None:
    key = new_key(0, np.random.default_rng(1))
    assert clean_key(cell.format(key.upper().replace("-", "–"))) == key
    assert not is_key(cell.format(key))
