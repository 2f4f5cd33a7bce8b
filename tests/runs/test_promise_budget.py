"""What a promise takes, as it is said before a run, on its way, and where it ends without one."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from typer import Abort

from stacksl.api import prepare, run
from stacksl.cli.verbs import run as verb
from stacksl.cli.verbs.dry_run import print_plan
from stacksl.labelers.protocol import Request
from stacksl.models.promise import RANGE, Look, audit_size, expected_look, first_look
from stacksl.runs.finish import promise_sentences
from stacksl.runs.finish.promise_sentences import expected_promise

from ..ledgers import bought
from .people_cases import (
    answer_all,
    answer_until,
    begin,
    erring,
    expect_sound,
    play,
    truth,
    write_classes,
    write_pool,
)
from .promise_cases import ANSWERS, ITEMS, PLAN, THREE, looks


def test_a_budget_before_a_first_look_is_told(tmp_path: Path, capsys) -> None:
    first = [first_look(0.85, 400, several=several) for several in (False, True)]
    assert first[0] is not None
    assert first[1] is not None
    assert 75 < first[0] < first[1] < 400
    given = {**THREE, "price": "2", "labeler": "file"}
    given |= {"classes": str(write_classes(tmp_path))}
    del given["count"]
    pool = write_pool(tmp_path, 400)
    plan = prepare(pool, settings={**given, "budget": "$100"})
    low, high = first[1], min(800, round(RANGE[1] * first[1]))
    cost = f"takes {low} to {high} labels, for ${2 * low:,}.00 to ${2 * high:,}.00, depending on"
    short = f"takes {low} to {high} labels, for ${2 * low:,}.00 to ${2 * high:,}.00. With this"
    lower = "budget no share of 50% or more is likely to be promised"
    assert plan.warnings[-1].endswith(f": right=85% probably {short} {lower}")
    assert cost in expected_promise(plan.spec)
    half = "fewer than half of the runs took no more than"
    assert f"{half} {low}, and a budget may have at most 800;" in expected_promise(plan.spec)
    low = first_look(0.7, 400, several=True)
    assert low is not None
    easier = prepare(pool, settings={**given, "stop_when": "right=70%"})
    sure = expected_promise(easier.spec)
    assert f"{half} {low} and nine of ten no more than {round(RANGE[1] * low)};" in sure
    print_plan(easier, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert f"Promise   {sure}" in lines
    print_plan(easier, json=True)
    assert json.loads(capsys.readouterr().out)["promise"] == sure
    assert any(line.startswith("Audit     each look has an audit") for line in lines)
    rich = prepare(pool, settings={**given, "budget": first[1]})
    assert not any("before a look" in warning for warning in rich.warnings)
    less = prepare(pool, settings={**given, "budget": first[1] - 1})
    [told] = (said for said in less.warnings if "before a look" in said)
    named = re.search(r"\. With this budget right=(\d+)% is likelier, if you ask for it now", told)
    assert named
    assert int(named[1]) < 85
    lower = prepare(pool, settings={**given, "budget": first[1], "stop_when": f"right={named[1]}%"})
    assert not any("before a look" in warning for warning in lower.warnings)
    given |= {"budget": "all", "stop_when": "right=97%"}
    hard = prepare(write_pool(tmp_path, 40, seed=1), settings=given)
    assert any("takes more labels than a budget may" in warning for warning in hard.warnings)


def test_the_range_of_labels_is_said_once(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning of a small budget leaves it to the line on what a promise takes."""
    given = {**THREE, "price": "2", "labeler": "file", "classes": str(write_classes(tmp_path))}
    given |= {"stop_when": "right=70%", "budget": "$100"}
    del given["count"]
    plan = prepare(write_pool(tmp_path, 400), settings=given)
    monkeypatch.setattr(verb, "agree", Mock(side_effect=Abort))
    for words in ({"dry_run": True}, {"dry_run": False}):
        with suppress(Abort):
            verb.begin(plan, **words, yes=False, quiet=False, json=False)
        out, err = capsys.readouterr()
        assert "look at the table, and nothing is promised then. With this budget no share" in err
        assert (out + err).count("probably takes") == 1
    with suppress(Abort):
        verb.begin(plan, dry_run=False, yes=False, quiet=True, json=False)
    assert capsys.readouterr().err.count("probably takes") == 1, "only the warning is printed"


def test_what_a_run_spent_to_measure_comes_on_top_of_a_first_look(tmp_path: Path) -> None:
    given = {**THREE, "stop_when": None, "budget": 60, "audit": 30}
    made = play(begin(tmp_path, **given), truth)
    first, accounts = first_look(0.85, 240, several=True), made.status()
    assert first is not None
    measured = accounts["spent"] - accounts["asked"]
    assert measured == 30
    told = made.change(stop_when="right=85%", dry_run=True).measures
    assert f"takes {measured + first} to {min(480, measured + 3 * first)} labels. W" in str(told)


def test_the_warning_goes_when_the_budget_is_raised(tmp_path: Path) -> None:
    made = begin(tmp_path, **{**THREE, "count": 200, "budget": 80})
    (told,) = made.status()["warnings"]
    assert told.startswith("a budget of 80 labels may end before a look")
    made.change(budget=100, later=True)
    assert [said[:23] for said in made.status()["warnings"]] == ["a budget of 100 labels "]
    made.change(budget=300)
    answer_all(made)
    assert made.status()["warnings"] == []


