"""Texts, data frames, arrays and functions: what `stacksl.run` takes from Python."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import stacksl
from stacksl.api.labeling import label_file
from stacksl.cli.entry import call
from stacksl.data import write_table
from stacksl.errors import (
    DataError,
    FeatureError,
    LabelerError,
    RunError,
    RunWarning,
    SettingsError,
    StackslError,
)
from stacksl.labelers.protocol import Request

from ..ledgers import bought, items_bought, open_leases
from .python_cases import LABELS, ROWS, TEXTS, WORDS, right, run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_texts_and_labels_are_a_pool_with_the_names_of_the_classes() -> None:
    played = run(TEXTS, LABELS)
    assert played.folder.resolved()["mode"] == "pool"
    assert played.model.classes == ("beach", "forest", "sky")
    assert [row["choice"] for row in played.predict(["sand wave", "fern moss"])] == [
        "beach",
        "forest",
    ]
    assert played.evaluate(TEXTS, LABELS)["accuracy"] > 0.9
    assert played.replay()["labels"] == 20


def test_a_model_is_read_again_only_when_its_files_have_changed() -> None:
    played = run(TEXTS, LABELS)
    first = played.model
    assert stacksl.Run.open("run").model is first
    before = [row["choice"] for row in played.predict(TEXTS)]
    played.change(budget=30)
    assert played.model is not first
    assert [row["choice"] for row in played.predict(TEXTS[:3])] == LABELS[:3]
    (played.folder.model / "head.safetensors").write_bytes(b"cut")
    with pytest.raises(StackslError):
        played.predict(TEXTS)
    assert len(before) == len(TEXTS)


@pytest.mark.parametrize(
    "kind", ["pandas", *(pytest.param(k, marks=pytest.mark.slow) for k in ("polars", "datasets"))]
)
def test_a_data_frame_is_read_by_its_columns(kind: str) -> None:
    library = pytest.importorskip(kind, reason=f"needs {kind}")
    table = {"sentence": TEXTS, "kind": LABELS, "n": list(range(90))}
    frame = library.Dataset.from_dict(table) if kind == "datasets" else library.DataFrame(table)
    played = run(frame, columns={"prompt": "sentence", "label": "kind"})
    assert played.evaluate(TEXTS, LABELS)["accuracy"] > 0.9
    table = {"text": TEXTS, "kind": LABELS}
    again = library.Dataset.from_dict(table) if kind == "datasets" else library.DataFrame(table)
    with pytest.warns(UserWarning, match="no column 'sentence' .* so 'text' is read as the text"):
        labeled = played.predict(again)
    assert len(labeled if kind == "pandas" else [*labeled]) == 90
    played.resume()  # finished: from the copy in its folder
    assert played.replay()["labels"] == 20


def test_a_frame_of_pandas_keeps_its_index() -> None:
    table = {"message": [*TEXTS, " "], "label": [*LABELS, "sky"], "n": range(91)}
    frame = pandas.DataFrame(table).sample(frac=1, random_state=0)
    columns = {"prompt": "message", "label": "label"}
    played = run(frame, columns=columns)
    assert items_bought(played) <= {*map(str, frame.index)}, "the index names the items"
    for labeled in (played.labels(), stacksl.Run.open("run").labels(frame)):
        assert labeled.index.equals(frame.index)
        assert labeled[[*table]].equals(frame)
        known = labeled[labeled.bought_label.notna()]
        assert len(known) == 20
        assert [*known.bought_label] == [*known.label]
    new = frame[frame.n % 2 == 0].iloc[::-1].drop(columns="label")
    said = played.predict(new)
    assert said.index.equals(new.index)
    assert [*said.columns] == ["message", "n", "label", "confidence", "source"]
    assert said.label[said.n == 90].isna().all()
    assert len(said) == 46
    rows = {row["id"]: row["choice"] for row in played.predict(TEXTS)}
    assert said.label[said.n < 90].tolist() == [rows[f"row-{n + 1:06d}"] for n in said.n if n < 90]
    assert [*played.predict(frame).columns][-2:] == ["predicted_confidence", "predicted_source"]


def test_labels_are_joined_only_with_the_rows_that_they_are_of() -> None:
    """Rows without ids are the run's by their place: other rows would get the labels of these."""
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    run(frame)
    opened = stacksl.Run.open("run")
    assert opened.labels(frame).bought_label.notna().sum() == 20
    for other in (frame.iloc[::-1].reset_index(drop=True), frame.assign(text=[*TEXTS[1:], "x y"])):
        with pytest.raises(DataError, match="'row-000001' has another text than the item"):
            opened.labels(other)
    with pytest.raises(DataError, match="none of the 90 rows is an item of the run, whose ids are"):
        opened.labels(frame.set_index(frame.index.map("m{}".format)))
    assert opened.table(frame.text).label.tolist() == opened.table(frame).predicted_label.tolist()
    for call_of in (opened.labels, opened.table):
        with pytest.raises(DataError, match="data frame of pandas that .* got a list: leave it"):
            call_of(TEXTS)


