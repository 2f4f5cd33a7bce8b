"""What the owner reads of a finished run: why each row was asked, and who said what."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import RunError, SettingsError
from stacksl.label.pages import page_of
from stacksl.label.site import OWNER
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.changes.people import own_label
from stacksl.runs.items.stored import never_asked
from stacksl.runs.spec import RunSpec
from stacksl.types import Item

from ..ledgers import handed_rows, items_bought, verify
from ..runs.conftest import CLASSES, class_items, pair_items
from ..runs.people_cases import expect_sound, facts_of, gold
from ..runs.people_cases import play as answer_sheets
from .conftest import CLASSES_SHOWN, Browser, Opened, Page, play, wait_for

EVIL = "<script>alert(1)</script>\u202e"


def cells(text: str) -> list[list[str]]:
    """The cells of each row of the table, as text."""
    rows = re.findall("<tr.*?>(.*?)</tr>", text.partition("<tbody")[2], re.S)
    kinds = [re.findall("<t[hd].*?>(.*?)</t[hd]>", row, re.S) for row in rows]
    return [[" ".join(unescape(re.sub("<.*?>", " ", c)).split()) for c in row] for row in kinds]


def table_of(owner: Browser, pages: int) -> tuple[list[str], list[list[str]]]:
    """The texts of all pages of the table, and its rows."""
    found = [owner.http.get(f"/asked?page={number}") for number in range(1, pages + 1)]
    assert {each.status_code for each in found} == {200}
    return [each.text for each in found], [row for each in found for row in cells(each.text)]


def played_page(opened: Opened, **settings: Any) -> Page:
    page = opened(budget=12, open_questions=6, audit=4, **{"sheets.overlap": 2}, **settings)
    anna, ben = page.browser("anna"), page.browser("ben")
    for browser in (anna, ben):
        key, prompt = next(iter(browser.rows().items()))
        assert browser.answer(key, prompt, note=EVIL + browser.name) == "taken"
    assert ben.skip(next(iter(ben.rows())), note=f"{EVIL} beyond me").json()["state"] == "skipped"
    play([anna, ben], page)
    return page


def test_the_owner_reads_why_each_row_was_asked_and_the_answers(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacksl.label.pages.PAGE", 5)
    page = played_page(opened)
    owner = page.browser(OWNER)
    assert 'href="/asked"' in owner.http.get("/rows").text
    pages, rows = table_of(owner, 12)
    text, rows = "".join(pages), [row for row in rows if row[2] != "nobody was asked"]
    with page.run.ledger as ledger:
        bought = ledger.bought()
        audit = set(ledger.bought("audit"))
        certificates = {r.item: r.decision() for r in ledger.rows() if r.event == "round"}
        said = {(r["item"], r["labeler"], r["answer"]) for r in ledger.export()}
    assert sorted(row[0].split()[-1] for row in rows) == sorted(bought)
    assert len(said) == 12
    for shown, prompt, why, before, answers, now in rows:
        assert re.match(rf"({'|'.join(CLASSES_SHOWN)}) \d+%", now)
        item = shown.split()[-1]
        assert ("audit" in why) == (item in audit)
        assert gold(prompt) in answers
        assert bool(before) == (item not in audit)
        if before:
            assert f"{100 * certificates[item].probability:.0f}%" in before
        for name in {who for i, who, _ in said if i == item}:
            assert str(name) in answers
    assert sum("anna" in row[4] and "ben" in row[4] for row in rows) >= 1, "two answered it"
    assert re.search("covers uncertain items|uncertain", text)
    assert "<script>alert" not in text
    assert [row for row in rows if "skipped: unsure" in row[4] and "beyond me" in row[4]]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\u202e" not in text
    assert "page 12 of 12" in owner.http.get("/asked?page=99").text.replace("\n", " ")
    assert owner.http.get("/asked?page=0").status_code == 422


def test_rows_that_nobody_was_asked_about_follow_with_the_models_label(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacksl.label.pages.PAGE", 7)
    page = played_page(opened)
    owner = page.browser(OWNER)
    bought = items_bought(page.run)
    items = RunSpec.open(page.run.folder).sources.usable
    left = [id for id in items if id not in bought]
    first = owner.http.get("/asked").text
    assert f"then {len(left)} that nobody was asked about" in first
    _, rows = table_of(owner, -(-len(items) // 7))
    assert len(rows) == len(items)
    assert {row[0].split()[-1] for row in rows[: len(bought)]} == bought
    others = rows[len(bought) :]
    assert [row[0] for row in others] == left, "in their order, each once"
    said = {row["id"]: row for row in page.run.predict([items[id] for id in left])}
    for id, prompt, why, before, answers, now in others:
        assert prompt == items[id].prompt
        assert (why, before, answers) == ("nobody was asked", "", "Label it")
        assert now == f"{said[id]['choice']} {100 * said[id]['probability']:.0f}%"
    one = owner.http.get("/asked", params={"find": items[left[-1]].prompt.upper()}).text
    assert [row[0] for row in cells(one)] == [left[-1]]
    forget(page.run.path, left[-1])
    assert never_asked(page.run.folder, items[left[-1]].prompt, 0, 9) == (0, [])
    assert never_asked(page.run.folder, "", 0, 0)[0] == len(left) - 1


def test_the_owner_labels_a_row_that_nobody_was_asked_about(opened: Opened) -> None:
    page = played_page(opened, price="2")
    owner = page.browser(OWNER)
    bought = items_bought(page.run)
    id, item = next(
        (k, v) for k, v in RunSpec.open(page.run.folder).sources.usable.items() if k not in bought
    )
    before = facts_of(page.run)
    for refused in (
        {"name": id, "value": "rome"},
        {"name": min(bought), "value": gold(item.prompt)},
    ):
        assert owner.act(act="own", **refused, agreed=True).status_code == 422
    wrong = CLASSES_SHOWN[(CLASSES_SHOWN.index(gold(item.prompt)) + 1) % 3]
    for label in (wrong, gold(item.prompt)):
        assert owner.act(act="own", name=id, value=label, agreed=True).json()["state"] == "done"
        (shown,) = cells(owner.http.get("/asked", params={"find": item.prompt}).text)
        assert shown[2] == "nobody was asked; the label is yours"
        assert label in shown[4]
    assert owner.act(act="again").json()["state"] == "done"
    wait_for(lambda: page.run.status()["state"] == "finished" and page.player.over.is_set())
    after = facts_of(page.run)
    assert after.budget == before.budget, "it is free"
    assert page.player.view.answered == page.run.status()["spent"], "and nobody's answer"
    assert [row.kind for row in after.asking.changes][-2:] == ["labeled", "corrected"]
    rows = {row["id"]: row for row in page.run.table().rows}
    assert (rows[id]["label"], rows[id]["source"]) == (gold(item.prompt), "human")
    assert after.audit.correct == before.audit.correct
    report = (page.run.path / "report.html").read_text()
    assert "1 label given to rows that nobody was asked about" in report
    expect_sound(page.run)
    page.player.stop()
    page.run.change(budget=57, later=True)
    answer_sheets(page.run.resume())
    asked = [row["item"] for row in page.run.ledger.export() if row["purpose"] != "owned"]
    assert len(asked) == 57
    assert id not in asked, "its label is there"
    forget(page.run.path, id)
    assert item.prompt not in (page.run.path / "run.db").read_bytes().decode("latin-1")


def with_twins(folder: Path) -> tuple[Run, Item, Item, dict[str, int]]:
    """A finished run whose texts stand in two rows each, two such rows not asked, the answers."""
    items, answers = class_items(80)
    items = [replace(item, prompt=items[n // 2].prompt) for n, item in enumerate(items)]
    made = run(items, answers, budget=8, audit=0, mode="pool", out=folder / "r")
    asked = {item.prompt for item in items if item.id in items_bought(made)}
    first, second = [item for item in items if item.prompt not in asked][:2]
    return made, first, second, answers


@pytest.mark.parametrize("place", ["file", "click"])
def test_a_label_that_you_own_is_that_of_all_rows_with_its_text(place: str, tmp_path: Path) -> None:
    """In the list of the page as in the exported table."""
    made, first, second, _ = with_twins(tmp_path)
    label = next(name for name in CLASSES if name != made.table().rows[0]["label"])
    if place == "file":
        (tmp_path / "owned.csv").write_text(f"prompt,label\n{first.prompt},{label}\n")
        made.change(owned=tmp_path / "owned.csv")
    else:
        own_label(made.folder, first.id, label)
        made.resume()
    rows = {row["id"]: (row["label"], row["source"]) for row in made.table().rows}
    assert rows[first.id] == rows[second.id] == (label, "human")
    shown = {row["item"]: row for row in page_of(made.folder, 1, first.prompt)["rows"]}
    for row in (shown[first.id], shown[second.id]):
        assert row["why"] == "nobody was asked; the label is yours"
        assert [word[:2] for word in row["words"]] == [("owner", label)]


@pytest.mark.parametrize("place", ["file", "click"])
def test_a_label_of_an_audited_text_is_not_learned(place: str, tmp_path: Path) -> None:
    """The model would be measured by a row whose label it was told."""
    items, answers = class_items(80)
    items = [replace(item, prompt=items[n // 2].prompt) for n, item in enumerate(items)]
    made = run(items, answers, budget=24, audit=12, mode="pool", out=tmp_path / "r")
    audited = {item.prompt for item in items if item.id in made.ledger.bought("audit")}
    asked = made.ledger.bought()
    twin = next(item for item in items if item.prompt in audited and item.id not in asked)
    if place == "file":
        (tmp_path / "owned.csv").write_text(f"prompt,label\n{twin.prompt},{CLASSES[0]}\n")
        made.change(owned=tmp_path / "owned.csv")
    else:
        with pytest.raises(RunError, match="than the audited rows, got one with the same"):
            own_label(made.folder, twin.id, CLASSES[0])
    assert not made.ledger.bought("owned")
    assert made.status()["state"] == "finished"


@pytest.mark.parametrize("place", ["file", "click"])
def test_no_label_is_bought_of_a_text_that_you_labeled(place: str, tmp_path: Path) -> None:
    made, first, second, answers = with_twins(tmp_path)
    assert first.prompt == second.prompt
    if place == "file":
        owned = tmp_path / "owned.csv"
        owned.write_text(f"prompt,label\n{first.prompt},{CLASSES[0]}\n")
        made.change(owned=owned)
    else:
        own_label(made.folder, first.id, CLASSES[0])
        made.resume()
        own_label(made.folder, first.id, CLASSES[answers[first.id]])
    made.change(budget=20)
    assert made.status()["state"] == "finished"
    bought = [row["item"] for row in made.ledger.export() if row["purpose"] != "owned"]
    assert len(bought) == 20
    assert not {first.id, second.id}.intersection(bought)
    roles = {row.name: row.value for row in facts_of(made).data.roles}
    copies = 2 if place == "file" else 1
    assert roles["with a text that has a label"] == str(copies)
    made.replay()
    if place == "click":
        forget(made.path, first.id)
        made.resume()
        assert {r["id"]: r["source"] for r in made.table().rows}[second.id] == "model"
    made.change(budget=40)
    bought = [row["item"] for row in made.ledger.export() if row["purpose"] != "owned"]
    assert len(bought) == 40
    assert not {first.id, second.id}.intersection(bought), "also after its label was erased"
    verify(made)
    made.replay()
    with pytest.raises(SettingsError, match="at most 78"):
        made.change(budget=79)


def test_items_nobody_was_asked_about_have_their_own_options(tmp_path: Path) -> None:
    items, answers = pair_items(40)
    made = run(items, answers, budget=8, audit=0, mode="pool", out=tmp_path / "r")
    bought = items_bought(made)
    left = [item for item in items if item.id not in bought]
    assert never_asked(made.folder, "", 3, 4) == (len(left), left[3:7])
    total, found = never_asked(made.folder, left[0].prompt[3:15].swapcase(), 0, len(left))
    assert total == len(found) >= 1
    assert left[0] in found


def test_a_forgotten_item_is_left_out(opened: Opened) -> None:
    page = opened(budget=8, open_questions=4, audit=0)
    people = [page.browser("anna"), page.browser("ben")]
    key, prompt = next(iter(people[0].rows().items()))
    people[0].skip(key, note="a remark of anna's")
    verify(page.run)
    item = next(row.item for row in handed_rows(page.run) if row.key == key)
    page.player.stop()
    held = [path for path in page.run.path.rglob("*") if path.is_file()]
    assert any(b"a remark of anna" in path.read_bytes() for path in held)
    forget(page.run.path, item)
    held = [path for path in page.run.path.rglob("*") if path.is_file()]
    assert not [path for path in held if b"a remark of anna" in path.read_bytes()]
    verify(page.run)
    again = opened(page.run)
    for each in people:
        each.http._transport.app = again.app
        each.enter(again.access.link(each.name))
    play(people, again)
    owner = again.browser(OWNER)
    found = owner.http.get("/asked").text
    assert prompt not in unescape(found)
    assert sum(row[2] != "nobody was asked" for row in cells(found)) == 8, (
        "another was bought in its place"
    )
    forget(page.run.path, cells(found)[0][0].split()[-1])
    assert owner.http.get("/asked").status_code == 404, "the page had read it before"


def test_a_finished_run_is_corrected_and_its_report_made_again(opened: Opened) -> None:
    page = opened(budget=12, open_questions=6, audit=4)
    anna, ben = page.browser("anna"), page.browser("ben")
    with page.run.ledger as ledger:
        audit = set(ledger.bought("audit"))
        keys = {row.key: row.item for row in ledger.private.handed()}
    key = next(key for key, item in keys.items() if item in audit)
    browser = anna if key in anna.rows() else ben
    prompt = browser.rows()[key]
    wrong = CLASSES_SHOWN[(CLASSES_SHOWN.index(gold(prompt)) + 1) % 3]
    assert browser.answer(key, prompt, position=CLASSES_SHOWN.index(wrong)) == "taken"
    play([anna, ben], page)
    before = facts_of(page.run).audit
    page.player.stop()

    again = opened(page.run)
    owner = again.browser(OWNER)
    told = owner.http.get("/rows").text
    assert "has finished" in told
    assert re.search(r"<dd>12 <small>of 12", told)
    text = owner.http.get("/asked").text
    differing = re.search(r"first the (\d+) on which people and model differ", text)
    assert differing
    rows = cells(text)
    assert all("differs" in row[-1] for row in rows[: int(differing[1])])
    assert not any("differs" in row[-1] for row in rows[int(differing[1]) :])
    found = cells(owner.http.get("/asked", params={"find": keys[key]}).text)
    assert [row[0].split()[-1] for row in found if wrong in row[4]] == [keys[key]]
    assert not cells(owner.http.get("/asked", params={"find": EVIL}).text)

    refused = owner.act(act="again")
    assert refused.status_code == 422
    assert "no answer of the finished run was corrected" in refused.json()["sentence"]
    assert owner.act(act="correct", name=key, value=gold(prompt), agreed=True).status_code == 200
    wait_for(lambda: "Make the report again" in owner.http.get("/rows").text)
    assert facts_of(page.run).audit == before
    shown = cells(owner.http.get("/asked", params={"find": keys[key]}).text)
    assert f"{gold(prompt)} correction" in shown[0][4]
    assert again.browser("anna").http.get("/asked").status_code == 403
    assert owner.act(act="again").json()["state"] == "done"
    wait_for(lambda: page.run.status()["state"] == "finished" and again.player.over.is_set())
    after = facts_of(page.run).audit
    assert (after.correct, after.accuracy, after.revised) == (before.correct, before.accuracy, 1)
    assert (
        "1 answer of the audit corrected or set aside after it was"
        in owner.http.get("/report").text
    )
    labels = {row["item"]: row["label"] for row in page.run.labels().rows}
    assert labels[keys[key]] == gold(prompt)
    assert owner.http.get("/asked").status_code == 200
    expect_sound(page.run)
