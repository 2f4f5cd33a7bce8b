"""The stop rule `right=R`: looks at the table that is delivered, and what is promised of it."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom
from typer.testing import CliRunner

from stacksl.api import Run, prepare, run
from stacksl.api.labeling import TO_PERSON, label_file, write_own
from stacksl.cli.app import app
from stacksl.cli.verbs.dry_run import print_plan
from stacksl.cli.verbs.run import shown_run
from stacksl.core.blocks import SharedBlock
from stacksl.errors import RunError, SettingsError
from stacksl.labelers.protocol import Request
from stacksl.models.promise import (
    LOOKS,
    MODEL,
    RANGE,
    Doubled,
    Stage,
    allowed_wrong,
    at_most,
    audit_size,
    calibrated_wrong,
    expected_look,
    first_look,
    left_wrong,
    look_now,
    most_wrong,
    planned,
    step_of,
)
from stacksl.runs.finish import forecasting
from stacksl.runs.finish.promising import expected_promise
from stacksl.runs.loop.progress import Progress
from stacksl.runs.settings.budget import parse_budget, right_share, stop_rule
from stacksl.runs.storage import status

from ..benchmarks import ROOT, benchmark, record
from ..ledgers import bought, handed_rows, rows_of
from .conftest import CLASSES, class_items, pair_items
from .people_cases import (
    answer_all,
    begin,
    cuts,
    ending_of,
    erring,
    expect_sound,
    facts_of,
    fill,
    just_before,
    play,
    played_in_pieces,
    read_rows,
    sheets,
    texts_of,
    truth,
    write_classes,
    write_pool,
    write_rows,
)

ITEMS, ANSWERS = class_items(500)
PLAN: dict[str, Any] = {"budget": 400, "mode": "pool", "stop_when": "right=90%"}
PEOPLE: dict[str, Any] = {
    "count": 400,
    "budget": 380,
    "open_questions": 40,
    "class_names": True,
    "stop_when": "right=85%",
}
THREE = {**PEOPLE, "annotators": "anna,ben,carl"}


def looks(made: Run) -> list[dict[str, Any]]:
    """What each look found."""
    return [dict(row.payload) for row in rows_of(made, "looked")]


def wrong_rows(made: Run, path: Path) -> tuple[int, int]:
    """The wrong rows of the delivered table, and all of them."""
    write_own(made, path)
    rows, gold = read_rows(path), {item.prompt: CLASSES[ANSWERS[item.id]] for item in ITEMS}
    return sum(row["label"] != gold[row["prompt"]] for row in rows), len(rows)


# The bound ------------------------------------------------------------------------------------


@given(rows=st.integers(40, 120), share=st.floats(0.0, 0.4), n=st.integers(10, 40))
def test_an_audit_shows_too_few_wrong_rows_as_rarely_as_the_level(
    rows: int, share: float, n: int
) -> None:
    """Over all draws of n rows: how often fewer are said to be left than there are."""
    bad = round(share * rows)
    broken = sum(
        hypergeom.pmf(found, rows, bad, n)
        for found in range(min(n, bad) + 1)
        if bad - found > left_wrong(found, n, rows, MODEL)
    )
    assert broken <= MODEL / LOOKS + 1e-9


@given(st.data())
def test_the_chance_of_few_wrong_rows_is_hypergeometric(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 1_000_000))
    bad, n = data.draw(st.integers(0, rows)), data.draw(st.integers(0, min(rows, 1_000)))
    wrong = data.draw(st.integers(0, min(n, 30)))
    expected = pytest.approx(hypergeom.cdf(wrong, rows, bad, n), rel=1e-6, abs=1e-12)
    assert at_most(wrong, rows, bad, n) == expected


def test_the_bound_is_the_last_number_that_explains_the_audit() -> None:
    for bad, n, rows in ((0, 142, 100_000), (2, 300, 5_000), (11, 700, 20_000), (3, 20, 20)):
        most = most_wrong(bad, n, rows, MODEL / LOOKS)
        assert hypergeom.cdf(bad, rows, most, n) > MODEL / LOOKS
        assert most == rows - n + bad or hypergeom.cdf(bad, rows, most + 1, n) <= MODEL / LOOKS
    assert most_wrong(0, 142, 10**6, MODEL / LOOKS) < 0.03 * 10**6
    assert most_wrong(0, 141, 10**6, MODEL / LOOKS) > 0.03 * 10**6


def test_an_audit_of_the_size_is_good_enough_in_four_of_five_draws() -> None:
    rng = np.random.default_rng(0)
    for bad, rows, allowed in ((20, 2_000, 60), (60, 3_000, 150), (0, 500, 15)):
        n = audit_size(bad, rows, allowed)
        for size, good in ((n, True), (n // 2, False)):
            drawn, counts = np.unique(
                rng.hypergeometric(bad, rows - bad, size, 4_000), return_counts=True
            )
            shown = [left_wrong(int(each), size, rows, MODEL) <= allowed for each in drawn]
            assert (counts @ shown / 4_000 >= 0.78) == good
    assert audit_size(100, 1_000, 110) is None
    assert audit_size(4, 300, 400) == audit_size(4, 300, 300) == 30, "all rows may be wrong"


def test_people_who_err_too_often_leave_nothing_to_promise() -> None:
    assert planned(5, 1_000, 1_000, 60, 0.005) is not None
    assert planned(5, 3_000, 1_000, 120, 0.08) is None


def test_a_look_is_in_reach_where_it_can_be_paid_now_or_after_more_labels() -> None:
    """People err in 2.8% of rows; a look at 97% of 2,480 rows takes more than 960 answers."""
    stages = [Stage(500, 55.0), Stage(600, 50.0), Stage(700, 45.0), Stage(800, 40.1)]
    rows = (stages, 989, 1_491, 74)
    assert look_now(*rows, 960, errors=0.028) is None
    assert look_now(*rows, 960, errors=0.028, reach=True) is None
    assert look_now(*rows, 5_000, errors=0.028, reach=True) is not None
    wrong = (stages, 989, 1_491, 60, 1_400, 1.3)  # too many are expected now, and fewer later
    assert planned(40.1 * 1.3, 989, 1_491, 60, None) is None
    assert look_now(*wrong) is None
    assert look_now(*wrong, reach=True) is not None


def test_held_out_labels_say_how_many_rows_are_wrong() -> None:
    """Answers that are surer than they are right."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.5, 1.0, 6_000)
    said = truth**0.5  # too sure
    right = (rng.random(6_000) < truth).astype(float)
    found = calibrated_wrong(said[:3_000], right[:3_000], np.ones(3_000), said[3_000:])
    assert found == pytest.approx((1 - right[3_000:]).sum(), rel=0.1)
    assert (1 - said[3_000:]).sum() < 0.6 * found