def test_the_delivered_table_is_the_frame_with_peoples_answers() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "channel": "mail"}).set_index(pandas.Index(TEXTS))
    odd = iter([None] + [0] * 90)  # the first one is none of these
    played = run(frame, classes=list(WORDS), labeler=lambda request: next(odd))
    for table in (played.table(), stacksl.Run.open("run").table(frame)):
        assert table.index.equals(frame.index)
        assert [*table.columns] == ["text", "channel", "label", "confidence", "source"]
        assert table.source.value_counts().to_dict() == {"model": 70, "human": 19, "human: none": 1}
        assert {*table.label[table.source == "human"]} == {"beach"}
        bought = played.labels().label.dropna()
        assert table.label[bought.index].equals(bought)
    with pytest.raises(DataError, match="another text"):
        played.table(frame.iloc[::-1].set_index(frame.index))
    assert stacksl.Run.open("run").table().blank == {"human: none": 1}


def test_a_frame_may_have_other_names_of_columns_later() -> None:
    played = run(pandas.DataFrame({"text": TEXTS, "label": LABELS}))
    new = pandas.DataFrame({"note": ["long words " * 9] * 90, "body": TEXTS, "topic": LABELS})
    said = played.predict(new, columns={"prompt": "body"})
    assert said.label.tolist() == played.predict(new.body).label.tolist()
    named = {"prompt": "body", "label": "topic"}
    assert played.evaluate(new, columns=named)["accuracy"] > 0.9


def test_labels_may_be_numbers_of_numpy_or_come_from_an_iterator() -> None:
    played = run(TEXTS, LABELS, budget=np.int64(20), seed=np.int64(5))
    assert played.status()["answered"] == 20
    assert played.folder.resolved()["seed"] == 5
    items = [stacksl.Item(f"{n}", text, tuple(WORDS)) for n, text in enumerate(TEXTS)]
    places = np.array([list(WORDS).index(label) for label in LABELS], dtype=np.float32)
    for name, labels in (("floats", places), ("iterator", iter(places.tolist()))):
        made = stacksl.run(items, labels, out=name, budget=20, audit=0)
        human = {row["id"]: row["label"] for row in made.table().rows if row["source"] == "human"}
        assert len(human) == 20
        assert human.items() <= {str(n): label for n, label in enumerate(LABELS)}.items()


