"""What `stacksl.run` and `Run` cannot use from Python is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import stacksl
from stacksl.core import SharedBlock
from stacksl.errors import (
    DataError,
    FeatureError,
    LabelerError,
    RunError,
    SettingsError,
    StackslError,
)
from stacksl.features import FEATURES, make_features
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.session.language import chat_arguments
from stacksl.runs.spec import RunSpec

from .python_cases import LABELS, ROWS, TEXTS, right, run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        (
            {"plugins": ["json", "no_such"]},
            SettingsError,
            "the plugin 'no_such' cannot",
        ),
        ({"model_labels": "x" * 5000}, DataError, "cannot be read"),
        ({"features": ROWS[:5]}, FeatureError, r"shape \(90, d\).*got \(5, 8\)"),
        ({"features": [["a"]] * 90}, FeatureError, "array of real numbers"),
        ({"features": np.full((90, 2), np.nan)}, FeatureError, "NaN or infinity in row 1"),
        ({"features": 1e300 * ROWS}, FeatureError, "from -1e100 to 1e100, got a larger one"),
        ({"features": "given"}, SettingsError, "features=X"),
        ({"budget": ROWS}, SettingsError, "budget should be one value, got a ndarray"),
        ({"labeler": 5}, SettingsError, "got an int"),
        ({"labeler": lambda request: 7}, LabelerError, "correct the function"),
        ({"labeler": lambda request: True}, LabelerError, "got a bool that is none of them"),
        ({"preset": pandas.DataFrame()}, SettingsError, "preset should be a name"),
        ({"progress": True}, SettingsError, "progress should be a function"),
        ({"classes": ["sky", pandas.NA]}, SettingsError, "none missing: leave out None and NaN"),
        ({"classes": ["one"]}, DataError, "two or more different classes"),
        ({"classes": ["sky", "beach"]}, DataError, r"got another one \(row 2\)"),
        ({"features": ROWS, "test": (TEXTS, LABELS)}, SettingsError, "Run.evaluate"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(settings: Any, kind: Any, expected: str) -> None:
    with pytest.raises(kind, match=expected) as fault:
        run(TEXTS, LABELS, **settings)
    assert "array(" not in str(fault.value)


@pytest.mark.parametrize("items", [5, {"a": 1}, b"text", [1, 2], []])
def test_what_is_no_list_of_items_is_one_sentence(items: Any) -> None:
    with pytest.raises(DataError, match="items should be|at least one item"):
        run(items)


def test_no_and_zero_are_labels_and_not_missing() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": [n % 2 == 0 for n in range(90)]})
    assert run(frame).model.classes == ("false", "true")
    zeros = stacksl.run(frame.assign(label=[n % 2 for n in range(90)]), out="zeros", budget=9)
    assert zeros.model.classes == ("0", "1")


@pytest.mark.parametrize("column", ["text", "label"])
def test_a_cell_may_be_missing_as_pandas_says_it(column: str) -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS}, dtype=object)
    frame.loc[3, column] = pandas.NA
    table = run(frame, labeler=right).table()
    assert table.predicted_label.isna().sum() == (column == "text")
    texts = stacksl.run(TEXTS, [*LABELS[:89], pandas.NA], labeler=right, out="texts", budget=20)
    assert texts.model.classes == ("beach", "forest", "sky")


@pytest.mark.parametrize(
    "labels",
    [np.zeros((90, 2), int), np.array(1), [["sky"]] * 90, dict.fromkeys(TEXTS, "sky"), LABELS[:3]],
)
def test_labels_that_are_no_list_of_single_labels_are_refused(labels: Any) -> None:
    with pytest.raises(StackslError, match="should (be (a list|one name or index)|have as many)"):
        run(TEXTS, labels)


@pytest.mark.parametrize(
    "given",
    [
        {"annotators": ["ben", 3]},
        {"classes": ["new", {"x": 1}]},
        {"items": pandas.DataFrame({"text": TEXTS})},
        {"stop_when": pandas.DataFrame()},
        {"settings": pandas.DataFrame()},
        {"budget": "many\nlabels " + "x" * 100_000},
    ],
)
def test_what_no_change_can_be_is_one_short_sentence(given: dict[str, Any]) -> None:
    played = run(TEXTS, LABELS)
    with pytest.raises(StackslError) as fault:
        played.change(**given, dry_run=True)
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 1_000
    assert played.change(budget=30, drop=None, dry_run=True).dropped == 0  # type: ignore[arg-type]
    assert played.status()["state"] == "finished"


FRAME = pandas.DataFrame({"a": [1, 0]})
HALF = "a\ud800b"


@pytest.mark.parametrize("value", [FRAME, FRAME.a, pandas.NA, np.zeros(2), "yes"])
def test_a_flag_without_a_truth_is_one_sentence(value: Any) -> None:
    made = run(TEXTS, LABELS)
    calls = {
        "names": made.labels,
        "reopen": made.change,
        "drop": partial(made.change, budget=30),
        "later": partial(made.change, budget=30),
        "dry_run": made.people,
    }
    for flag, function in calls.items():
        expected = rf"^{flag} should be True or False, got a {type(value).__name__}$"
        with pytest.raises(SettingsError, match=expected):
            function(**{flag: value})
    with pytest.raises(StackslError):
        made.people(free=value)
    with pytest.raises(StackslError):
        made.answer(correct=value)
    assert made.change(budget=np.int64(30), later=np.False_, drop=None).left == 10  # type: ignore[arg-type]
    assert made.status()["spent"] == 30


def test_a_path_with_half_of_a_character_is_one_sentence() -> None:
    made = run(TEXTS, LABELS)
    calls: list[Callable[[], Any]] = [
        lambda: stacksl.Run.open(HALF),
        lambda: stacksl.load(HALF),
        lambda: stacksl.list_runs(HALF),
        lambda: made.predict(HALF),
        lambda: made.change(items=HALF),
        lambda: made.change(owned=[HALF]),
        lambda: made.answer(HALF),
        *(
            partial(stacksl.run, TEXTS, LABELS, budget=20, **{name: HALF})
            for name in ("out", "test", "classes", "owned", "model_labels")
        ),
    ]
    expected = "should be a path, got one with a NUL character or half of a character: remove it"
    for function in calls:
        with pytest.raises(SettingsError, match=expected):
            function()
    with pytest.raises(RunError, match="there is no run"):
        stacksl.Run.open("caf\udce9")  # a name of bytes that are not UTF-8


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"budget": None}, "budget must be a valid string, not None: correct that or leave it out"),
        ({"refit": pandas.NA}, "refit must be a valid boolean, not <NA>: correct that or"),
        ({"gate": FRAME}, "gate must be a valid dictionary or instance of Gate, not "),
        ({"lm": {"chat_arguments": {"date": object()}}}, "values that JSON has: correct that or"),
        ({"annotators": ["a,b"]}, "annotators should be names, each a text without a comma"),
        ({"annotators": []}, "annotators should be names, each a text without a comma"),
        ({"lm": {"lora_rank": "x"}}, "lora_rank must be a valid integer, not 'x': correct"),
        ({"budgt": 1, "seed": 1.5}, "unknown setting 'budgt': correct"),
        ({"budgt": 1, "seed": 1.5}, "seed must be a valid integer, not 1.5; "),
    ],
)
def test_settings_that_are_wrong_are_sentences(settings: Any, sentence: str) -> None:
    with pytest.raises(SettingsError) as fault:
        stacksl.Settings(**settings)
    assert sentence in str(fault.value)
    assert "pydantic" not in str(fault.value)


def test_what_is_no_table_of_settings_and_no_list_of_names_is_one_sentence() -> None:
    for wrong in (FRAME, pandas.NA, {1: 2}):
        with pytest.raises(SettingsError, match=r"settings? should be (a dict|text), got a"):
            stacksl.prepare(TEXTS, LABELS, settings=wrong)
    expected = "classes should be a list of names or a file, got a"
    for names in (5, pandas.NA, {"a": "b"}, "classes.txt"):
        with pytest.raises(SettingsError, match=expected):
            stacksl.prepare(TEXTS, LABELS, classes=names)  # type: ignore[arg-type]
    made = run(TEXTS, LABELS)
    with pytest.raises(SettingsError, match="a name, a path or a list of them was expected, got a"):
        made.change(classes={1: "one"})  # type: ignore[dict-item]
    with pytest.raises(DataError, match="should have an answer, got 1 of 90 without one"):
        made.evaluate(TEXTS, [*LABELS[:-1], pandas.NA])


@pytest.mark.parametrize("kind", [list, tuple, ",".join])
def test_annotators_are_a_list_or_names_between_commas(kind: Any) -> None:
    names = kind(["anna", "ben"])
    settings = stacksl.Settings(labeler="file", annotators=names, plugins=names)
    assert (settings.people, settings.plugins) == (["anna", "ben"], "anna,ben")


def test_settings_are_given_as_python_has_them() -> None:
    arguments = {"enable_thinking": False, "style": "short"}
    given = {"model": Path("base"), "chat_arguments": arguments, "refit_at": [0.5, 1]}
    settings = stacksl.Settings(owned=Path("owned.csv"), lm={"chat": True, **given})
    assert (settings.owned, settings.lm.model) == ("owned.csv", "base")
    assert settings.lm.refit_at == "0.5,1"
    assert chat_arguments(settings.lm.chat_arguments) == arguments
    with pytest.raises(SettingsError, match="refit"):
        stacksl.Settings(lm={"refit_at": [2]})


@pytest.mark.parametrize("given", [None, np.ones((90, 2)), SharedBlock(np.ones((89, 2)), 3)])
def test_features_of_yours_that_are_no_block_of_the_items_are_a_sentence(
    given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(argument: str, classes: Any) -> Any:
        features = make_features("hashing", classes=classes)
        monkeypatch.setattr(features, "transform", lambda items, progress=None: given)
        return features

    monkeypatch.setitem(FEATURES, "odd", odd)
    with pytest.raises(FeatureError, match=r"give a block of 90 items, got (89|a.*): correct"):
        run(TEXTS, LABELS, features="odd")


def test_labels_and_features_in_another_order_than_the_texts_are_refused() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS}, index=[f"r{n}" for n in range(90)])
    turned = frame[::-1]
    with pytest.raises(SettingsError, match="answers should have the index of the items in the"):
        run(frame.text, turned.label)
    with pytest.raises(SettingsError, match="features should have the index of the items in the"):
        run(frame, features=pandas.DataFrame(ROWS, index=turned.index))
    played = run(frame.text, frame.label)
    assert played.evaluate(frame.text, frame.label.reset_index(drop=True))["accuracy"] > 0.9
    with pytest.raises(SettingsError, match="answers should have the index"):
        played.evaluate(frame.text, turned.label)


def test_labels_of_some_rows_are_learned_from_a_file_or_their_column_if_it_is_named() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    frame.head(20).to_csv("own.csv", index=False)
    frame.loc[20:, "label"] = None
    frame.to_csv("table.csv", index=False)
    warned = run(frame, labeler=right).status()["warnings"]
    assert "20 of 90 rows have a label that this run does not learn and may buy again" in warned[0]
    assert "--owned label learns them" in warned[0]
    for number, (data, owned) in enumerate(
        [(frame, "own.csv"), (frame, "label"), ("table.csv", "label")]
    ):
        owning = stacksl.run(
            data, labeler=right, owned=owned, out=f"own{number}", budget=20, audit=0
        )
        assert not [w for w in owning.status()["warnings"] if "may buy again" in w]
        assert "labels, of which 20 were bought; of these the" in owning.forecast()["rests_on"]
        owned_rows = owning.labels(frame).head(20)
        if owned == "label":
            assert list(owned_rows.bought_label) == LABELS[:20]
            assert {*owned_rows.bought_purpose} == {"owned"}
        else:
            assert owned_rows.bought_label.isna().all()
        table = owning.table(frame)
        assert list(table.predicted_label[:20]) == LABELS[:20]
        assert {*table.predicted_source[:20]} == {"human"}


def test_a_row_of_a_column_of_owned_labels_is_one_item() -> None:
    """It keeps its own label where its text has others, has its id, and is forgotten whole."""
    frame = pandas.DataFrame({"id": [f"t{n}" for n in range(90)], "text": TEXTS, "label": LABELS})
    frame.loc[:2, "text"] = "the same words"
    frame.loc[:2, "label"] = ["sky", "beach", "forest"]
    frame.loc[20:, "label"] = None
    frame.to_csv("table.csv", index=False)
    made = stacksl.run("table.csv", labeler=right, owned="label", out="own", budget=20, audit=0)
    rows = {row["id"]: row for row in made.table().rows}
    assert [rows[f"t{n}"]["predicted_label"] for n in range(3)] == ["sky", "beach", "forest"]
    ids = {row["item"] for row in made.labels().rows if row["purpose"] == "owned"}
    assert ids == {f"t{n}" for n in range(20)}
    for item, name in (("t5", "t5"), ("owned/t6", "t6")):
        erased = forget(made.path, item)
        assert erased.learned
        assert not [each for each in erased.remains if "same text" in each]
        kept = RunSpec.open(made.folder).sources.usable
        assert not {name, f"owned/{name}"} & kept.keys()
    assert [each for each in forget(made.path, "t0").remains if "same text: 4" in each]
    Path("more.csv").write_text("id,text,label\nt1,sand and waves again,beach\n")
    made.change(owned="more.csv", budget=22, labeler=right)
    kept = {row["item"] for row in made.labels().rows if row["purpose"] == "owned"}
    assert {"t1", "owned/2/t1"} <= kept
    Path("label").mkdir()  # a folder is no file of owned labels
    again = stacksl.run("table.csv", labeler=right, owned="label", out="again", budget=20, audit=0)
    assert RunSpec.open(again.folder).settings.owned == "label"


def test_a_run_stays_where_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of the same name is not taken for it in another folder."""
    Path("there").mkdir()
    mine = run(TEXTS, LABELS, budget=20)
    monkeypatch.chdir("there")
    other = run(TEXTS, LABELS, budget=30)
    assert (mine.status()["spent"], other.status()["spent"]) == (20, 30)
    assert str(mine.path) == str(other.path) == "run"
    mine.change(budget=25)
    assert (mine.status()["spent"], other.status()["spent"]) == (25, 30)
    assert mine.report() == Path("..").resolve() / "run" / "report.html"