def test_errors_of_a_model_that_is_unsure_are_not_taken_for_wrong_labels() -> None:
    """The least sure rows are bought, and as many are wrong as it says; few of the rest are."""
    rng = np.random.default_rng(2)
    bought, rest = rng.uniform(0.3, 0.8, 700), rng.uniform(0.8, 0.998, 2_500)
    right = (rng.random(700) < bought).astype(float)
    found = calibrated_wrong(bought, right, np.ones(700), rest)
    assert found == pytest.approx((1 - rest).sum(), rel=0.3)


@pytest.mark.parametrize("errors", [0.05, 0.1])
def test_peoples_errors_are_not_the_models(errors: float) -> None:
    """A model that learned wrong labels is never surer than 1 − ε; its held-out rows err."""
    rng = np.random.default_rng(1)
    truth = 1 - rng.exponential(0.05, 2_000).clip(0, 0.5)
    right = (rng.random(2_000) < truth).astype(float)
    labels = np.where(rng.random(2_000) < errors, 1 - right, right)
    given = ((1 - errors) * truth[:500], labels[:500], np.ones(500), (1 - errors) * truth[500:])
    wrong = (1 - right[500:]).sum()
    blind = calibrated_wrong(*given)
    guessed = calibrated_wrong(*given, Doubled().rate)
    found = calibrated_wrong(*given, Doubled(400 * errors, 400).rate)
    assert blind > 1.5 * wrong
    assert abs(found - wrong) < abs(guessed - wrong) < abs(blind - wrong)
    assert found == pytest.approx(wrong, rel=0.35)


def test_a_look_is_taken_while_it_can_be_paid() -> None:
    """A cheaper one is expected later, but if the forecast is too good none can be paid then."""
    falling = [Stage(200, 400.0), Stage(300, 200.0), Stage(400, 100.0), Stage(500, 50.0)]
    rows = (falling, 500, 2_500, 90)
    assert look_now(*rows, 2_000) is None
    now = planned(50, 500, 2_500, 90, None)
    assert now is not None
    assert look_now(*rows, now.answers + 2 * step_of(3_000)) is None
    assert look_now(*rows, now.answers + 2 * step_of(3_000) - 1) == now
    later = look_now(*rows, 2_000, reach=True, looked=True, batch=200)
    assert later == now._replace(before=200), "paid for even if the model stays as it is"
    assert later.labels == now.answers + 200
    assert now._replace(sample=10).labels * 9 // 10 >= 2 * now.audit + 10
    assert look_now(*rows, 100, reach=True, looked=True) is None


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
    assert any(cost in warning for warning in plan.warnings)
    assert cost in expected_promise(plan.spec)
    assert plan.warnings[-1].endswith("no share of 50% or more is likely to be promised")
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
    named = re.search(r"\. With this budget right=(\d+)% is likelier$", told)
    assert named
    assert int(named[1]) < 85
    lower = prepare(pool, settings={**given, "budget": first[1], "stop_when": f"right={named[1]}%"})
    assert not any("before a look" in warning for warning in lower.warnings)
    given |= {"budget": "all", "stop_when": "right=97%"}
    hard = prepare(write_pool(tmp_path, 40, seed=1), settings=given)
    assert any("takes more labels than a budget may" in warning for warning in hard.warnings)


def test_what_a_run_spent_to_measure_comes_on_top_of_a_first_look(tmp_path: Path) -> None:
    given = {**THREE, "stop_when": None, "budget": 60, "audit": 30}
    made = play(begin(tmp_path, **given), truth)
    first, accounts = first_look(0.85, 400, several=True), made.status()
    assert first is not None
    measured = accounts["spent"] - accounts["asked"]
    assert measured == 30
    told = made.change(stop_when="right=85%", dry_run=True).measures
    assert f"takes {measured + first} to {min(800, measured + 3 * first)} labels, d" in str(told)


