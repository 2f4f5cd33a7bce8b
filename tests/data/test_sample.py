"""The built-in sample: deterministic, of one tuple of classes, and it reads as prose."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from stacksl.data import check, read, sample
from stacksl.data.sample import FEWEST, sentences
from stacksl.errors import DataError


def test_it_is_prose_of_large_topics_and_says_nothing_twice() -> None:
    train, test = sample()
    items = [*train.items, *test.items]
    assert 1400 < len(items) < 2400
    assert 18 <= len(train.classes or ()) <= 26
    assert 0.2 < len(test.items) / len(items) < 0.3
    assert len({item.prompt for item in items}) == len(items) == len({item.id for item in items})
    counts = Counter([*train.answers.values(), *test.answers.values()])
    assert set(counts) == set(range(len(train.classes or ())))
    assert min(counts.values()) >= FEWEST
    for item in items:
        assert item.prompt[-1] in ".:?!)"
        assert not re.search(r">>>|::=|[\n\t]|  |^\W*[*=-]{2,}", item.prompt), item.prompt
    assert train.name == f"python-topics-{sys.version_info.major}.{sys.version_info.minor}"


def test_items_share_the_classes_and_have_answers() -> None:
    for data in sample():
        assert data.classes is not None
        assert all(item.candidates is data.classes for item in data.items)
        assert data.answers.keys() == {item.id for item in data.items}
        assert data.unlabeled == 0
        assert not data.rejected
        assert check(data)


def test_another_file_is_read_beside_it(tmp_path: Path) -> None:
    train, _ = sample()
    assert not train.columns  # no file has the sample's columns
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "The with statement wraps a block."}\n{"text": "Names are bound."}\n')
    data = read(path, columns=train.columns, classes=train.classes)
    assert [item.candidates for item in data.items] == [train.classes] * 2


def test_code_tables_and_headings_are_stripped() -> None:
    text = """Heading
*******

The *first* sentence of some text [1].  Is there a second
one in it?  See e.g. This one.

   >>> code(here)
   Not a sentence of prose at all.

Here follows an example of code:

   for x in y:
       print("This is no prose either, but code.")

* An entry of a list
  with two lines.
* Another entry of that list.

+---------+---------------------------+
| Option  | Meaning                   |
|=========|===========================|
| "x"     | It means something long   |
|         | and well explained.       |
+---------+---------------------------+
"""
    assert list(sentences(text)) == [
        "The first sentence of some text.",
        "Is there a second one in it?",
        "See e.g. This one.",
        "Here follows an example of code:",
        "An entry of a list with two lines.",
        "Another entry of that list.",
        "It means something long and well explained.",
    ]


def test_a_python_without_its_topics_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataError, match="no pydoc_data"):
        sample()