def test_no_value_of_a_spreadsheet_is_no_label() -> None:
    rows = [f"{text},{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    Path("table.csv").write_text("\n".join(["text,label", *rows, "some more words,#N/A"]))
    made = stacksl.run("table.csv", labeler="file", out="run", budget=20, audit=0)
    assert RunSpec.open(made.folder).dataset.classes == tuple(sorted({*LABELS}))


def test_a_name_that_is_neither_a_file_nor_the_column_of_labels_owns_nothing() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    with pytest.raises(DataError, match="name one with --owned, or a file that exists"):
        stacksl.run(frame, labeler=right, owned="known", out="a")
    with pytest.raises(DataError, match="neither a file nor the column of labels"):
        stacksl.run(TEXTS, LABELS, labeler=right, owned="label", out="a")
    frame["label"] = None
    with pytest.raises(DataError, match="no row of the column of owned labels 'label' has a label"):
        stacksl.run(frame, labeler=right, owned="label", classes=sorted({*LABELS}), out="a")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "xlsx", "frame", "csv", "text"])
def test_ids_come_back_as_numbers_where_the_data_has_numbers(kind: str) -> None:
    frame = pandas.DataFrame({"ticket_id": range(1000, 1090), "text": TEXTS, "label": LABELS})
    if kind == "text":
        frame.ticket_id = frame.ticket_id.astype(str)
    frame.to_json("table.jsonl", orient="records", lines=True)
    frame.to_parquet("table.parquet")
    frame.to_excel("table.xlsx", index=False)
    frame.to_csv("table.csv", index=False)
    data = frame if kind == "frame" else f"table.{kind.replace('text', 'jsonl')}"
    run(data)
    opened = stacksl.Run.open("run")
    wanted = str if kind in ("csv", "text") else int
    bought = pandas.DataFrame(opened.labels().rows)
    assert {type(id) for id in bought.item.tolist()} == {wanted}
    if kind != "csv":
        assert len(bought.merge(frame, left_on="item", right_on="ticket_id")) == len(bought)
        assert opened.labels(frame).bought_label.notna().sum() == len(bought)
    if kind != "frame":
        assert [row["id"] for row in opened.predict(data)] == [*map(wanted, range(1000, 1090))]


def test_a_report_that_was_deleted_is_said_with_what_makes_it_again() -> None:
    played = run(TEXTS, LABELS)
    for path in (played.path / "facts.json", *(played.path / "model").iterdir()):
        path.unlink()
    with pytest.raises(RunError, match="no report in run: it .* to which `stacksl resume run`"):
        played.report()
    with pytest.raises(RunError, match="there is no model in run/model: it is written at the end"):
        played.predict(TEXTS)
    assert played.resume().report().is_file()