def test_a_first_look_and_a_promise_take_what_is_named_in_most_benchmarks() -> None:
    rows = [row for row in record("promises")["rows"] if row["arm"] == "product"]
    rows += record("promised_columns")["rows"]
    shares = []
    for row in rows:
        first = first_look(row["right"], row["rows"], several=row["errors"] > 0)
        assert first is not None
        shares.append(row["labels"] / first)
    enough = [sum(share <= end for share in shares) for end in RANGE]
    assert enough == [20, 75], "fewer than half, and more than nine of ten"
    assert len(shares) == 78
    assert max(shares) < 3.35


def test_the_warning_goes_when_the_budget_is_raised(tmp_path: Path) -> None:
    made = begin(tmp_path, **{**THREE, "budget": 80})
    (told,) = made.status()["warnings"]
    assert told.startswith("a budget of 80 labels may end before a look")
    made.change(budget=100, later=True)
    assert [said[:23] for said in made.status()["warnings"]] == ["a budget of 100 labels "]
    assert made.status()["rest"].startswith("60 of 100 labels are left, probably too few: the prom")
    made.change(budget=400)
    answer_all(made)
    assert made.status()["warnings"] == []
    rest, least = made.status()["rest"], first_look(0.85, 400, several=True)
    assert rest == (
        "320 of 400 labels are left, perhaps too few: the promise probably takes"
        f" {least} to 800 in all, so {least - 80} to 720 more"
    )
    assert f"Rest        {rest}\n" in CliRunner().invoke(app, ["status", str(made.path)]).stdout
    made.change(budget=800)
    assert made.status()["rest"].startswith("720 of 800 labels are left, probably enough: ")
    assert f"Rest        {made.status()['rest']}\n" in shown_run(made)
    late = {"left": 50, "spent": 500, "budget": 550, "money": {"price": 0.5}}
    assert str(status._rest(late, 300, 800)).endswith("so up to 300 more for up to $150.00")
    play(made)
    assert made.status()["rest"] is None


def test_a_look_waits_while_labels_remove_more_errors_than_they_cost() -> None:
    falling = [Stage(100, 400.0), Stage(200, 200.0), Stage(300, 100.0)]
    flat = [Stage(900, 31.0), Stage(1_000, 30.0), Stage(1_100, 29.0)]
    assert look_now(falling, 300, 2_700, 90, 2_000) is None
    found = look_now(flat, 1_100, 1_900, 90, 2_000)
    assert found.sample == 0
    assert look_now(flat, 1_100, 1_900, 90, 50) is None, "not to be paid"
    assert look_now(flat[:2], 1_000, 2_000, 90, 2_000) is None
    of_people = look_now(flat, 1_100, 1_900, 90, 2_000, errors=0.01)
    assert of_people.sample > 0


def test_the_rule_is_read_in_percent_and_as_a_share() -> None:
    assert stop_rule("right=97%") == stop_rule("right=0.97") == ("right", 0.97, 0)
    for text in ("right=97", "right=0%", "right=100%", "right=%"):
        with pytest.raises(SettingsError, match="right=R such as right=97%"):
            stop_rule(text)
    assert allowed_wrong(0.97, 999) == 29


def test_a_budget_may_have_commas_between_thousands() -> None:
    assert parse_budget("$1,338.00", 5_000, "1.50") == parse_budget("$1338", 5_000, "1.50")
    assert parse_budget("1,200", 5_000, None).labels == 1_200
    for text in ("$1,5", "1,20", "1,2000"):
        with pytest.raises(SettingsError, match="the budget"):
            parse_budget(text, 5_000, "1.50")


def test_a_dry_run_names_the_audit_and_its_price() -> None:
    said = expected_look(0.97, 5_000, 1_500, 2_500_000)
    assert "(4,700 here) are right: that alone takes 139 rows for $347.50 if none of" in said
    twice = expected_look(0.97, 5_000, 1_500, 2_500_000, 2)
    assert "139 rows for $695.00 if none of them is wrong" in twice
    assert "each audited row takes two answers" in twice
    poor = expected_look(0.97, 5_000, 200)
    assert poor.endswith("half of this budget could show 95.8% at most")
    n = audit_size(35, 4_700, 141)
    assert f"{n:,} if 35 of them are wrong" in expected_look(0.97, 5_000, 1_500)
    assert ", 30 if 1 of them is wrong" in expected_look(0.9, 60, 50)


# Answers of the file --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def promised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the file's answers that ended by its promise; a test that changes it copies it."""
    return run(ITEMS, ANSWERS, out=tmp_path_factory.mktemp("promised") / "run", **PLAN)


def copy_of(made: Run, folder: Path) -> Run:
    return Run(shutil.copytree(made.path, folder / "run"))


