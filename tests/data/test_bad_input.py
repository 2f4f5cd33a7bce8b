"""Bad rows are unusable, with a reason; bad files give one sentence; nothing else escapes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.data import Dataset, as_written, check, overlap, read
from stacksl.errors import DataError, SettingsError
from stacksl.types import Item

Make = Callable[[str, str | bytes], Path]

BAD: dict[str, Any] = {
    "empty prompt": {"id": "bad", "prompt": "  ", "candidates": ["a", "b"]},
    "under two options": {"id": "bad", "prompt": "p", "candidates": ["a"]},
    "equal options": {"id": "bad", "prompt": "p", "candidates": ["a", "b", "a "]},
    "empty option": {"id": "bad", "prompt": "p", "candidates": ["a", ""]},
    "too many options": {"id": "bad", "prompt": "p", "candidates": [str(n) for n in range(9)]},
    "gold out of range": {"id": "bad", "prompt": "p", "candidates": ["a", "b"], "answer": 2},
    "repeated id": {"id": "i3", "prompt": "p", "candidates": ["a", "b"], "answer": 1},
    "no options": {"id": "bad", "prompt": "p", "candidates": "a or b"},
    "the prompt is not text": {"id": "bad", "prompt": ["p"], "candidates": ["a", "b"]},
    "bad options": {"id": "bad", "prompt": "p", "candidates": {"text": ["a", "b"], "label": 5}},
    "bad JSON": "{'id': 1",
    "bad encoding": b'{"id": "bad", "prompt": "caf\xe9", "candidates": ["a", "b"]}',
}


def rows(count: int, *bad: Any) -> bytes:
    good = [
        {"id": f"i{n}", "prompt": f"p{n}", "candidates": ["a", "b", str(n)], "answer": 1}
        for n in range(count)
    ]
    out = []
    for row in (*good, *bad):
        text = row if isinstance(row, bytes | str) else json.dumps(row)
        out.append(text if isinstance(text, bytes) else text.encode())
    return b"\n".join(out) + b"\n"


@pytest.mark.parametrize("kind", BAD)
def test_each_fault_makes_a_row_unusable_with_its_row_and_reason(make: Make, kind: str) -> None:
    data = read(make("x.jsonl", rows(5, BAD[kind])), max_candidates=8)
    assert len(data.items) == 5
    (rejected,) = data.rejected
    assert (rejected.row, rejected.kind) == (6, kind)
    assert rejected.id == {"repeated id": "i3", "bad JSON": None}.get(kind, "bad")
    assert any("row 6 " in s and kind in s for s in check(data))


def test_an_item_in_memory_that_no_file_could_have_is_refused() -> None:
    items = (Item("a", "x", ("p", "q")), Item("b", " ", ("p", "q")))
    with pytest.raises(DataError, match=r"item 2 \(id 'b'\) cannot be used: empty prompt"):
        as_written(Dataset("x", "memory", items, {}))


@pytest.mark.parametrize(
    ("good", "bad", "stops"),
    [(1, 2, False), (57, 3, False), (56, 3, True), (1, 3, True), (95, 5, False)],
)
def test_more_than_five_percent_and_more_than_two_stop(
    make: Make, good: int, bad: int, stops: bool
) -> None:
    path = make("x.jsonl", rows(good, *[BAD["bad JSON"]] * bad))
    if stops:
        with pytest.raises(DataError, match=rf"{bad} of {good + bad} rows .*bad JSON \({bad}\)"):
            read(path)
    for data in [read(path, lenient=True), *([] if stops else [read(path)])]:
        assert (len(data.items), len(data.rejected), data.total) == (good, bad, good + bad)


ODD: dict[str, tuple[Any, str]] = {
    "labels in an object": (
        {"prompt": "p", "candidates": {"text": ["a", "b"], "label": {"A": 1, "B": 2}}},
        "bad options: their labels are no list, but dict",
    ),
    "an index of thousands of digits": (
        {"prompt": "p", "candidates": ["a", "b"], "answer": "1" * 5000},
        "gold out of range: the answer is none of the 2 options",
    ),
    "no options": ({"prompt": "q", "label": "x"}, "no options: the candidates are missing"),
    "a key that is not UTF-8": (
        b'{"prompt": "p", "candidates": ["a", "b"], "caf\xe9": 1}',
        "bad encoding: a key is not UTF-8",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_cost_one_row(make: Make, name: str) -> None:
    row, reason = ODD[name]
    data = read(make("x.jsonl", rows(5, row)))
    assert len(data.items) == 5
    (rejected,) = data.rejected
    assert rejected.row == 6
    assert rejected.reason.startswith(reason)


def truncated_parquet() -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"] * 500, "label": ["x", "y"] * 500}), sink)
    return sink.getvalue()[:-40]


FILES: dict[str, tuple[str, bytes | Callable[[], bytes], str]] = {
    "empty": ("x.csv", b"", "is empty"),
    "a mark alone": ("x.csv", b"\xef\xbb\xbf", "is empty"),
    "a damaged header": ("x.csv", b"\xc3\xa9\xe9,label\na,x\n", "header .* is not UTF-8"),
    "empty gzip": ("x.jsonl.gz", gzip.compress(b""), "is empty"),
    "header alone": ("x.csv", b"text,label\n", "no"),
    "binary": ("x.csv", b"\x7fELF\x00\x01" + bytes(range(256)), "binary"),
    "an old workbook": ("x.xls", b"\xd0\xcf\x11\xe0" + bytes(99), "old .* save it as .xlsx"),
    "no workbook": ("x.xlsx", b"text,label\na,x\n", "not a file of the kind"),
    "a zip archive": ("x.xlsx", b"PK\x03\x04" + bytes(99), "damaged workbook"),
    "cut gzip": ("x.jsonl.gz", gzip.compress(os.urandom(9999).hex().encode())[:-900], "truncated"),
    "cut parquet": ("x.parquet", truncated_parquet, "truncated or damaged"),
    "no parquet": ("x.parquet", b"text,label\na,x\n", "not a file of the kind"),
    "cut UTF-16": (
        "x.csv",
        "text,label\na,b\nc,d\n".encode("utf-16") + b"x",
        "is damaged UTF-16: save it as UTF-8",
    ),
    "unknown": ("x.dat", b"just some words\nand more\n", "cannot tell what"),
    "one candidate": (
        "x.jsonl",
        b'{"prompt": "p", "candidates": ["a"]}\n{"prompt": "q", "candidates": ["b"]}\n',
        "fewer than two candidates",
    ),
    "all bad": ("x.jsonl", b"{nope\n{nope\n", "no row of the file can be parsed: .*bad JSON"),
    "cut JSON": ("x.json", b"[1, 2", "not valid JSON"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files_give_one_sentence(make: Make, name: str) -> None:
    file, content, said = FILES[name]
    path = make(file, content() if callable(content) else content)
    with pytest.raises(DataError, match=said) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_a_near_one(make: Make) -> None:
    path = make("train.csv", "text,label\na,x\n")
    with pytest.raises(DataError, match=r"no file .*did you mean 'train.csv'"):
        read(path.with_name("trian.csv"))
    with pytest.raises(DataError, match="the folder"):
        read(path.parent / "nowhere" / "x.csv")


def test_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "x.csv", "a pipe or a device")):
        with pytest.raises(DataError, match=said):
            read(path)


def test_a_file_that_may_not_be_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("x.csv", "text,label\na,x\nb,y\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\): name a file"):
        read(path)


def test_a_prompt_of_a_megabyte_is_read(make: Make) -> None:
    data = read(make("x.csv", f"text,label\n{'word ' * 200_000},x\nb,y\n"))
    assert len(data.items) == 2
    assert not data.rejected


def test_duplicate_prompts_and_overlap_warn(make: Make) -> None:
    train = read(make("x.csv", "text,label\nSame  text,x\nsame text,y\nother,y\n"))
    test = read(make("y.csv", "text,label\nother,x\nnew,y\n"))
    assert len(train.items) == 3
    assert any("1 prompt already seen" in w for w in train.warnings)
    assert overlap(train.items, test.items) == 1
    assert overlap(train.items, read(make("z.csv", "text,label\nq,x\nr,y\n")).items) == 0


def test_unknown_formats_and_classes(make: Make) -> None:
    path = make("x.csv", "text,label\na,x\nb,y\n")
    with pytest.raises(SettingsError, match="did you mean 'options'"):
        read(path, format="optoins")
    with pytest.raises(SettingsError, match="two or more different"):
        read(path, classes=["x"])


def test_a_data_set_of_the_hub_is_saved_as_a_file_first() -> None:
    for name in ("hf:nobody/nothing", Path("hf:nobody/nothing").resolve()):
        with pytest.raises(DataError, match="save a data set of the Hugging Face hub as CSV"):
            read(name)


printable = st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" ")
texts = st.text(printable, min_size=1, max_size=12).filter(lambda t: t.strip() == t)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(texts, st.lists(texts, min_size=2, max_size=5, unique=True), st.integers(-1, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_items_are_what_a_file_of_them_would_give(drawn: Any) -> None:
    items = tuple(Item(f"i{n}", p, tuple(c)) for n, (p, c, _) in enumerate(drawn))
    answers = {f"i{n}": a for n, (_, _, a) in enumerate(drawn) if a >= 0}
    again = as_written(Dataset("x", "memory", items, answers))
    assert (again.items, again.answers) == (items, answers)