def test_a_dry_run_names_the_audit_and_its_price() -> None:
    said = expected_look(0.97, 5_000, 1_500, 2_500_000)
    assert "(4,700 here) are right: that alone takes 139 rows for $347.50 if none of" in said
    twice = expected_look(0.97, 5_000, 1_500, 2_500_000, 2)
    assert "139 rows for $695.00 if none of the 4,700 is wrong" in twice
    assert "each audited row takes two answers" in twice
    poor = expected_look(0.97, 5_000, 200)
    assert poor.endswith("half of this budget can show 95.8% at most, even if it finds no error")
    n = audit_size(35, 4_700, 141)
    assert f"{n:,} if 35 of the 4,700 are wrong" in expected_look(0.97, 5_000, 1_500)
    assert ", 30 if 1 of the 35 is wrong" in expected_look(0.9, 60, 50)


@pytest.mark.parametrize(
    ("budget", "share", "rate", "means"),
    [
        (60, 85, 0.1, "The promise probably takes a budget of 238 to 480: `"),
        (140, 85, 0.1, "For 85.0% a look can be paid with `"),
        (230, 90, 0.0, "With this budget no look can be paid, so 110 labels were left. A look at "),
    ],
)
def test_a_run_that_ends_without_a_look_names_the_budget_that_pays_one(
    budget: int, share: int, rate: float, means: str, tmp_path: Path
) -> None:
    """A named budget is one that the run takes, and it brings a look."""
    given = {**THREE, "count": 240, "budget": budget, "stop_when": f"right={share}%"}
    made = play(begin(tmp_path, **given), erring(rate))
    said = made.status()["stopped"]
    assert not looks(made)
    assert means in said
    command = re.search(r"--budget (\d+)(?: --stop-when (right=\d+%))?`", said)
    assert bool(command) == ("--budget" in said)
    if len(bought(made)) == 60:
        assert "may end before a look" in str(made.change(budget=80, dry_run=True))
        assert made.change(budget="all", dry_run=True).labels == 240, "one for each row, as is said"
    none = "With this budget no lower share is likely to be promised."
    if lower := re.search(r"A look at \d+% takes about (\d+) of these", said):
        assert int(lower[1]) <= made.status()["left"]
    assert (none in said) == (lower is None)
    if added := re.search(r"which adds (\d+) labels(?: to the \d+ that are left)?\.", said):
        assert command is not None
        left = re.findall(r"to the (\d+) that are left|so (\d+) labels were left", said)
        (told,) = left or [("0", "")]
        assert int("".join(told)) == made.status()["left"], "which is said once"
        assert int(added[1]) == made.change(budget=int(command[1]), dry_run=True).more
        assert said.endswith("Such a look shows its share in about 2 of 3 cases.")
    if command is not None:
        assert made.status()["spent"] < int(command[1]) <= 480
        made.change(budget=int(command[1]), stop_when=command[2])
        answer_until(lambda: looks(made), made, erring(rate))


@pytest.mark.parametrize(("before", "named"), [(0, 88), (20, 87)])
def test_a_look_after_further_labels_is_named_with_room_for_another_model(
    before: int, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that takes all labels that are left may not be payable after those before it."""

    def look_at(spec: Any, game: Any, more: int, *, reach: bool, share: float) -> Look | None:
        look = Look(40 + round(2_000 * max(0.0, share - 0.8)) - before, 0, before)  # 200 at 88%
        return look if look.labels <= 200 + more else None

    learned = SimpleNamespace(stages=[None] * 3)
    stubs = {"looks": [], "linear_trainer": learned, "unpayable": True, "labels_per_item": 2}
    for name, value in stubs.items():
        monkeypatch.setattr(promise_sentences, name, lambda *_, value=value: value)
    monkeypatch.setattr(promise_sentences, "next_look", look_at)
    accounts = SimpleNamespace(spent=300, left=200)
    budget = SimpleNamespace(cost_of=lambda labels: "", money=None, price=0)
    spec, game = (
        SimpleNamespace(settings=None, budget=budget),
        SimpleNamespace(ledger=SimpleNamespace(accounts=accounts)),
    )
    table: Any = SimpleNamespace(rows=1_000)
    arguments: tuple[Any, ...] = (spec, game, 0.93, table, {"python": False})
    assert f"A look at {named}%" in promise_sentences._next_budget(*arguments)


def test_a_run_that_learned_under_another_rule_is_told_of_more_than_it_has(tmp_path: Path) -> None:
    """Its errors are not estimated yet: a first look comes on top of what it spent."""
    given = {**THREE, "count": 200, "stop_when": None, "budget": 60, "audit": 0}
    made = play(begin(tmp_path, **given), truth)
    made.change(stop_when="right=85%")
    command = re.search(r"--budget (\d+)`", made.status()["stopped"])
    assert command
    assert 220 < int(command[1]) <= 400
    made.change(budget=int(command[1]))
    expect_sound(answer_until(lambda: looks(made), made))


def test_a_named_budget_counts_what_answers_cost(tmp_path: Path) -> None:
    """They cost less than their price here: the budget has the labels that it is said to have."""

    def says(request: Request) -> tuple[int, float]:
        return ANSWERS[request.item], 0.4

    given = {**PLAN, "budget": "$150", "price": "1", "stop_when": "right=97%"}
    made = run(ITEMS, labeler=says, out=tmp_path / "run", **given)
    said, status = made.status()["stopped"], made.status()
    assert status["money"]["spent"] == pytest.approx(0.4 * status["spent"])
    named = re.search(r"budget='(\$[\d.]+)'.*, which adds (\d+) labels for", said)
    assert named
    assert made.change(budget=named[1], labeler=says, dry_run=True).more == int(named[2])