def test_numbers_that_are_names_of_classes_are_no_indices() -> None:
    numbers = [n % 12 for n in range(96)]  # as text '10' and '11' are sorted before '2'
    texts = [f"{'abcdefghijkl'[n] * 3} {'mnopqrstuvwx'[n] * 3} {m}" for m, n in enumerate(numbers)]
    played = run(texts, numbers, budget=60, test=(texts, np.array(numbers)))
    assert played.model.classes[:4] == ("0", "1", "10", "11")
    assert played.status()["test"]["accuracy"] > 0.9
    floats = np.array(numbers, np.float32)
    for same in (numbers, floats, [*map(float, numbers)], [*map(str, numbers)]):
        assert played.evaluate(texts, same)["accuracy"] > 0.9
    of_floats = stacksl.run(texts, floats, budget=60, out="floats")
    assert of_floats.evaluate(texts, numbers)["accuracy"] > 0.9
    odd = [n % 2 == 1 for n in numbers]
    assert stacksl.run(texts, np.array(odd), budget=9, out="odd").model.classes == ("false", "true")
    with pytest.raises(DataError, match=r"one of the 12 classes .* another one \('15' in row 1"):
        played.evaluate(texts[:2], [15, 3])
    stars = stacksl.run(TEXTS, [n % 3 + 2 for n in range(90)], classes=[3, 4, 2], out="s", budget=9)
    human = {row["id"]: row["label"] for row in stars.table().rows if row["source"] == "human"}
    assert human.items() <= {f"row-{n:06d}": str((n - 1) % 3 + 2) for n in range(1, 91)}.items()


@pytest.mark.parametrize("kind", ["parquet", "xlsx", "jsonl"])
def test_labels_are_numbers_if_the_column_has_numbers(kind: str) -> None:
    """Else each of them would differ from the cell that it is compared with."""
    stars = [n % 3 + 1 for n in range(90)]
    rows = [{"text": text, "stars": star} for text, star in zip(TEXTS, stars, strict=True)]
    write_table(f"data.{kind}", ["text", "stars"], rows)
    settings = {"columns": {"label": "stars"}, "budget": 20, "audit": 0, "features": "hashing"}
    made = stacksl.run(f"data.{kind}", out="file", **settings)
    new = label_file(made.model, f"data.{kind}", made.read(f"data.{kind}"), None, None)
    for table in (made.table(), new):
        equal = [row["label"] == getattr(row["stars"], "value", row["stars"]) for row in table.rows]
        assert sum(equal) > 80
    frame = pandas.DataFrame(rows).astype({"stars": "Int64"})
    of_frame = stacksl.run(frame, out="frame", **settings)
    assert (of_frame.table().label == frame.stars).sum() > 80
    assert (of_frame.labels().label == frame.stars).sum() == 20
    gaps = frame.assign(stars=frame.stars.where(frame.index > 5))
    assert (of_frame.predict(gaps).label == gaps.stars).sum() > 76
    assert of_frame.evaluate(frame)["accuracy"] > 0.5
    truth = frame.assign(stars=frame.stars == 1)
    of_truth = stacksl.run(truth, out="truth", **settings)
    assert {*of_truth.table().label} == {False, True}
    assert of_truth.evaluate(truth)["accuracy"] > 0.5


def test_a_function_that_returns_a_number_means_one_candidate() -> None:
    def stars(request: Any) -> int:
        return [*WORDS].index(right_of(request)) + 1

    def right_of(request: Any) -> str:
        return next(topic for topic in WORDS if request.prompt.split()[0] in WORDS[topic])

    settings = {"classes": [2, 3, 1], "budget": 20, "audit": 0, "out": "stars"}
    with pytest.raises(LabelerError, match="the text of one candidate .* return a text such as"):
        stacksl.run(TEXTS, labeler=stars, **settings)
    played = stacksl.Run.open("stars").resume(labeler=lambda request: str(stars(request)))
    topics = dict(zip(TEXTS, LABELS, strict=True))
    labels = {(topics[row["text"]], row["label"]) for row in played.labels().rows}
    assert labels == {("beach", "1"), ("forest", "2"), ("sky", "3")}
    settings |= {"classes": [10, 20, 30], "out": "tens"}  # numbers that are no index
    tens = stacksl.run(TEXTS, labeler=lambda request: 10 * stars(request), **settings)
    labels = {(topics[row["text"]], row["label"]) for row in tens.labels().rows}
    assert labels == {("beach", "10"), ("forest", "20"), ("sky", "30")}
    settings |= {"classes": [True, False], "out": "truth"}
    truth = stacksl.run(TEXTS, labeler=lambda request: np.bool_(stars(request) > 1), **settings)
    labels = {(topics[row["text"]], row["label"]) for row in truth.labels().rows}
    assert labels == {("beach", "False"), ("forest", "True"), ("sky", "True")}


