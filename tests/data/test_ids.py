"""The column of the ids, found or named; tables given in Python, and names of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stacksl.data import Dataset, read, table_of
from stacksl.data.files import stem
from stacksl.errors import DataError

Make = Callable[[str, str | bytes], Path]
IDS = (
    "id, ID, Id, _id, ticket_id, ticket-id, ticketId, TicketID, TICKET_ID, URLId, "
    "uuid, row.guid, qid, Ticket ID, Ticket ID:, Kunden-ID"
)
OTHERS = "paid, PAID, grid, valid, rapid, ticketid, ids, user_ids, id_type, idx, void, Heißid"
MANY = 1500  # more rows than are looked at first


def ids(data: Dataset) -> list[str]:
    return [item.id for item in data.items]


def csv(make: Make, header: str, rows: Iterable[Sequence[object]]) -> Path:
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    return make("x.csv", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", f"{IDS}, {OTHERS}".split(", "))
def test_a_unique_column_whose_last_word_is_id_is_the_id(make: Make, name: str) -> None:
    data = read(csv(make, f"text,{name},label", [("a", 7, "x"), ("b", 8, "y"), ("c", 9, "x")]))
    if name in OTHERS.split(", "):
        assert ids(data) == ["row-000001", "row-000002", "row-000003"]
    else:
        assert ids(data) == ["7", "8", "9"]
        assert data.columns == {"prompt": "text", "label": "label", "id": name}
        assert data.unused == ()


def test_id_wins_then_the_first_that_is_unique_and_filled(make: Make) -> None:
    rows = [("u", "", 1, 5, "a", "x"), ("u", 6, 2, 6, "b", "y"), ("v", 7, 3, 7, "c", "x")]
    header = "user_id,order_id,ticket_id,{},text,label"
    assert ids(read(csv(make, header.format("id"), rows))) == ["5", "6", "7"]
    assert ids(read(csv(make, header.format("row_uuid"), rows))) == ["1", "2", "3"]


@pytest.mark.parametrize("label", ["", "x"])
def test_rows_without_a_text_do_not_count(make: Make, label: str) -> None:
    rows = [(f"T{n}", f"text {n}", "xy"[n % 2]) for n in range(50)]
    data = read(csv(make, "ticket_id,text,label", [*rows, ("", "", label), ("", " ", label)]))
    assert ids(data) == [f"T{n}" for n in range(50)]
    assert [row.kind for row in data.rejected] == ["empty prompt"] * 2


@pytest.mark.parametrize("fault", ["", "c3"])
def test_later_rows_decide_too(make: Make, fault: str) -> None:
    given = [f"c{n}" for n in range(MANY - 1)] + [fault]
    rows = [(name, f"T{n}", f"text {n}", "xy"[n % 2]) for n, name in enumerate(given)]
    data = read(csv(make, "case_id,ticket_id,text,label", rows))
    assert (ids(data)[0], ids(data)[-1], len(data.items)) == ("T0", f"T{MANY - 1}", MANY)
    assert data.columns["id"] == "ticket_id"
    without = read(csv(make, "case_id,text,label", [(a, *rest) for a, _, *rest in rows]))
    assert (ids(without)[0], len(without.items)) == ("row-000001", MANY)
    assert without.unused == ("case_id",)
    again = read(
        csv(make, "case_id,text,label", [(a, *rest) for a, _, *rest in rows]),
        usual={"id": "case_id", "label": "label"},
    )
    assert ids(again)[0] == "row-000001"


def test_a_data_frame_is_read_again(make: Make) -> None:
    pandas = pytest.importorskip("pandas")
    case = [*range(MANY - 1), 3]
    texts, labels = [f"text {n}" for n in case], ["xy"[n % 2] for n in case]
    frame = pandas.DataFrame(
        {"case_id": case, "ticketId": range(MANY), "text": texts, "label": labels}
    )
    table = table_of(frame)
    assert table is not None
    assert ids(read(table)) == [str(n) for n in range(MANY)]
    table = table_of(frame.drop(columns="ticketId"))
    assert table is not None
    assert ids(read(table))[-1] == f"row-{MANY:06d}"


def test_an_id_is_what_is_written(make: Make, tmp_path: Path) -> None:
    rows = [("007", "a", "x"), ("7", "b", "y"), (" 1e3 ", "c", "x")]
    assert ids(read(csv(make, "ticket_id,text,label", rows))) == ["007", "7", "1e3"]
    values: list[dict[str, Any]] = [
        {"ticket_id": n, "text": f"text {n}", "label": "xy"[n % 2]} for n in (12, 13, 14)
    ]
    path = make("x.jsonl", "".join(json.dumps(row) + "\n" for row in values))
    assert ids(read(path)) == ["12", "13", "14"]
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(values), tmp_path / "x.parquet")
    assert ids(read(tmp_path / "x.parquet")) == ["12", "13", "14"]


def test_values_that_are_no_text_are_no_ids(make: Make) -> None:
    rows = [{"doc_id": {"oid": n}, "text": f"t{n}", "label": "xy"[n % 2]} for n in range(9)]
    path = make("x.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert ids(read(path))[0] == "row-000001"


@pytest.mark.parametrize(
    ("header", "label"), [("text,class_id", "class_id"), ("ticket_id,text,intent_id", "intent_id")]
)
def test_a_label_that_repeats_is_no_id(make: Make, header: str, label: str) -> None:
    rows = [(f"T{n}", f"text {n}", n % 3)[3 - len(header.split(",")) :] for n in range(30)]
    data = read(csv(make, header, rows))
    assert data.columns["label"] == label
    assert data.classes == ("0", "1", "2")


def test_in_two_rows_names_decide(make: Make) -> None:
    data = read(csv(make, "ticket_id,text,kind", [("T1", "aa", "x"), ("T2", "bb", "y")]))
    assert data.columns == {"prompt": "text", "label": "kind", "id": "ticket_id"}
    path = csv(make, "text,class_id", [("aa", "x"), ("bb", "y")])
    with pytest.raises(DataError, match="no column looks like the label"):
        read(path)
    assert read(path, columns={"label": "class_id"}).classes == ("x", "y")


def test_an_id_is_never_the_prompt(make: Make) -> None:
    long = "0123456789abcdef0123456789abcdef"
    rows = [(f"{long}{n}", long, f"say {n}", "xy"[n % 2]) for n in range(9)]
    data = read(csv(make, "ticket_id,session_uuid,q,label", rows))
    assert data.columns == {"prompt": "q", "label": "label", "id": "ticket_id"}


def test_a_named_column_is_the_id_or_refused(make: Make) -> None:
    rows = [(n, n // 2, f"text {n}", "xy"[n % 2]) for n in range(20)]
    path = csv(make, "nr,pair,text,label", rows)
    data = read(path, columns={"id": "nr"})
    assert (ids(data)[3], data.columns["id"]) == ("3", "nr")
    with pytest.raises(DataError, match=r"'pair' .* in rows 2, 4, 6, 8, 10, \.\.\.: .*--id-column"):
        read(path, columns={"id": "pair"})
    with pytest.raises(DataError, match=r"no column 'nrr' for the id: did you mean 'nr'"):
        read(path, columns={"id": "nrr"}, classes=["x", "y"])
    rows[6] = ("", *rows[6][1:])
    with pytest.raises(DataError, match="'nr' .* in row 7:"):
        read(csv(make, "nr,pair,text,label", rows), columns={"id": "nr"})
    with pytest.raises(DataError, match="'id' .* in row 7:"):
        read(csv(make, "id,pair,text,label", rows), columns={"id": "id"})


def test_the_columns_of_an_earlier_file_need_no_ids(make: Make) -> None:
    usual = {"prompt": "text", "label": "label", "id": "ticket_id"}
    rows = [(n // 2, f"text {n}", "xy"[n % 2]) for n in range(8)]
    for header in ("ticket_id,text,label", "other,text,label"):
        data = read(csv(make, header, rows), usual=usual, classes=["x", "y"])
        assert (ids(data)[0], len(data.items)) == ("row-000001", 8)
    rows = [(n, f"text {n}", "xy"[n % 2]) for n in range(8)]
    assert ids(read(csv(make, "id,text,label", rows), usual=usual))[1] == "1"
    data = read(
        csv(make, "id,text,note", rows), usual={**usual, "id": "id"}, columns={"label": "note"}
    )
    assert (ids(data)[1], data.classes) == ("1", ("x", "y"))


def test_class_numbers_become_names() -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    named = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    columns = {"text": [f"t{n}" for n in range(8)], "label": [*(n % 2 for n in range(7)), -1]}
    table = table_of(datasets.Dataset.from_dict(columns, features=named))
    assert table is not None
    found = read(table)
    assert found.classes == ("neg", "pos")
    assert list(found.answers.values()) == [0, 1, 0, 1, 0, 1, 0]  # the hub hides a label by -1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("questions.csv", "questions"),
        ("pool.jsonl.gz", "pool"),
        ("banking77/train.csv", "banking77-train"),
        ("openbookqa/test.jsonl.gz", "openbookqa-test"),
    ],
)
def test_a_name_that_says_nothing_has_its_folder_before_it(path: str, name: str) -> None:
    assert stem(Path("/somewhere") / path) == name