def test_a_table_is_delivered_as_it_is_promised(tmp_path: Path, promised: Run) -> None:
    made = promised
    last = looks(made)[-1]
    assert last["reached"]
    status, (bad, rows) = made.status(), wrong_rows(made, tmp_path / "table.csv")
    assert (status["state"], rows) == ("finished", len(ITEMS))
    assert bad <= last["left"] <= allowed_wrong(0.9, rows)
    assert status["left"] > 0
    assert status["stopped"] == facts_of(made).stopped
    assert status["stopped"].startswith("At least 90.0% of the 500 rows are right")
    assert "as the one who answered would say" in status["stopped"]
    assert len(bought(made, purpose="audit")) == last["audit"] + sum(
        look["audit"] for look in looks(made)[:-1]
    )
    expect_sound(made)


def test_the_model_is_made_before_the_rows_are_drawn(promised: Run) -> None:
    """It does not change by the draw: audited rows stay in the graph, and nothing learns them."""
    made = promised
    events = [row.event for row in rows_of(made, "refit", "learned", "looked")]
    assert events[-2:] == ["refit", "looked"]
    audited = {str(row["item"]) for row in bought(made, purpose="audit")}
    texts = [item.prompt for item in ITEMS if item.id in audited]
    gold = [ANSWERS[item.id] for item in ITEMS if item.id in audited]
    said = [row["index"] for row in made.predict(texts)]
    assert sum(a != b for a, b in zip(said, gold, strict=True)) == looks(made)[-1]["wrong"]


def test_a_finished_run_goes_on_to_a_promise(tmp_path: Path) -> None:
    made = run(ITEMS, ANSWERS, out=tmp_path / "run", budget=100, mode="pool")
    made.change(budget=420, stop_when="right=85%")
    assert looks(made)[-1]["reached"]
    bad, rows = wrong_rows(made, tmp_path / "table.csv")
    assert bad <= allowed_wrong(0.85, rows)
    expect_sound(made)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one person that ended by its promise; a test that changes it copies it."""
    folder = tmp_path_factory.mktemp("alone")
    return play(begin(folder, **{**PEOPLE, "annotators": "anna"}))


def test_a_correction_is_judged_by_the_same_audit_and_buys_nothing(tmp_path, alone: Run) -> None:
    made = copy_of(alone, tmp_path)
    before, first = made.status(), looks(made)
    key = read_rows(min((made.path / "ask").glob("0*.csv")))[0]["key"]
    correction = write_rows(tmp_path / "c.csv", [{"key": key, "answer": "broken"}])
    made.answer(correction, correct=made.corrections(correction))
    after, found = made.status(), looks(made)
    assert after["spent"] == before["spent"]
    numbers = [each["drawn"] for each in first]
    assert [each["drawn"] for each in found] == [*numbers, numbers[-1]]
    assert after["state"] == "finished"
    assert after["stopped"].startswith("At least 85.0%")
    expect_sound(made)


def test_another_share_is_judged_by_what_was_shown(tmp_path: Path, promised: Run) -> None:
    """A higher one buys on; a lower one is promised at once, and a larger budget buys nothing."""
    made = copy_of(promised, tmp_path)
    spent = made.status()["spent"]
    made.change(budget=450)
    assert made.status()["spent"] == spent
    assert made.status()["stopped"].startswith("At least 90.0%")
    made.change(stop_when="right=70%")
    assert made.status()["spent"] == spent
    assert made.status()["stopped"].startswith("At least 70.0%")
    made.change(stop_when="right=99.5%")
    said, last = made.status()["stopped"], looks(made)[-1]
    if last["left"] > allowed_wrong(0.995, 500):
        assert said.startswith("That 99.5% of the 500 rows are right cannot be promised")
    assert made.status()["spent"] > spent
    expect_sound(made)


def test_a_run_that_goes_on_says_so_and_gives_the_table_of_its_last_end(
    tmp_path: Path, three: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once the rows of the next look are drawn, some of which people have answered before."""
    monkeypatch.setattr(forecasting, "unpayable", lambda spec, game: False)
    (never, ended), made = three, copy_of(three[1], tmp_path)
    with pytest.raises(RunError, match="is waiting: its table can be written once it has ended"):
        write_own(never, tmp_path / "never.csv")
    write_own(made, tmp_path / "before.csv")
    assert never.status()["last_report"] is made.status()["last_report"] is None
    spent = made.status()["spent"]
    made.change(budget=790, stop_when="right=93%")
    while made.status()["spent"] < 2 * spent and made.status()["state"] == "waiting":
        told = made.status()["last_report"]
        assert f"with {spent} labels: accuracy, model and table are of then; the run goes" in told
        answer_all(made, erring(0.03))
        export = ["export", str(made.path), "--table", str(tmp_path / "now.csv")]
        for words in (["status", str(made.path)], export):
            assert f" {told}\n" in CliRunner().invoke(app, words).stdout
        assert (tmp_path / "now.csv").read_bytes() == (tmp_path / "before.csv").read_bytes()
    drawn = [row.payload["look"] for row in rows_of(made, "settings") if "look" in row.payload]
    assert len(drawn) > len(looks(ended))


def test_what_would_change_the_model_is_refused(tmp_path: Path, promised: Run) -> None:
    made = copy_of(promised, tmp_path)
    with pytest.raises(RunError, match="another model would need a look of its own"):
        made.refit_with_audit()
    owned = tmp_path / "owned.csv"
    owned.write_text(f"prompt,label\n{ITEMS[0].prompt},{CLASSES[0]}\n")
    with pytest.raises(SettingsError, match="labels that you have"):
        made.change(owned=str(owned))
    with pytest.raises(SettingsError, match="which nobody checks"):
        prepare(ITEMS, ANSWERS, settings={**PLAN, "budget": "200", "owned": str(owned)})