def test_a_run_shows_its_state_and_what_it_waits_for() -> None:
    made = run(TEXTS, LABELS)
    assert repr(made) == "Run('run', finished)"
    names = {"classes": list(WORDS), "budget": 20, "audit": "0"}
    waiting = stacksl.run(TEXTS, labeler=lambda request: stacksl.ABSTAIN, out="late", **names)
    assert repr(waiting) == "Run('late', waiting for 20 answers of lambda: it abstained)"
    waiting.people(free=True, drop=True)
    assert repr(waiting) == "Run('late', waiting)"
    with pytest.raises(LabelerError):
        stacksl.run(TEXTS, labeler=lambda request: 9, out="cut", **names)
    assert re.fullmatch(r"Run\('cut', failed: the labeler .*\)", repr(stacksl.Run.open("cut")))
    assert repr(stacksl.Run("nowhere")) == "Run('nowhere', unreadable)"


def test_what_is_odd_is_warned_of_once() -> None:
    frame = pandas.DataFrame({"text": [*TEXTS, None], "label": [*LABELS, "sky"]})
    with pytest.warns(RunWarning) as before:
        stacksl.run(frame, budget=20, audit=0, out="frame", features="hashing")
    assert [str(warning.message) for warning in before] == stacksl.Run("frame").status()["warnings"]
    assert {Path(warning.filename) for warning in before} == {Path(__file__)}

    names = {"classes": list(WORDS), "budget": 20, "audit": "0", "features": "hashing"}
    told = r"20 of 20 answered items have no answer that names a candidate"
    with pytest.warns(RunWarning, match=told) as after:
        made = stacksl.run(TEXTS, labeler=lambda request: None, out="none", **names)
    assert [str(warning.message) for warning in after] == made.status()["warnings"]
    assert {Path(warning.filename) for warning in after} == {Path(__file__)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.change(budget=20, labeler=lambda request: None)


def test_a_model_is_shown_without_its_arrays() -> None:
    assert len(repr(run(TEXTS, LABELS).model)) < 500


def test_a_text_alone_is_no_item_where_items_have_candidates() -> None:
    items = [stacksl.Item(f"{n}", text, (f"a{n}", f"b{n}")) for n, text in enumerate(TEXTS)]
    played = run(items, [n % 2 for n in range(90)])
    with pytest.raises(DataError, match="candidates of their own, so a text alone cannot be"):
        played.predict(["sand wave"])


def test_features_as_an_array() -> None:
    played = run(TEXTS, LABELS, features=ROWS)
    assert played.evaluate(TEXTS, LABELS, features=ROWS)["accuracy"] > 0.9
    assert played.replay()["labels"] == 20
    new = [*played.predict(["a", "b"], features=100.0 * ROWS[:2])]
    assert [row["choice"] for row in new] == LABELS[:2]
    with pytest.raises(FeatureError, match="give features=X"):
        next(played.predict(["a"]))
    with pytest.raises(FeatureError, match=r"shape \(1, d\)"):
        played.predict(["a"], features=ROWS)
    with pytest.raises(FeatureError, match="8 columns, got 2"):
        next(played.predict(["a"], features=ROWS[:1, :2]))
    rows, said = played.table().rows, played.predict(TEXTS, features=ROWS)
    assert {row["source"] for row in rows} == {"human", "model"}
    for row, expected in zip(rows, said, strict=True):
        if row["source"] == "model":
            assert row["label"] == expected["choice"], "by the rows that the run has stored"
            assert row["confidence"] == pytest.approx(expected["probability"], abs=2e-6)


@pytest.mark.parametrize("fault", [OSError("the telephone is dead"), KeyboardInterrupt()])
def test_a_function_that_raises_or_is_stopped_loses_no_answer(fault: BaseException) -> None:
    """Each is on disk before the next question is asked, also within a batch."""
    calls = []

    def colleague(request: Any) -> Any:
        calls.append(request.item)
        if len(calls) == 12:
            raise fault
        if len(calls) == 5:
            return None
        word = request.prompt.split()[0]
        return next(c for c in request.candidates if word in WORDS[c])

    with pytest.raises(type(fault)) as raised:
        run(TEXTS, classes=list(WORDS), labeler=colleague, open_questions=25)
    (note,) = raised.value.__notes__
    assert note.startswith("In Python stacksl.Run.open('run').resume(labeler=...) continues the")
    stopped = stacksl.Run.open("run")
    assert stopped.status()["state"] == ("failed" if isinstance(fault, OSError) else "stopped")
    assert stopped.status()["answered"] == 11, "ten of them name a class"
    stopped.resume(labeler=colleague)
    told = stopped.status()
    assert (told["state"], told["spent"]) == ("finished", 20)
    assert len(calls) == 21  # the one that failed was asked again, no other
    with stopped.ledger as ledger:
        assert ledger.counts_by_kind() == {"label": 19, "none": 1, "ambiguous": 0, "broken": 0}


class Batches:
    """A labeler that answers in lists, of which one answer is not one the first time."""

    name, repeatable = "batches", False

    def __init__(self, wrong: Any) -> None:
        self.wrong, self.asked = wrong, list[Any]()
        self.open: list[Any] = []

    def ask(self, requests: Any) -> None:
        self.open += [request for request in requests if request not in self.open]

    def answers(self) -> Any:
        self.asked += [request.item for request in self.open]
        given: list[Any] = [
            request.answer(request.candidates.index(right(request)), self.name, 0)
            for request in self.open
        ]
        if self.wrong is not None and given:
            given[len(given) // 2], self.wrong = self.wrong(self.open[len(given) // 2]), None
        self.open = []
        return given

    def pending(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda request: request.answer(99, "batches", 0), "99"),
        (lambda request: request.answer(0, "batches", 10**9), "at most the 0 micro-units"),
        (lambda request: "x", r"made by `request.answer\(...\)`, got a str"),
        (lambda request: None, "got a NoneType"),
    ],
)
def test_one_wrong_answer_of_a_list_loses_no_other(wrong: Any, told: str) -> None:
    labeler = Batches(wrong)
    with pytest.raises(LabelerError, match=told):
        run(TEXTS, classes=list(WORDS), labeler=labeler)
    stopped = stacksl.Run.open("run")
    assert stopped.status()["answered"] == len(labeler.asked) - 1
    stopped.resume(labeler=labeler)
    assert stopped.status()["state"] == "finished"
    assert len(labeler.asked) - len(set(labeler.asked)) == 1, "only that one is asked again"


