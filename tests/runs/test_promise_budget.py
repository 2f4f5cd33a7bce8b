"""What a promise takes, as it is said before a run, on its way, and where it ends without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stacksl.api import prepare, run
from stacksl.labelers.protocol import Request
from stacksl.models.promise import RANGE, expected_look, first_look
from stacksl.runs.finish.promise_sentences import expected_promise

from ..ledgers import bought
from .people_cases import (
    answer_all,
    answer_until,
    begin,
    erring,
    play,
    write_classes,
    write_pool,
)
from .promise_cases import ANSWERS, ITEMS, PLAN, THREE, looks


def test_a_budget_before_a_first_look_is_told(tmp_path: Path) -> None:
    first = first_look(0.85, 400, several=True)
    assert first is not None
    given = {**THREE, "price": "2", "labeler": "file", "classes": str(write_classes(tmp_path))}
    del given["count"]
    pool = write_pool(tmp_path, 400)
    plan = prepare(pool, settings={**given, "budget": "$100"})
    high = min(800, round(RANGE[1] * first))
    cost = f"takes {first} to {high} labels, for ${2 * first:,}.00 to ${2 * high:,}.00"
    lower = "With this budget no share of 50% or more is likely to be promised"
    assert plan.warnings[-1].endswith(f": right=85% probably {cost}. {lower}")
    assert f"{cost}, depending on" in expected_promise(plan.spec)
    rich = prepare(pool, settings={**given, "budget": first})
    assert not any("before a look" in warning for warning in rich.warnings)
    less = prepare(pool, settings={**given, "budget": first - 1})
    [told] = (said for said in less.warnings if "before a look" in said)
    named = re.search(r"\. With this budget right=(\d+)% is likelier, if you ask for it now", told)
    assert named
    assert int(named[1]) < 85
    easier = prepare(pool, settings={**given, "budget": first, "stop_when": f"right={named[1]}%"})
    assert not any("before a look" in warning for warning in easier.warnings)
    given |= {"budget": "all", "stop_when": "right=97%"}
    hard = prepare(write_pool(tmp_path, 40, seed=1), settings=given)
    assert any("takes more labels than a budget may" in warning for warning in hard.warnings)


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