def test_rows_called_ambiguous_or_dropped_count_as_wrong(tmp_path: Path) -> None:
    made = begin(tmp_path, **{**PEOPLE, "annotators": "anna", "stop_when": "right=70%"})
    answer_all(made)
    made.people(free="anna", drop=True)
    play(made, lambda row: "ambiguous" if random.Random(row["key"]).random() < 0.1 else truth(row))
    dropped = len(bought(made, state="released", purpose="train"))
    ambiguous = len({row["item"] for row in bought(made, said="ambiguous")})
    assert min(dropped, ambiguous) > 5
    last = looks(made)[-1]
    of_the_model = left_wrong(last["wrong"], last["audit"], last["rows"], MODEL)
    assert last["left"] == of_the_model + dropped + ambiguous
    assert last["of"] == 400
    assert write_own(made, tmp_path / "t.csv") == (400, {"human: ambiguous": ambiguous})
    shown = CliRunner().invoke(app, ["export", str(made.path), "--table", str(tmp_path / "t.csv")])
    told = f"400 rows, {ambiguous} of them without a label: {ambiguous} human: ambiguous"
    assert told in shown.stdout
    expect_sound(made)


def test_items_are_asked_about_again_after_a_promise_within_what_is_left(tmp_path: Path) -> None:
    def says(row: dict[str, str]) -> str:
        if int(row["prompt"].split()[-1]) % 12:
            return truth(row)
        return "other" if "other" in row["options"] else "none"

    made = begin(tmp_path, **{**THREE, "stop_when": "right=70%"})
    play(made, says)
    assert looks(made)[-1]["reached"]
    short = len(made.change(classes="other", dry_run=True).again) - 1
    assert short > 1
    made.change(classes="other", budget=made.status()["spent"] + short, later=True)
    assert made.status()["left"] == short
    with pytest.raises(SettingsError, match=f"the budget has {short} labels left to train on: "):
        made.change(reopen=True)
    again = made.change(budget=380, reopen=True).again
    assert made.status()["out"] > len(again), "other items are bought as well"
    play(made, says)
    assert set(again) <= {row["item"] for row in bought(made, said="label")}
    assert made.model.classes == (*CLASSES, "other")
    expect_sound(made)


def command_of(sentence: str) -> dict[str, str]:
    """The budget and the rule of the call of `Run.change` that a sentence names."""
    assert sentence.count("labeler=...)`") == 1
    return dict(re.findall(r"(budget|stop_when)='?([^',]+)", sentence))


def test_a_run_stops_once_no_look_is_left_and_names_the_command_that_promises_what_was_shown(
    tmp_path: Path,
) -> None:
    """People say otherwise than the model on audited rows alone.

    No label was bought since the last look, so the model is still the one that was looked at.
    """

    def says(request: Request) -> int:
        return (ANSWERS[request.item] + (request.purpose == "audit")) % 3

    made = run(ITEMS, labeler=says, out=tmp_path / "run", **{**PLAN, "budget": 490})
    said, last, spent = made.status()["stopped"], looks(made)[-1], made.status()["spent"]
    assert last["drawn"] == len(looks(made)) == LOOKS
    assert made.status()["left"] > 0
    assert not any(look["reached"] for look in looks(made))
    assert said.startswith("That 90.0% of the 500 rows are right cannot be")
    least = 1 - last["left"] / last["of"]
    assert (
        f"Look {LOOKS} of {LOOKS} showed that at least {math.floor(1000 * least) / 10:g}%" in said
    )
    assert f"{last['wrong']} of {last['audit']} rows of the model were wrong" in said
    assert f"Run.open({str(made.path)!r})" in said
    assert "Run.open('run')" in (made.path / "report.html").read_text().replace("&#39;", "'")
    made.change(**command_of(said), labeler=says)
    assert made.status()["spent"] == spent
    assert made.status()["stopped"].startswith("At least")
    expect_sound(made)


def test_a_look_does_not_judge_a_later_model_and_the_named_budget_pays_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = 0.4

    def says(request: Request) -> int:
        errs = request.purpose == "audit" and random.Random(request.item).random() < share
        return (ANSWERS[request.item] + errs) % 3

    made = run(ITEMS, labeler=says, out=tmp_path / "run", **{**PLAN, "budget": 200})
    last, share = looks(made)[-1], 0.0
    assert made.status()["left"] > 0, "no look can be paid, so nothing is bought"
    assert "With this budget no look can be paid, so " in made.status()["stopped"]
    with monkeypatch.context() as until:
        until.setattr(forecasting, "unpayable", lambda spec, game: False)
        made.change(stop_when="right=91%", labeler=says)
    assert last["drawn"] < LOOKS
    assert 1 - last["left"] / last["of"] > 0.4
    assert len(bought(made, purpose="train")) > last["asked"]
    for rule in ("right=90%", "right=40%"):  # the latter is less than the look showed
        made.change(stop_when=rule, labeler=says)
        said = made.status()["stopped"]
        assert f"Look {last['drawn']} of {LOOKS} showed" in said
        assert "It does not judge the present model, which has " in said
        assert "can be promised:" not in said
    made.change(**command_of(said), labeler=says)
    assert looks(made)[-1]["drawn"] == last["drawn"] + 1
    assert made.status()["stopped"].startswith("At least 40.0%")
    expect_sound(made)