def test_answers_that_are_no_list_are_one_sentence() -> None:
    labeler = Batches(None)
    labeler.answers = lambda: None  # type: ignore[method-assign]
    with pytest.raises(LabelerError, match="as a list or an iterator, got a NoneType"):
        run(TEXTS, classes=list(WORDS), labeler=labeler)


def test_an_abstention_comes_back_from_another_process() -> None:
    assert pickle.loads(pickle.dumps(stacksl.ABSTAIN)) is stacksl.ABSTAIN
    assert copy.deepcopy(stacksl.ABSTAIN) is stacksl.ABSTAIN


def test_a_function_abstains_for_nothing_and_says_what_an_answer_cost() -> None:
    calls: list[str] = []

    def colleague(request: Any) -> Any:
        calls.append(request.item)
        if len(calls) == 3:
            return stacksl.ABSTAIN
        return (None, 0) if len(calls) == 4 else (right(request), Decimal("0.25"))

    settings = {"classes": list(WORDS), "price": "1", "open_questions": 5}
    played = run(TEXTS, labeler=colleague, **settings)
    told = played.status()
    assert (told["state"], told["labeler"]) == ("waiting", "colleague")
    assert told["sheets"] == [{"file": "colleague", "open": 1, "why": "it abstained"}]
    assert told["money"]["spent"] == 18 * 0.25 + 1, "the open question is promised its price"
    assert len(calls) == 20, "a question of which it abstained is not asked again at once"
    played.resume(labeler=colleague)
    assert played.status()["state"] == "finished"
    assert calls[-1] == calls[2]
    assert played.status()["money"]["spent"] == 19 * 0.25, "an abstention is free"
    with played.ledger as ledger:
        assert ledger.counts_by_kind() == {"label": 19, "none": 1, "ambiguous": 0, "broken": 0}


