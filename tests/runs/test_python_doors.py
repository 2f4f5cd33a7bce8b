"""Texts, data frames, arrays and functions: what `stacksl.run` takes from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.errors import DataError, FeatureError, LabelerError, SettingsError

WORDS = {"beach": "sand wave shell tide", "forest": "moss fern pine root", "sky": "cloud sun star"}
TEXTS, LABELS = [], []
for n in range(90):
    topic = list(WORDS)[n % 3]
    words = WORDS[topic].split()
    TEXTS.append(f"{words[n % 3]} {words[n // 3 % 3]} {n}")
    LABELS.append(topic)
ROWS = np.eye(8)[np.arange(90) % 3] + 0.1 * np.random.default_rng(0).standard_normal((90, 8))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(items: Any, labels: Any = None, **settings: Any) -> stacksl.Run:
    return stacksl.run(items, labels, out="run", **{"budget": 20, "audit": "0", **settings})


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


def test_indices_of_given_classes_mean_the_same() -> None:
    names = ["sky", "forest", "beach"]
    named = stacksl.run(TEXTS, LABELS, classes=names, budget=20, out="a")
    numbered = stacksl.run(
        TEXTS, np.array([names.index(x) for x in LABELS]), classes=names, budget=20, out="b"
    )
    assert named.model.classes == numbered.model.classes == tuple(names)
    assert [*named.predict(TEXTS)] == [*numbered.predict(TEXTS)]


@pytest.mark.parametrize("kind", ["pandas", "polars", "datasets"])
def test_a_data_frame_is_read_by_its_columns(kind: str) -> None:
    library = pytest.importorskip(kind, reason=f"needs {kind}")
    table = {"sentence": TEXTS, "kind": LABELS, "n": list(range(90))}
    frame = library.Dataset.from_dict(table) if kind == "datasets" else library.DataFrame(table)
    played = run(frame, prompt_column="sentence", label_column="kind")
    assert played.evaluate(TEXTS, LABELS)["accuracy"] > 0.9
    table = {"text": TEXTS, "kind": LABELS}
    again = library.Dataset.from_dict(table) if kind == "datasets" else library.DataFrame(table)
    assert len([*played.predict(again)]) == 90
    played.resume()  # finished: from the copy in its folder
    assert played.replay()["labels"] == 20


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


def test_a_function_labels_and_what_it_raises_loses_nothing() -> None:
    calls = []

    def colleague(request: Any) -> Any:
        calls.append(request.item)
        if len(calls) == 12:
            raise OSError("the telephone is dead")
        if len(calls) == 5:
            return None
        word = request.prompt.split()[0]
        return next(c for c in request.candidates if word in WORDS[c])

    with pytest.raises(OSError, match="telephone"):
        run(TEXTS, classes=list(WORDS), labeler=colleague)
    stopped = stacksl.Run.open("run")
    assert stopped.status()["state"] == "failed"
    assert stopped.status()["answered"] == 11, "ten of them name a class"
    stopped.resume(labeler=colleague)
    told = stopped.status()
    assert (told["state"], told["spent"]) == ("finished", 20)
    assert len(calls) == 21  # the one that failed was asked again, no other
    with stopped.ledger as ledger:
        assert ledger.said() == {"label": 19, "none": 1, "ambiguous": 0, "broken": 0}


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"features": ROWS[:5]}, FeatureError, r"shape \(90, d\).*got \(5, 8\)"),
        ({"features": [["a"]] * 90}, FeatureError, "array of numbers"),
        ({"features": np.full((90, 2), np.nan)}, FeatureError, "NaN or infinity in row 1"),
        ({"features": "given"}, SettingsError, "features=X"),
        ({"budget": ROWS}, SettingsError, "budget should be one value, got an array"),
        ({"labeler": 5}, SettingsError, "got a int"),
        ({"labeler": lambda request: 7}, LabelerError, "correct the function"),
        ({"classes": ["one"]}, DataError, "two or more different classes"),
        ({"classes": ["sky", "beach"]}, DataError, "the label of row 2"),
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


def test_labels_of_another_number_are_refused() -> None:
    with pytest.raises(DataError, match="90 texts should have as many labels, not 3"):
        run(TEXTS, LABELS[:3])


@pytest.mark.parametrize(
    "items",
    [
        [f"{text} {n} " for n in range(20) for text in ("lost", "top up")],
        [stacksl.Item(f" i{n}", f" lost {n}", ("card ", "money")) for n in range(40)],
        [stacksl.Item(f"i{n}", f"lost {n}\n", (f"card {n}\t", "money")) for n in range(40)],
    ],
)
def test_white_space_around_texts_made_in_python_does_not_change_the_run(items) -> None:
    classes = ["card", "money "] if isinstance(items[0], str) else None
    run(items, budget=6, labeler="file", classes=classes)
    assert stacksl.Run.open("run").resume().status()["state"] == "waiting"


@pytest.mark.parametrize(
    ("texts", "reason"), [(["", "a"], "empty prompt"), (["a\0", "b"], "a NUL byte")]
)
def test_a_text_that_could_not_be_read_again_is_refused(texts, reason) -> None:
    with pytest.raises(DataError, match=f"row 1 .*{reason}"):
        run(texts, classes=["card", "money"], budget=1)
    assert not Path("run").exists()