@pytest.mark.parametrize(
    ("budget", "share", "rate", "means"),
    [
        (60, 85, 0.1, "The promise probably takes a budget of 294 to 800: `"),
        (200, 85, 0.1, "For 85.0% a look can be paid with `"),
        (160, 95, 0.0, "For 95.0% "),
        (390, 97, 0.0, "With this budget no look can be paid, so "),
    ],
)
def test_a_run_that_ends_without_a_look_names_the_budget_that_pays_one(
    budget: int, share: int, rate: float, means: str, tmp_path: Path
) -> None:
    """A named budget is one that the run takes, and it brings a look."""
    given = {**THREE, "budget": budget, "stop_when": f"right={share}%"}
    made = play(begin(tmp_path, **given), erring(rate))
    said = made.status()["stopped"]
    assert not looks(made)
    assert means in said
    command = re.search(r"--budget (\d+)(?: --stop-when (right=\d+%))?`", said)
    assert bool(command) == ("--budget" in said)
    if len(bought(made)) == 60:
        assert "may end before a look" in str(made.change(budget=80, dry_run=True))
        assert made.change(budget="all", dry_run=True).labels == 400, "one for each row, as is said"
    none = "With this budget no lower share can be promised either."
    if lower := re.search(r"A look at \d+% takes about (\d+) of these", said):
        assert int(lower[1]) <= made.status()["left"]
    assert (none in said) == (lower is None)
    if added := re.search(r"which adds (\d+) labels(?: to the (\d+) that are left)?\.", said):
        assert command is not None
        assert int(added[2] or 0) == made.status()["left"]
        assert int(added[1]) == made.change(budget=int(command[1]), dry_run=True).more
        assert said.endswith("Such a look shows its share in about 4 of 5 cases.")
    if command is not None:
        assert made.status()["spent"] < int(command[1]) <= 800
        made.change(budget=int(command[1]), stop_when=command[2])
        play(made, erring(rate))
        assert looks(made)
    expect_sound(made)


def test_a_run_that_learned_under_another_rule_is_told_of_more_than_it_has(tmp_path: Path) -> None:
    """Its errors are not estimated yet: a first look comes on top of what it spent."""
    given = {**THREE, "stop_when": None, "budget": 120, "audit": 0}
    made = play(begin(tmp_path, **given), truth)
    made.change(stop_when="right=85%")
    command = re.search(r"--budget (\d+)`", made.status()["stopped"])
    assert command
    assert 240 < int(command[1]) <= 800
    made.change(budget=int(command[1]))
    play(made, truth)
    assert looks(made)
    expect_sound(made)


