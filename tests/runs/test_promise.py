"""The stop rule `right=R`: looks at the table that is delivered, and what is promised of it."""

from __future__ import annotations

import math
import random
import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stacksl.api import Run, prepare, run
from stacksl.api.labeling import TO_PERSON, export_rows, label_file, label_own
from stacksl.cli.app import app
from stacksl.cli.verbs.run import notices
from stacksl.errors import RunError, SettingsError
from stacksl.labelers.protocol import Request
from stacksl.models.promise import LOOKS, MODEL, allowed_wrong, left_wrong
from stacksl.runs.finish import forecasting
from stacksl.runs.finish.promise_sentences import _shown_by
from stacksl.runs.session import session
from stacksl.runs.settings.budget import right_share

from ..ledgers import bought, rows_of
from .conftest import CLASSES, class_items
from .people_cases import answer_all, begin, copy_of, expect_sound, facts_of, play, read_rows, truth
from .promise_cases import ANSWERS, ITEMS, PEOPLE, PLAN, THREE, looks


def wrong_rows(made: Run, path: Path) -> tuple[int, int]:
    """The wrong rows of the delivered table, and all of them."""
    export_rows(made, path, lambda: label_own(made))
    rows, gold = read_rows(path), {item.prompt: CLASSES[ANSWERS[item.id]] for item in ITEMS}
    return sum(row["label"] != gold[row["prompt"]] for row in rows), len(rows)


@pytest.fixture(scope="module")
def promised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the file's answers that ended by its promise; a test that changes it copies it."""
    return run(ITEMS, ANSWERS, out=tmp_path_factory.mktemp("promised") / "run", **PLAN)


def test_a_table_is_delivered_as_it_is_promised(tmp_path: Path, promised: Run) -> None:
    made = promised
    last = looks(made)[-1]
    assert last["reached"]
    status, (bad, rows) = made.status(), wrong_rows(made, tmp_path / "table.csv")
    assert (status["state"], rows) == ("finished", len(ITEMS))
    assert bad <= last["left"] <= allowed_wrong(0.9, rows)
    assert status["left"] > 0
    facts = facts_of(made)
    assert status["stopped"] == f"{facts.stopped} {facts.details}"
    assert facts.promised == 0.9
    assert status["stopped"].startswith("At least 90.0% of the 300 rows are right")
    assert "if whoever answered would say the same" in status["stopped"]
    assert len(bought(made, purpose="audit")) == last["audit"] + sum(
        look["audit"] for look in looks(made)[:-1]
    )
    expect_sound(made)


def test_the_page_begins_with_the_promise_and_says_of_which_rows_the_audit_is(
    tmp_path: Path, promised: Run
) -> None:
    page = unescape(copy_of(promised, tmp_path).report().read_text(encoding="utf-8"))
    assert re.search(r'class="lead">At least 90\.0% of the 300 rows are right', page)
    assert "drawn from the rows that the model labels, when people had labeled" in page
    assert "The interval is about new items" not in page
    assert not re.search("Buy \\d+ more|Train on the audit", page)


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
    made.change(budget=260, stop_when="right=85%")
    assert looks(made)[-1]["reached"]
    bad, rows = wrong_rows(made, tmp_path / "table.csv")
    assert bad <= allowed_wrong(0.85, rows)
    expect_sound(made)


def test_another_share_is_judged_by_what_was_shown(tmp_path: Path, promised: Run) -> None:
    """A higher one buys on; a lower one is promised at once, and a larger budget buys nothing."""
    made = copy_of(promised, tmp_path)
    spent = made.status()["spent"]
    made.change(budget=280)
    assert made.status()["spent"] == spent
    assert made.status()["stopped"].startswith("At least 90.0%")
    made.change(stop_when="right=70%")
    assert made.status()["spent"] == spent
    assert made.status()["stopped"].startswith("At least 70.0%")
    made.change(stop_when="right=99.5%")
    said, last = made.status()["stopped"], looks(made)[-1]
    if last["left"] > allowed_wrong(0.995, 300):
        assert said.startswith("That 99.5% of the 300 rows are right cannot be promised")
    assert made.status()["spent"] > spent


