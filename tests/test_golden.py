"""The comparison of two trees: what it reports, and that a tree equals itself."""

from __future__ import annotations

import copy
import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

Values = dict[str, Any]


@pytest.fixture(scope="module")
def golden(root: Path) -> ModuleType:
    if not (root / "scripts" / "golden.py").exists():
        pytest.skip("scripts/ is in a checkout alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "scripts"))
        return importlib.import_module("golden")


@pytest.fixture
def values() -> Values:
    return {
        "purchases": [{"item": "i1", "purpose": "train", "price": 0}],
        "events": [{"event": "answered", "item": "i1", "index": 2}],
        "theta": {"model/theta": np.arange(6.0).reshape(2, 3)},
        "report": {"audit": {"accuracy": 0.75, "worst": math.nan, "labels": None}},
    }


def test_equal_values_do_not_differ(golden: ModuleType, values: Values) -> None:
    assert not list(golden.compare(values, copy.deepcopy(values)))


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        ("/purchases/0/item", lambda v: v["purchases"][0].update(item="i2")),
        ("/purchases/length", lambda v: v["purchases"].append({})),
        ("/events/0/index", lambda v: v["events"][0].update(index=1)),
        ("/theta/model/theta", lambda v: v["theta"]["model/theta"].__setitem__((1, 2), 5.5)),
        ("/report/audit/accuracy", lambda v: v["report"]["audit"].update(accuracy=0.7500001)),
        ("/report/audit/worst", lambda v: v["report"]["audit"].update(worst=0.5)),
        ("/report/audit/labels", lambda v: v["report"]["audit"].update(labels=0)),
        ("/report/audit/labels", lambda v: v["report"]["audit"].pop("labels")),
    ],
)
def test_a_change_is_reported_where_it_is(
    golden: ModuleType, values: Values, where: str, changed: Any
) -> None:
    other = copy.deepcopy(values)
    changed(other)
    assert [place for place, _ in golden.compare(values, other)] == [where]


def test_a_tolerance_is_relative(golden: ModuleType) -> None:
    a, b = {"x": 100.0, "y": np.array([1e-3])}, {"x": 100.5, "y": np.array([2e-3])}
    assert [place for place, _ in golden.compare(a, b, 0.01)] == ["/y"]


def test_only_an_equal_array_counts_as_renamed(golden: ModuleType) -> None:
    a, same, other = np.arange(3.0), np.arange(3.0), np.ones(3)
    assert not list(golden.compare({"old": a}, {"new": same}))
    assert len(list(golden.compare({"old": a}, {"new": other}))) == 2


def test_what_is_expected_is_shown_and_not_counted(
    golden: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [("/report/title", "'a' -> 'b'"), ("/theta/x", "1.0 -> 2.0")]
    fields = ["report", "theta", "head"]
    assert golden.judge("pool", found, [], fields) == 2
    assert golden.judge("pool", found, ["pool:report"], fields) == 1
    assert golden.judge("pool", found, ["other:*", "*:report/title", "*:theta"], fields) == 0
    assert "equal head" in capsys.readouterr().out


@pytest.mark.slow
def test_a_tree_equals_itself_and_no_field_is_left_out(
    golden: ModuleType, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played in a process of its own, as `make golden` does, and in this one."""
    player = importlib.import_module("golden_player")
    other = golden.start(root / "src", "python", tmp_path / "other")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    played = player.Play()
    player.python(played)
    first, second = player.read(played), golden.values(other)
    assert not list(golden.compare(first, second))
    for field in ("purchases", "events", "decisions", "predictions", "report", "theta", "head"):
        spoilt = {**second, field: spoil(second[field])}
        assert {place.split("/")[1] for place, _ in golden.compare(first, spoilt)} == {field}


def spoil(value: Any) -> Any:
    """A copy whose last number is another one."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        for key in reversed(keys):
            changed = spoil(value[key])
            if changed is not value[key]:
                other = copy.copy(value)
                other[key] = changed
                return other
        return value
    number = isinstance(value, np.ndarray | float | int) and not isinstance(value, bool)
    return value + 1 if number else value