def test_new_rows_are_labeled_where_the_audit_shows_it(tmp_path: Path, promised: Run) -> None:
    known = {item.id: ANSWERS[item.id] for item in ITEMS[:400]}
    made = run(ITEMS[:400], known, out=tmp_path / "run", budget=250, audit=120, mode="pool", seed=1)
    own = facts_of(made).own
    least = next(each.threshold for each in own.shares if each.wanted == 0.9)
    path = tmp_path / "new.csv"
    path.write_text("".join(["prompt\n", *(f"{item.prompt}\n" for item in ITEMS[400:])]))
    rows = list(made.predict(str(path), right=0.87))
    by_model = [row["probability"] >= least for row in rows]
    assert sum(by_model) > 0
    assert [row["source"] == "model" for row in rows] == by_model
    assert [row["choice"] is not None for row in rows] == by_model
    table = label_file(made.model, path, made.read(str(path)), None, least).rows
    assert [row["source"] for row in table] == [row["source"] for row in rows]
    assert all((row["label"] is None) == (row["source"] == TO_PERSON) for row in table)
    assert all((row["label"] is None) == (row["confidence"] is None) for row in table)
    with pytest.raises(SettingsError, match="at most 99%.* got '99.5%'"):
        right_share("99.5%")
    with pytest.raises(
        RunError, match="labels 98% of rows .* no such share passed .* give 9.% with"
    ):
        made.predict(str(path), right=0.98)
    with pytest.raises(RunError, match="which are not like new ones"):
        promised.predict(str(path), right=0.9)
    assert [right for right, _ in own.choices] == [0.9, 0.93, 0.95, 0.97, 0.99]
    people = [people for _, people in own.choices]
    assert people == sorted(people)
    assert people[-1] <= own.rest
    page = (made.path / "report.html").read_text(encoding="utf-8")
    assert f"people answer {people[-1]} more rows, the model labels {own.rest - people[-1]}" in page
    made.refit_with_audit()
    with pytest.raises(RunError, match="was trained on the audit as well"):
        made.predict(str(path), right=0.9)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a stream": ({"mode": "stream"}, "does not go with mode=stream"),
    "no refit": ({"refit": False}, "does not go with refit=false"),
    "no names": ({"class_names": False}, "class_names=false"),
    "an audit": ({"audit": 50}, "draws audits of its own, got an audit of 50"),
    "two people": (
        {"labeler": "file", "annotators": "anna,ben"},
        "expected one annotator, or three or more, and got two",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_keep_the_rule_is_refused(name: str) -> None:
    settings, sentence = REFUSED[name]
    with pytest.raises(SettingsError, match=sentence):
        prepare(ITEMS, ANSWERS, settings={**PLAN, "budget": "200", **settings})


def test_options_of_their_own_are_refused() -> None:
    items, answers = pair_items(100)
    with pytest.raises(SettingsError, match="share their classes"):
        prepare(items, answers, settings={**PLAN, "budget": "50"})


# People ---------------------------------------------------------------------------------------


def wrong_of(made: Run, path: Path, pool: Path) -> tuple[int, int]:
    write_own(made, path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = texts_of(pool)
    return sum(row["label"] != truth({"prompt": texts[row["id"]]}) for row in rows), len(rows)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run of people whose next answers bring a look, and its end."""
    folder = tmp_path_factory.mktemp("three")
    made = begin(folder, **THREE)
    before = just_before(made, erring(0.03), lambda: bought(made, purpose="audit"))
    return before, play(made, erring(0.03))


def test_peoples_errors_are_part_of_the_promise(tmp_path: Path, three: tuple[Run, Run]) -> None:
    made = three[1]
    last = looks(made)[-1]
    assert last["sample"] >= 30
    assert last["reached"]
    bad, rows = wrong_of(made, tmp_path / "table.csv", made.path.parent / "pool-0-0.csv")
    assert bad <= last["left"] <= allowed_wrong(0.85, rows)
    table = Counter(row["label"] for row in read_rows(tmp_path / "table.csv"))
    totals = {row.name: row.human + row.predicted for row in facts_of(made).own.totals}
    assert totals == {name: table[name] for name in totals}, "the report counts the table's labels"
    pairs = Counter((row.item, row.annotator) for row in handed_rows(made))
    assert max(pairs.values()) == 1, "nobody is asked a row twice"
    assert "as the one who answered would say" not in made.status()["stopped"]
    assert made.status()["spent"] <= 380
    learned = len({row["item"] for row in bought(made, purpose="train")})
    assert made.status()["measuring"] == made.status()["spent"] - learned > 2 * last["audit"]
    expect_sound(made)


def test_a_look_that_shows_too_little_is_told_on_the_way(tmp_path: Path, three) -> None:
    """With what was wrong of the model's rows and of people's, and which limits the share."""
    people = {"annotators": "anna,ben,carl", "price": "1"}  # who answer 40 rows at a time
    made = begin(tmp_path, **{**PEOPLE, "count": 600, "budget": 580, **people})
    while not bought(made, purpose="audit"):
        assert not made.status()["stopped"]
        answer_all(made, erring(0.03))
    drawn = Counter(row["purpose"] for row in bought(made, state="open"))
    begun = f"Look 1 of 3 has begun: {drawn['audit']} rows of the model and {drawn['train']} of"
    spent, asked = made.status()["money"]["spent"], f": {drawn.total()} answers were asked for, of"
    assert made.status()["stopped"].startswith(f"{begun} people were drawn at random. Each row")

    audited = {row["item"] for row in bought(made, state="open", purpose="audit")}
    unclear = next(row.key for row in handed_rows(made) if row.item in audited)

    def says(row: dict[str, str]) -> str:
        return "ambiguous" if row["key"] == unclear else erring(0.2)(row)

    more = f"and at least {drawn['audit']} more for ${drawn['audit']}.00 will be asked for."
    assert f"{asked} which 0 came in, {more}" in made.status()["stopped"]
    ends = [end - made.status()["spent"] for end in (first_look(0.85, 600, several=True), 984)]
    assert made.status()["rest"].endswith(
        f"so {ends[0]} to {ends[1]} more for ${ends[0]}.00 to ${ends[1]}.00"
    )
    answer_all(made, says)
    less = drawn["audit"] - 1  # nobody else is asked about what one calls ambiguous
    more = more.replace(str(drawn["audit"]), str(less))
    assert f"{asked} which 40 came in, {more}" in made.status()["stopped"]
    answer_all(made, says)
    asked = drawn.total() + len(bought(made, state="open"))
    asked = f"{asked} answers were asked for, of which {drawn.total()} came in."
    assert asked in made.status()["stopped"], "all of them are part of the cost now"
    assert made.status()["money"]["spent"] >= spent + drawn["audit"]
    steps: list[Progress] = []
    while not looks(made):
        assert made.status()["stopped"].startswith(begun)
        filled = [fill(path, erring(0.2)) for path in sheets(made)]
        received = made.answer(*filled, progress=steps.append)
    last, said = looks(made)[-1], received.status["stopped"]
    assert not last["reached"]
    assert made.status()["state"] == "waiting"
    assert said == made.status()["stopped"]
    assert said.startswith("Look 1 of 3 showed that at least ")
    assert f"{last['wrong']} of {last['audit']} rows of the model and {last['differ']} of" in said
    model = left_wrong(last["wrong"], last["audit"], last["rows"], MODEL)
    people = last["left"] - model
    assert f"at most {model} errors of the model and {people} of people (or unclear" in said
    assert "What limits the share most: the size of the look. Without it the share" in said
    assert said in shown_run(made)
    [*_, step] = (step for step in steps if step.phase == "labels")
    assert (step.done, step.total) == (made.status()["spent"], 580), "looks included"


@pytest.mark.parametrize(
    "meanwhile", [{"budget": 380}, {"budget": 400}, {"away": "ben"}, {"free": True, "drop": True}]
)
def test_a_change_during_a_look_leaves_it_whole(meanwhile: dict[str, Any], tmp_path: Path) -> None:
    """Nobody errs, so every row of the look is right once two people have answered it."""
    made = begin(tmp_path, **{**PEOPLE, "annotators": "anna,ben,carl,dora"})
    while not bought(made, purpose="audit"):
        answer_all(made, truth)
    if "budget" in meanwhile:
        made.change(**meanwhile)
    else:
        while not any(row.slot == 1 for row in handed_rows(made)):
            answer_all(made, truth)  # until second answers are out
        made.people(**meanwhile)
    play(made, truth)
    last = looks(made)[0]
    if "drop" not in meanwhile:  # else audited rows have no second answer
        assert last["wrong"] == 0
    assert last["differ"] == 0
    expect_sound(made)


def test_what_people_err_too_often_for_is_said_and_not_bought(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(forecasting, "unpayable", lambda spec, game: False)  # may come before
    given = {**THREE, "stop_when": "right=97%", "price": "2"}
    given |= {"sheets.overlap": 60}
    made = begin(tmp_path, **given)
    play(made, erring(0.3))
    said, status = made.status()["stopped"], made.status()
    assert said.startswith(
        "97.0% is probably not reachable with one answer per row: people seem to err in about "
    )
    rows = len({row["item"] for row in bought(made)})
    assert f"cost {rows} more labels for ${2 * rows:,.2f}" in said
    assert "12 of all may be wrong" in said
    assert not looks(made)
    assert not bought(made, purpose="audit")
    assert status["left"] > 0
    made.change(stop_when="right=60%")
    assert made.status()["state"] == "waiting", "a lower share may be promised"
    expect_sound(made)


def test_one_person_agrees_with_the_table(alone: Run) -> None:
    last = looks(alone)[-1]
    assert (last["sample"], last["reached"]) == (0, True)
    assert "as the one who answered would say" in alone.status()["stopped"]


CUT = cuts(
    ("take", "reserve", "hand_out", "save_arrays", "note_look", "change_settings"),
    often=[("reserve", "after")],
)


@pytest.mark.parametrize(("name", "when"), CUT)
def test_a_run_killed_around_a_look_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, three: tuple[Run, Run], name: str, when: str
) -> None:
    before, undisturbed = three
    cut = played_in_pieces(copy_of(before, tmp_path), monkeypatch, name, when, erring(0.03))
    expect_sound(cut)
    assert ending_of(cut) == ending_of(undisturbed)


def test_errors_that_no_doubt_shows_break_a_promise_on_a_column_as_rarely_as_the_level() -> None:
    """Some labels of a column are wrong by no word of the texts; the audits find out."""
    module, rng, rows, draws = benchmark("promises"), np.random.default_rng(0), 800, 200
    gold = rng.integers(0, 4, rows)
    h = (2.0 * np.eye(4)[gold] + rng.normal(size=(rows, 4))).astype(np.float32)
    column = (gold + (rng.random(rows) < 0.1) * rng.integers(1, 4, rows)) % 4
    gold = (gold + (rng.random(rows) < 0.1)) % 4
    stages = list(module.mended(SharedBlock(h, 4), np.arange(rows), column, gold, 400, 50))
    held, rest = zip(*((stage.held, stage.rest) for stage, _ in stages), strict=True)
    last = np.setdiff1d(np.arange(rows), stages[-1][1])
    models = {
        "labels": np.array([stage.labels for stage, _ in stages]),
        "predicted": np.tile(column, (len(stages), 1)),
        "held": np.concatenate(held, axis=1),
        "rest": np.concatenate(rest),
        "bought": np.array(stages[-1][1]),
        "gold": gold,
        "people": np.tile(gold, (4, 1)),
    }
    expected = module.expected_at(models, 0.0)
    hopeful = expected(len(stages) - 1, Doubled())
    assert (column != gold)[last].sum() > 2 * hopeful  # so that looks come too early
    ends = [module.delivered(models, expected, 0.0, 0.93, rng) for _ in range(draws)]
    promised = [end.broken for end in ends if end.broken is not None]
    assert draws > len(promised) > 5
    assert sum(promised) <= 0.05 * draws


def test_the_page_has_the_table_of_the_benchmark() -> None:
    module, rows = benchmark("promises"), record("promises")["rows"]
    page = (ROOT / "docs/promise.md").read_text()
    assert module.table_of(rows) in page
    broken, made = (sum(row[key] for row in rows) for key in ("broken", "draws"))
    made -= sum(row["refused"] for row in rows)
    assert f"Of {made:,} promises none was broken" in page
    assert broken == 0
    rows = record("promised_columns")["rows"]
    assert module.columns_table(rows) in page
    assert module.summary(rows).startswith("0 of 26,747 promises broken")
    assert "Of 26,747 promises none was broken" in " ".join(page.split())
