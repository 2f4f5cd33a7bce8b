"""The forecast of a run and the rule that stops it; neither reads the audit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, prepare, run
from stacksl.api.forecasting import forecast_of_data
from stacksl.errors import SettingsError
from stacksl.labelers.protocol import Request
from stacksl.runs.session import session
from stacksl.runs.settings.budget import stop_rule

from .conftest import class_items, pair_items
from .people_cases import facts_of

ITEMS, ANSWERS = class_items(300)
BUDGET, AUDIT = 120, 30
SETTINGS: dict[str, Any] = {"mode": "pool", "price": "2"}


def answering(wrong: str) -> Callable[[Request], int]:
    """The file's answers, but for the items of one purpose: the class after the right one."""
    return lambda request: (ANSWERS[request.item] + (request.purpose == wrong)) % 3


def run_until_budget(folder: Path, wrong: str = "nothing", **more: Any) -> Run:
    return run(
        budget=BUDGET, items=ITEMS, labeler=answering(wrong), out=folder, **{**SETTINGS, **more}
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_until_budget(tmp_path_factory.mktemp("progress") / "run")


def items_of(done: Run, purpose: str) -> list[str]:
    return [str(row["item"]) for row in done.ledger.export() if row["purpose"] == purpose]


def plan_noted(done: Run) -> dict[str, Any]:
    found: dict[str, Any] = done.folder.read_state()["plan"]
    return found


def test_nothing_on_the_way_depends_on_the_audits_answers(done: Run, tmp_path: Path) -> None:
    other = run_until_budget(tmp_path / "run", wrong="audit")
    assert plan_noted(other) == plan_noted(done)
    assert [row["item"] for row in other.ledger.export()] == [
        row["item"] for row in done.ledger.export()
    ]
    facts = [facts_of(each) for each in (done, other)]
    assert facts[0].audit != facts[1].audit  # the labeler did answer the audit otherwise


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_a_run_stops_by_itself_and_says_why(mode: str, tmp_path: Path) -> None:
    stopped = run_until_budget(tmp_path / "run", stop_when="gain=0.5/100", mode=mode)
    learned = stopped.status()["answered"]
    assert 20 <= learned < BUDGET - AUDIT
    assert stopped.status()["state"] == "finished"
    sentence = f"Buying stopped after {learned} training labels by stop_when gain=0.5/100"
    assert stopped.folder.read_state()["stopped"].startswith(sentence)
    for page in ("report.html", "README.md"):
        text = (stopped.path / page).read_text()
        assert sentence in text
        assert "This rests on how many of these the model had right before each was bought" in text


@pytest.mark.parametrize("mode", ["pool", pytest.param("stream", marks=pytest.mark.slow)])
def test_a_run_stops_after_a_time_and_ends_as_the_undisturbed_run(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the test's: ten seconds pass with each batch, or each item of a stream."""
    settings = {"mode": mode, "budget": 60, "checkpoint_every": 7, "open_questions": 9}
    whole = run(ITEMS, ANSWERS, out=tmp_path / "whole", **settings)
    monkeypatch.setattr(session, "monotonic", partial(next, itertools.count(0, 10)))
    cut = run(ITEMS, ANSWERS, out=tmp_path / "cut", stop_when="time=25s", **settings)
    assert cut.status()["state"] == "stopped"
    bought = cut.status()["asked"]
    assert bought < whole.status()["asked"]
    assert cut.resume().status()["state"] == "stopped", "another 25 seconds"
    assert cut.status()["rounds"] > bought
    monkeypatch.setattr(session, "monotonic", lambda: 0.0)
    assert cut.resume().status()["state"] == "finished"
    assert items_of(cut, "train") == items_of(whole, "train")
    said = [[row["index"] for row in each.predict(ITEMS[:60])] for each in (whole, cut)]
    assert said[0] == said[1]


def test_an_audit_that_leaves_few_labels_to_train_on_is_warned_of() -> None:
    people = {"budget": "120", "labeler": "file", "annotators": "anna,ben,carl", "mode": "pool"}
    for audit, further, left in ((119, 0, 1), (108, 11, 1), (90, 18, 12), (80, 18, 22)):
        plan = prepare(ITEMS, settings={**people, "second_look": True, "audit": audit})
        assert plan.spec.terms.further == further
        assert plan.spec.terms.train == left
        assert f" leaves {left} of the 120 labels to train on: give a smaller" in plan.warnings[0]
    for audit in (20, 70):
        assert not prepare(ITEMS, settings={**people, "audit": audit}).warnings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"stop_when": "time=2h", "labeler": "file"},
            "stop_when with a time is for the file's own",
        ),
        (
            {"mode": "pool", "scorer": "sgd", "update.kl_on_skips": True},
            "a pool has none: leave it out",
        ),
    ],
)
def test_settings_that_a_run_cannot_have(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        prepare(ITEMS, ANSWERS, settings={**settings, "budget": "60"})


def test_a_file_and_a_run_have_a_plan_with_its_price(done: Run, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    rows = (f"{item.prompt},{item.candidates[ANSWERS[item.id]]}" for item in ITEMS)
    file.write_text("\n".join(["text,label", *rows]))
    first = forecast_of_data(prepare(file, settings={"budget": "all", "price": "2.50"}).spec)
    assert [(row["labels"], row["cost"]) for row in first["expected"]] == [(100, 250), (200, 500)]
    assert (first["labels"], first["now"]) == (0, None)
    promised = {"budget": "all", "stop_when": "right=95%"}
    alone = "it is the accuracy of the model alone"
    assert alone in forecast_of_data(prepare(file, settings=promised).spec)["rests_on"]
    assert alone not in first["rests_on"]
    second = done.forecast()
    assert [(row["more"], row["cost"]) for row in second["expected"]] == [(10, 20), (110, 220)]
    assert "harder than the rest" in second["rests_on"]
    for row in (*first["expected"], *second["expected"], second["now"]):
        assert 0 < row["low"] < row["accuracy"] < row["high"] < 1


def test_labels_held_before_the_run_count_in_the_forecast_and_take_no_item(tmp_path: Path) -> None:
    owned = tmp_path / "owned.csv"
    rows = (f"held {n},{ITEMS[0].candidates[n % 2]}" for n in range(20))
    owned.write_text("\n".join(["text,label", *rows]))
    answers = {item.id: ANSWERS[item.id] for item in ITEMS[:110]}
    plan = prepare(ITEMS[:110], answers, settings={"budget": 50, "owned": str(owned)})
    assert plan.spec.sources.available == 110
    told = forecast_of_data(plan.spec)
    assert [(row["labels"], row["more"]) for row in told["expected"]] == [(100, 80)]
    assert (told["labels"], told["now"]) == (0, None), "none is learned yet"


@pytest.mark.parametrize(
    "text",
    [
        *("0.01/100", "gain=0.01", "gain=1/9", "gain=x/100", "gain=0.1/0"),
        *("time=", "time=2", "time=2d", "time=-1h", "time=nanh", "time=h"),
        *("accuracy", "accuracy=0", "accuracy=1", "accuracy=900", "accuracy=nan"),
        *("right=0%", "right=100%", "right=%"),
    ],
)
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="stop_when must be gain=G/N such as gain=0.01/100"):
        stop_rule(text)


@pytest.mark.parametrize("text", ["right=97", "accuracy=92.5"])
def test_a_share_without_its_sign_is_asked_for(text: str) -> None:
    with pytest.raises(SettingsError, match=rf"stop_when takes a share: say '{text}%'"):
        stop_rule(text)
    assert stop_rule("right=97%") == stop_rule("right=0.97") == ("right", 0.97, 0)


def test_options_of_their_own_have_no_forecast(tmp_path: Path) -> None:
    items, answers = pair_items(120)
    found = run(items, answers, budget=60, out=tmp_path / "run")
    told = found.forecast()
    assert (told["now"], told["expected"]) == (None, [])
    assert "there is no forecast" in told["reason"]
    with pytest.raises(SettingsError, match="stop_when needs a forecast"):
        run(items, answers, budget=60, stop_when="gain=0.1/9", out=tmp_path / "other")