def test_rows_that_are_added_after_a_look_count_as_wrong(tmp_path: Path, promised: Run) -> None:
    """Nobody drew any of them, so the look shows nothing of them, and the table needs another."""
    made, rows = copy_of(promised, tmp_path), looks(promised)[-1]["rows"]
    added = [f"strange{n} words{n},{CLASSES[n % len(CLASSES)]}" for n in range(100)]
    more = tmp_path / "more.csv"
    more.write_text("\n".join(["text,label", *added]), encoding="utf-8")
    made.change(items=more, budget=made.status()["spent"])
    again, said = looks(made)[-1], made.status()["stopped"]
    assert (again["after"], again["rows"], again["of"]) == (100, rows, 400)
    assert said.startswith("That 90.0% of the 400 rows are right cannot be promised")
    shown = f"Now this look shows at least {_shown_by(again)[6:]} of the 400 rows"
    assert f"may be left. {shown}, with 100 rows counted as wrong, since rows or classes" in said
    shown = made.status()["audit"]["sentence"]
    assert shown.endswith(" 100 of 400 rows added after it was drawn."), "no audit is offered"
    made.change(budget=300)
    assert made.status()["stopped"].startswith("At least 90.0% of the 400 rows are right")
    assert [look["after"] for look in looks(made)[-2:]] == [100, 0]
    expect_sound(made)


def test_a_class_that_is_added_after_a_look_needs_another(tmp_path: Path, promised: Run) -> None:
    """Nobody could say that a row is of it, so each row that the model labels may be."""
    made = copy_of(promised, tmp_path)
    told = str(made.change(classes=["strange"], dry_run=True).measures)
    assert re.search(r"Adding a class ends what the last look showed \(right=9[0-9.]+%\): ", told)
    assert "Adding a class" not in str(made.change(budget="+9", dry_run=True).measures)
    made.change(classes=["strange"], budget=made.status()["spent"])
    again, said = looks(made)[-1], made.status()["stopped"]
    assert again["after"] == again["of"] - 300 + looks(promised)[-1]["rows"] - again["audit"]
    assert said.startswith("That 90.0% of the 300 rows are right cannot be promised")
    assert f"Look 1 of 3 showed that at least {_shown_by(looks(promised)[-1])[6:]} of the" in said
    assert "--stop-when" not in said, "people's own rows alone are no share to ask for"
    made.change(budget=300)
    assert made.status()["stopped"].startswith("At least 90.0% of the 300 rows are right")


