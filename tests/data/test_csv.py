"""CSV and TSV: delimiters, quotes, columns guessed and given, classes, ids."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from stacksl.data import Dataset, check, read, rows_of
from stacksl.errors import DataError, SettingsError

Make = Callable[[str, str | bytes], Path]
ROWS = [("where is my card", "top up"), ('a,b;c\td\nand "e"', "card"), ("it is lost", "top up")]


FIELDS = "wrong number of fields"


def labels(data: Dataset) -> list[str | None]:
    return [
        item.candidates[data.answers[item.id]] if item.id in data.answers else None
        for item in data.items
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n" * 80])
@pytest.mark.parametrize("zipped", [False, True])
def test_delimiters_quotes_line_ends_marks_and_gzip(
    make: Make, delimiter: str, end: str, before: bytes, zipped: bool
) -> None:
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, lineterminator=end)
    writer.writerows([("text", "label"), *ROWS])
    raw = before + table.getvalue().encode()
    path = make("x.csv.gz", gzip.compress(raw)) if zipped else make("x.csv", raw)
    data = read(path)
    assert [i.prompt for i in data.items] == [prompt for prompt, _ in ROWS]
    assert labels(data) == [label for _, label in ROWS]
    assert [i.id for i in data.items] == ["row-000001", "row-000002", "row-000003"]
    assert data.name == "x"
    assert data.classes == ("card", "top up")
    assert all(item.candidates is data.classes for item in data.items)


def test_a_column_that_is_mostly_empty_is_not_guessed_as_the_prompt(make: Make) -> None:
    rows = "".join(f"{'late' if n % 4 == 0 else ''},card {n},x{n % 3}\n" for n in range(12))
    assert read(make("x.csv", f"comment,body,label\n{rows}")).columns["prompt"] == "body"
    with pytest.raises(DataError, match=r"empty prompt in the column 'comment' \(--prompt-column"):
        read(make("y.csv", f"comment,what,label\n{rows}"))


REFUSED = {
    "an open quote": ('text,label\na,x\n"b,y\nc,x\nd,y\n', "never closes"),
    "rows in a quote": ('text,label\na,x\n"b,y\nc,x\n"d,y\n', "near line 3 .a quote closes inside"),
    "one label for all": ("text,label\na,x\nb,x\n", "same label in the column 'label'"),
    "lists of labels": (
        "text,labels\na,\"['x', 'y']\"\nb,\"['y']\"\n",
        "multi-label data is not supported",
    ),
    "labels with a bar": (
        "text,labels\na,x|y\nb,y\nc,x\nd,x|z\ne,z\nf,y|z\n",
        "multi-label data is not supported",
    ),
    "a name twice": ("text,text,label\na,b,x\n", "'text' is twice in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_meant_is_refused_in_one_sentence(make: Make, case: str) -> None:
    content, said = REFUSED[case]
    with pytest.raises(DataError, match=said):
        read(make("x.csv", content))


def test_columns_are_guessed_said_and_overridden(make: Make) -> None:
    path = make("x.csv", "id,Text,other,Category\nq1,aa,u,x\nq2,bb,v,y\nq3,cc,u,x\n")
    data = read(path)
    assert data.columns == {"prompt": "Text", "label": "Category", "id": "id"}
    assert [i.id for i in data.items] == ["q1", "q2", "q3"]
    assert any("label: Category" in sentence for sentence in check(data))
    other = read(path, columns={"label": "other"})
    assert other.classes == ("u", "v")
    assert read(path, columns=data.columns) == data


def test_columns_without_telling_names_are_guessed_by_their_values(make: Make) -> None:
    body = "".join(f"{'xy'[i % 2]},a long enough text number {i}\n" for i in range(8))
    data = read(make("x.csv", "bucket,verbatim\n" + body))
    assert data.columns == {"prompt": "verbatim", "label": "bucket"}


def test_a_wrong_column_names_those_there_are_and_the_nearest(make: Make) -> None:
    path = make("x.csv", "text,category\na,x\nb,y\n")
    with pytest.raises(DataError, match=r"did you mean 'category'\? .*text, category"):
        read(path, columns={"label": "categry"})
    with pytest.raises(DataError, match="no column 'nope' for the prompt"):
        read(path, columns={"prompt": "nope"})
    with pytest.raises(SettingsError, match="did you mean 'label'"):
        read(path, columns={"labell": "category"})


def test_no_label_column_says_what_to_give_unless_classes_are_known(make: Make) -> None:
    path = make("x.csv", "id,text\n1,one\n2,two\n")
    with pytest.raises(DataError, match="--label-column"):
        read(path)
    data = read(path, classes=("x", "y"), columns={"prompt": "text", "label": "category"})
    assert (len(data.items), data.answers, data.unlabeled) == (2, {}, 2)
    assert data.classes == ("x", "y")
    assert any("category" in warning for warning in data.warnings)


def test_another_column_is_not_taken_for_labels_of_known_classes(make: Make) -> None:
    path = make("x.csv", "text,customer\nhello,ann\nbye,bob\nagain,ann\nand,ann\n")
    data = read(path, classes=("x", "y"), lenient=True)
    assert (data.answers, data.unknown) == ({}, {})


def test_known_classes_keep_their_order_and_strangers_are_counted(make: Make) -> None:
    path = make("x.csv", "text,label\na,x\nb,new\nc,y\n" + "d,x\n" * 3)
    known = ("y", "x", "z")
    data = read(path, classes=known, lenient=True)
    assert data.classes is known
    assert [data.answers.get(f"row-00000{i}") for i in (1, 2, 3)] == [1, None, 0]
    assert data.unknown == {"row-000002": "new"}
    assert len(data.items) == 6
    assert data.unlabeled == 0
    firm = read(path, classes=known)
    assert [(r.row, r.kind) for r in firm.rejected] == [(2, "unknown class")]


def test_a_column_of_free_text_is_no_label(make: Make) -> None:
    body = "".join(f"text number {i},note {i}\n" for i in range(30))
    path = make("x.csv", "text,label\n" + body)
    with pytest.raises(DataError, match="do not look like a label column"):
        read(path)
    assert len(read(path, columns={"label": "label"}).classes or ()) == 30
    with pytest.raises(DataError, match="do not look like a label column"):
        read(path, columns={"label": "label"}, max_candidates=29)


def test_labels_with_a_comma_are_labels(make: Make) -> None:
    body = "".join(
        f'some text {i},"{["Arts, Crafts", "Food, Drink", "Cars"][i % 3]}"\n' for i in range(9)
    )
    assert read(make("x.csv", "text,label\n" + body)).classes == (
        "Arts, Crafts",
        "Cars",
        "Food, Drink",
    )


def test_columns_called_a_and_b_are_no_options_without_any_option(make: Make) -> None:
    text = "a,b,message,topic\n" + "1,x,lost it,card\n2,y,top up,money\n" * 3
    assert read(make("x.csv", text)).format == "csv:classes"
    bare = make("y.csv", "a,b,message\n1,x,lost it\n2,y,top up\n")
    assert [i.prompt for i in read(bare, classes=("p", "q")).items] == ["lost it", "top up"]
    assert read(bare, classes=("1", "2", "x", "y")).format == read(bare).format == "csv:mmlu"


def test_lettered_option_columns_with_a_header(make: Make) -> None:
    content = "id,prompt,A,B,C,answer\n1,q one,x,y,z,B\n2,q two,x,y,,A\n"
    data = read(make("x.csv", content))
    assert data.format == "csv:mmlu"
    assert [i.candidates for i in data.items] == [("x", "y", "z"), ("x", "y")]
    assert data.answers == {"1": 1, "2": 0}


def test_a_candidates_column_in_json(make: Make) -> None:
    content = 'prompt;candidates;answer\nq;"[""x"", ""y, z""]";1\nr;"[""u"", ""v""]";u\n'
    data = read(make("x.csv", content))
    assert data.format == "csv:options"
    assert [i.candidates for i in data.items] == [("x", "y, z"), ("u", "v")]
    assert list(data.answers.values()) == [1, 0]


def test_a_row_with_a_wrong_number_of_fields_is_unusable_and_keeps_its_cells(make: Make) -> None:
    body = "".join(f"text {i},{'xy'[i % 2]}\n" for i in range(50))
    path = make("x.csv", "text,label\n" + body + "one, two,x\nthree\n")
    columns, rows = rows_of(path, data := read(path))
    assert [(r.row, r.kind) for r in data.rejected] == [(51, FIELDS), (52, FIELDS)]
    assert "line 52" in data.rejected[0].reason
    assert columns == ("text", "label", "column 3")
    long, short = ({"text": "one", "label": " two", "column 3": "x"}, {"text": "three"})
    assert rows[50:] == [(long, None), (short, None)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_of_one_column_has_no_row_of_ours(tmp_path: Path, end: str) -> None:
    path = tmp_path / "new.csv"
    path.write_text('text\nhello there\n"what, now"' + end)
    dataset = read(path, classes=("a", "b"))
    assert [item.prompt for item in dataset.items] == ["hello there", "what, now"]
    assert dataset.rejected == ()


def test_a_quote_that_never_closes_is_told_in_a_file_of_one_column(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text('text\nhello there\n"what, now\n')
    with pytest.raises(DataError, match="never closes"):
        read(path, classes=("a", "b"))
