"""Local data sets in the form of the hub; skipped where the extra `hub` is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.data import read
from stacksl.errors import DataError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return pytest.importorskip("datasets", reason="the extra 'hub' is not installed")


def test_a_saved_data_set_with_named_classes(hub: Any, tmp_path: Path) -> None:
    features = hub.Features(
        {"text": hub.Value("string"), "label": hub.ClassLabel(names=["neg", "pos"])}
    )
    whole = hub.Dataset.from_dict(
        {"text": [f"t{n}" for n in range(8)], "label": [n % 2 for n in range(8)]}, features=features
    )
    hub.DatasetDict(train=whole, test=whole.select(range(3))).save_to_disk(str(tmp_path / "both"))
    data = read(f"hf:{tmp_path / 'both'}#test")
    assert (data.name, data.format) == ("both-test", "hub:classes")
    assert data.classes == ("neg", "pos")
    assert list(data.answers.values()) == [0, 1, 0]
    with pytest.raises(DataError, match="no split 'dev': it has train, test"):
        read(f"hf:{tmp_path / 'both'}#dev")


def test_choices_and_answer_keys(hub: Any, tmp_path: Path) -> None:
    rows = hub.Dataset.from_dict(
        {
            "id": ["a", "b"],
            "question_stem": ["x", "y"],
            "choices": [
                {"text": ["p", "q"], "label": ["A", "B"]},
                {"text": ["r", "s"], "label": ["A", "B"]},
            ],
            "answerKey": ["B", "A"],
        }
    )
    rows.save_to_disk(str(tmp_path / "one"))
    data = read(f"hf:{tmp_path / 'one'}")
    assert data.answers == {"a": 1, "b": 0}


def test_a_name_is_needed() -> None:
    with pytest.raises(DataError, match="names no data set"):
        read("hf:")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("cannot read the cell 'zyxprompt'"), "the library raised ValueError"),
        (FileNotFoundError("zyxprompt"), "there is no such data set"),
        (ConnectionError("zyxprompt"), "the hub cannot be reached"),
    ],
)
def test_what_the_library_says_is_not_passed_on(
    hub: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(hub, "load_dataset", fail)
    with pytest.raises(DataError, match=f"'hf:some/where' cannot be loaded: {said}") as found:
        read("hf:some/where")
    assert "zyx" not in str(found.value)