def test_the_offer_of_a_class_says_that_it_ends_what_a_look_showed(
    tmp_path: Path, promised: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, group = copy_of(promised, tmp_path), {"rows": 20, "name": "star, owl"}
    assert not made.status()["lost_by_class"], "no class is offered"
    monkeypatch.setattr(session, "proposed", lambda *given: [group])
    made.change(stop_when="right=70%")
    (_, offer), (subject, told) = notices(made.status())
    assert "--add-class" in offer
    assert re.match(r"Adding a class ends what the last look showed \(right=", f"{subject} {told}")


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
    made.change(owned=str(owned), stop_when="gain=0.01/100", later=True)
    with pytest.raises(SettingsError, match="which nobody checks"):
        made.change(stop_when="right=70%", later=True)


def test_rows_called_ambiguous_or_dropped_count_as_wrong(tmp_path: Path) -> None:
    made = begin(tmp_path, **{**PEOPLE, "annotators": "anna", "stop_when": "right=70%"})
    answer_all(made)
    made.people(free="anna", drop=True)
    play(made, lambda row: "ambiguous" if random.Random(row["key"]).random() < 0.1 else truth(row))
    dropped = len(bought(made, state="released", purpose="train"))
    ambiguous = len({row["item"] for row in bought(made, kind="ambiguous")})
    assert min(dropped, ambiguous) > 5
    last = looks(made)[-1]
    of_the_model = left_wrong(last["wrong"], last["audit"], last["rows"], MODEL)
    assert last["left"] == of_the_model + dropped + ambiguous
    assert last["of"] == 240
    table = export_rows(made, tmp_path / "t.csv", lambda: label_own(made))
    assert (len(table.rows), table.blank) == (240, {"human: ambiguous": ambiguous})
    shown = CliRunner().invoke(app, ["export", str(made.path), "--table", str(tmp_path / "t.csv")])
    told = f"240 rows, {ambiguous} of them without a label: {ambiguous} human: ambiguous"
    assert told in shown.stdout
    expect_sound(made)


def test_items_are_asked_about_again_after_a_promise_within_what_is_left(tmp_path: Path) -> None:
    def says(row: dict[str, str]) -> str:
        if int(row["prompt"].split()[-1]) % 12:
            return truth(row)
        return "other" if "other" in row["options"] else "none"

    made = begin(tmp_path, **{**THREE, "budget": 230, "stop_when": "right=70%"})
    play(made, says)
    assert looks(made)[-1]["reached"]
    asked = made.change(classes="other", dry_run=True).again
    missed = {row["item"] for row in bought(made, purpose="audit", kind="none")}
    assert missed, "some are in the look's audit"
    assert not missed & set(asked), "which stands as it was judged"
    short = len(asked) - 1
    assert short > 1
    made.change(classes="other", budget=made.status()["spent"] + short, later=True)
    assert made.status()["left"] == short
    with pytest.raises(SettingsError, match=f"the budget has {short} labels left to train on: "):
        made.change(reopen=True)
    again = made.change(budget=380, reopen=True).again
    assert made.status()["out"] > len(again), "other items are bought as well"
    play(made, says)
    assert set(again) <= {row["item"] for row in bought(made, kind="label")}
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

    made = run(ITEMS, labeler=says, out=tmp_path / "run", **{**PLAN, "budget": 290})
    said, last, spent = made.status()["stopped"], looks(made)[-1], made.status()["spent"]
    assert last["drawn"] == len(looks(made)) == LOOKS
    assert made.status()["left"] > 0
    assert not any(look["reached"] for look in looks(made))
    assert said.startswith("That 90.0% of the 300 rows are right cannot be")
    least = 1 - last["left"] / last["of"]
    assert (
        f"Look {LOOKS} of {LOOKS} showed that at least {math.floor(1000 * least) / 10:g}%" in said
    )
    assert f"{last['wrong']} of {last['audit']} rows of the model turned out wrong" in said
    assert f"Run.open({str(made.path)!r})" in said
    page = unescape((made.path / "report.html").read_text(encoding="utf-8"))
    assert '<p class="lead">That 90.0% of the 300 rows are right cannot be promised.' in page
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


def test_new_rows_are_labeled_where_the_audit_shows_it(tmp_path: Path, promised: Run) -> None:
    items, answers = class_items(500)
    known = {item.id: answers[item.id] for item in items[:400]}
    made = run(items[:400], known, out=tmp_path / "run", budget=250, audit=120, mode="pool", seed=1)
    own = facts_of(made).own
    least = next(each.threshold for each in own.shares if each.wanted == 0.9)
    path = tmp_path / "new.csv"
    path.write_text("".join(["prompt\n", *(f"{item.prompt}\n" for item in items[400:])]))
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
        RunError, match="right in 99% of rows: on .* no such share passed .* give 9.% with"
    ):
        made.predict(str(path), right=0.98)
    with pytest.raises(RunError, match="which are not like new ones"):
        promised.predict(str(path), right=0.9)
    people = [people for _, people in own.choices]
    assert people == sorted(people)
    assert people[-1] <= own.rest
    made.refit_with_audit()
    with pytest.raises(RunError, match="was trained on the audit as well"):
        made.predict(str(path), right=0.9)