@pytest.mark.parametrize("price", [-0.1, 1.5, "much"])
def test_an_answer_costs_what_was_agreed_at_most(price: Any) -> None:
    with pytest.raises(LabelerError, match=r"a price from 0 to 1 .*, got .*: correct the function"):
        run(TEXTS, classes=list(WORDS), price="1", labeler=lambda request: (0, price))


def silent(request: Any) -> Any:
    return stacksl.ABSTAIN


def test_another_labeler_takes_the_open_questions() -> None:
    played = run(TEXTS, LABELS, labeler=silent, open_questions=4)
    assert played.status()["sheets"] == [{"file": "silent", "open": 4, "why": "it abstained"}]
    asked = {purchase.item for purchase in open_leases(played)}
    with pytest.raises(SettingsError, match="unknown labeler 'orcle'"):
        played.change(labeler="orcle")
    with pytest.raises(SettingsError, match="the labeler 'openai' needs a model and its server"):
        played.change(labeler="openai:m")
    played.change(labeler="oracle")
    told = played.status()
    assert (told["state"], told["labeler"], told["answered"]) == ("finished", "oracle", 20)
    assert asked <= items_bought(played)
    assert {row["labeler"] for row in bought(played)} == {"oracle"}
    assert played.replay()["labels"] == 20


@pytest.mark.parametrize("drop", [False, True])
def test_the_owner_frees_the_questions_of_any_labeler(drop: bool) -> None:
    played = run(TEXTS, LABELS, labeler=silent, open_questions=4)
    before = open_leases(played)
    assert played.people(free=True, drop=drop) == 4
    now = open_leases(played)
    assert [p.token for p in now] == ([] if drop else [p.token + 1 for p in before])
    told = played.status()
    assert told["out"] == len(now)
    assert (told["sheets"] is None) is drop, "nothing is awaited any more"
    assert told["spent"] - told["answered"] - told["out"] == 0
    played.resume(labeler=right)
    assert (played.status()["state"], played.status()["answered"]) == ("finished", 20)
    answered = {row["item"] for row in bought(played) if row["state"] == "answered"}
    assert (not answered & {p.item for p in before}) is drop
    with pytest.raises(RunError, match="no question of the run .* is open"):
        played.people(free=True)
    with pytest.raises(RunError, match="come from 'right', not from people"):
        played.people(free="anna")
    with pytest.raises(SettingsError, match="belongs to people who answer by file: give --labeler"):
        played.change(annotators="anna", labeler=right)


def test_an_empty_text_is_refused_by_predict_as_by_run() -> None:
    with pytest.raises(DataError, match="item 2 .* cannot be used: empty prompt") as fault:
        run(["sand", " ", "sun"], classes=list(WORDS), labeler="file")
    played = run(TEXTS, LABELS)
    with pytest.raises(DataError) as again:
        played.predict(["sand", " ", "sun"])
    assert str(again.value) == str(fault.value)


