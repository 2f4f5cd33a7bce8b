"""Whatever bytes a file holds: a `Dataset`, or one sentence as `DataError` or `SettingsError`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.data import as_written, check, read
from stacksl.errors import DataError, SettingsError

NAMES = ("x.csv", "x.tsv", "x.jsonl", "x.json", "x", "x.parquet")
FORMATS = (
    None, "csv", "tsv", "jsonl", "json", "parquet",
    "options", "mmlu", "classes",
)  # fmt: skip
COLUMNS = (
    "prompt", "candidates", "answer", "id", "text", "label", "chosen", "rejected",
    "options", "question", "answer_idx", "answerKey", "choices", "category", "A", "B", "",
)  # fmt: skip
MARK = b"\xef\xbb\xbf"

strange = st.sampled_from(
    ["", " ", "A", "b", "1", "-1", "9" * 30, "9" * 5000, "\0", "\ud800", "\u2028", "[1]", "{}"]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.just(10**400),
    st.text(max_size=4),
    strange,
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.fixed_dictionaries({"text": inner | st.lists(inner, max_size=3), "label": inner}),
        st.lists(st.fixed_dictionaries({"content": inner}), max_size=2),
    ),
    max_leaves=6,
)
keys = st.sampled_from(COLUMNS) | st.sampled_from(COLUMNS) | st.text(max_size=3)
objects = st.dictionaries(keys, values, max_size=6)


def _quoted(value: Any) -> Any:
    """Some options as JSON within JSON, as tables of text hold them."""
    return {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in value.items()}


records = st.lists(st.one_of(objects, objects.map(_quoted), values), max_size=4)
pieces = st.sampled_from(
    [
        *('"', '""', ",", ";", "\t", "\n", "\r", "\r\n", " ", "\\", "{", "[", "}", ":"),
        *("text", "label", "id", "a", "b", "A", "B", "1"),
        *("\x0b", "\x1c", "\x1e\x1fend", "\x85", "\u2028", "\ud800"),
    ]
)
tables = st.lists(pieces, max_size=40).map("".join)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


contents = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(_bytes),
    tables.map(_bytes),
    tables.map(lambda t: b"text,label\na,x\nb,y\n" + _bytes(t)),
    st.integers(1, 120).map(lambda n: b"\n" * n + b"text,label\na,x\nb,y\n"),
    records.map(lambda rows: "".join(json.dumps(r) + "\n" for r in rows).encode()),
    records.map(lambda rows: "".join(json.dumps(r) + "\n" for r in rows).encode() * 2),
    records.map(lambda rows: json.dumps(rows).encode()),
)


@settings(max_examples=80, deadline=None)
@given(
    content=contents,
    marked=st.booleans(),
    packed=st.booleans(),
    name=st.sampled_from(NAMES),
    format=st.sampled_from(FORMATS),
    options=st.fixed_dictionaries(
        {"lenient": st.booleans()},
        optional={
            "classes": st.just(("x", "y")),
            "columns": st.dictionaries(
                st.sampled_from(["prompt", "label", "id", "candidates"]), keys, max_size=2
            ),
            "max_candidates": st.just(2),
        },
    ),
)
def test_no_bytes_give_anything_but_items_or_a_sentence(
    tmp_path_factory: Any,
    content: bytes,
    marked: bool,
    packed: bool,
    name: str,
    format: str | None,
    options: dict[str, Any],
) -> None:
    content = MARK + content if marked else content
    path = tmp_path_factory.mktemp("f") / name
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    try:
        data = read(path, format=format, **options)
    except (DataError, SettingsError) as error:
        data, said = None, [str(error)]
        assert len(said[0]) >= 10
    else:
        said = check(data)
    assert all(sentence and "\n" not in sentence for sentence in said)
    if data is None:
        return
    assert data.items
    again = as_written(data)
    assert [(i.id, i.prompt, i.candidates) for i in again.items] == [
        (i.id, i.prompt, i.candidates) for i in data.items
    ]
    assert again.answers == data.answers


@pytest.mark.parametrize("depth", [50, 900, 980, 100_000])
@pytest.mark.parametrize("shut", ["[]", "{}"])
@pytest.mark.parametrize("column", ["text", "other", "candidates", "label"])
def test_no_depth_of_nesting_gives_a_traceback(
    tmp_path: Path, depth: int, shut: str, column: str
) -> None:
    opened = "[" * depth if shut == "[]" else '{"text":' * depth
    deep = opened + "1" + shut[1] * depth
    rest = '"prompt": "p", "a": "b"' if column == "other" else '"prompt": "p"'
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{{rest}, "{column}": {deep}}}\n' * 3)
    with pytest.raises(DataError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