def test_a_run_that_python_answers_is_changed_by_a_call(capfd: pytest.CaptureFixture[str]) -> None:
    """The report has the call; the command is refused before it tells a cost."""

    def says(request: Request) -> int:
        return list(WORDS).index(LABELS[TEXTS.index(request.prompt)])

    given: dict[str, Any] = {"classes": list(WORDS), "labeler": says, "price": "2"}
    done = run(TEXTS, **given)
    page = unescape((done.path / "report.html").read_text(encoding="utf-8"))
    assert "stacksl.Run.open('run').change(budget=90, labeler=...)" in page
    assert "stacksl change run --budget" not in page
    assert call(["change", "run", "--budget", "30", "--yes", "--quiet"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert ".change(..., labeler=...)" in said
    with pytest.raises(RunError, match=r"stacksl\.Run\.open\('run'\)\.resume\(labeler=\.\.\.\)"):
        run(TEXTS, **given)
    done.change(budget=30, labeler=says)
    assert done.status()["spent"] == 30


def test_a_run_whose_function_abstains_ends_with_the_answers_there_are() -> None:
    def says(request: Request) -> Any:
        topic = LABELS[TEXTS.index(request.prompt)]
        return stacksl.ABSTAIN if topic == "sky" else list(WORDS).index(topic)

    waiting = run(TEXTS, classes=list(WORDS), labeler=says)
    waits, answered = open_leases(waiting), len(bought(waiting, state="answered"))
    assert waits
    assert waiting.status()["state"] == "waiting"
    with pytest.raises(RunError, match="`stacksl status run` says how to go on"):
        waiting.predict(["sand wave"])
    with pytest.raises(SettingsError, match=rf"drop=True\) and give at least {answered}"):
        waiting.change(budget=answered, labeler=says)
    found = waiting.change(budget=answered, drop=True, labeler=says)
    assert (found.dropped, waiting.status()["state"]) == (len(waits), "finished")
    assert waiting.status()["spent"] == answered
    waiting.replay()


def test_answers_to_items_that_bring_their_own_are_refused() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    frame.to_csv("data.csv", index=False)
    played, wrong = run(frame), ["sky"] * 90
    for items in (frame, frame[["text"]], "data.csv", Path("data.csv"), played.read(TEXTS)):
        with pytest.raises(DataError, match="answers are for a list of texts .* leave answers out"):
            played.evaluate(items, wrong)
        with pytest.raises(DataError, match="leave answers out"):
            stacksl.run(items, wrong, out="other")
    with pytest.raises(DataError, match="leave answers out"):
        stacksl.run(None, wrong, out="other")
    assert not Path("other").exists()
    assert played.evaluate(frame.text, frame.label) == played.evaluate(frame)


def test_labels_that_are_no_class_are_named_with_the_nearest_class() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    played, upper = run(TEXTS, LABELS), frame.assign(label=frame.label.str.upper())
    upper.to_csv("upper.csv", index=False)
    near = r"'BEACH' in row(-00000| )1( of 'label')?, did you mean 'beach'\?"
    none = f"has labels, but none of them is one of the 3 classes \\({near}"
    for items in (upper, "upper.csv"):
        with pytest.raises(DataError, match=none + ".*or leave out all labels"):
            played.evaluate(items)
        with pytest.raises(DataError, match="the test set .* " + none):
            stacksl.run(frame, test=items, out="other")
    with pytest.raises(DataError, match=f"a label should be .* one of the 3 .*one .{near}"):
        played.evaluate(TEXTS, [label.upper() for label in LABELS])
    with pytest.raises(DataError, match="'beach' in row 1 of 'label', did you mean 'Beaches'"):
        stacksl.run(frame, classes=["Beaches", "sea"], out="other")
    upper.rename(columns={"label": "topic"}).to_csv("owned.csv", index=False)
    with pytest.raises(DataError, match="the file of owned labels owned.csv has labels, but none"):
        stacksl.run(TEXTS, LABELS, owned="owned.csv", out="other")
    assert not Path("other").exists()
    other = frame.assign(label="VIP")  # a column of that name which says something else
    assert "told_after" in played.evaluate(other.assign(text=[f"{text} again" for text in TEXTS]))
    people = stacksl.run(upper, classes=[*WORDS], labeler="file", annotators=["ann", "ben"])
    assert [person.name for person in people.annotators()] == ["ann", "ben"]


def test_the_name_of_a_labeler_is_for_change() -> None:
    played = run(TEXTS, LABELS)
    with pytest.raises(SettingsError, match=r"got the name 'oracle': `change\(labeler='oracle'\)`"):
        played.resume(labeler="oracle")  # type: ignore[arg-type]


def test_people_take_the_place_of_a_labeler_that_never_answers() -> None:
    played = run(TEXTS, LABELS, labeler=silent, open_questions=4)
    played.change(labeler="file")
    told = played.status()
    assert (told["state"], told["labeler"]) == ("waiting", "file")
    assert [sheet["open"] for sheet in told["sheets"]] == [4]
    assert played.people(free=True) == 4
    assert played.status()["state"] == "waiting"
