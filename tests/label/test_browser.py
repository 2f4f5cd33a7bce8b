"""The page in a real browser: a session by keyboard alone, a lost connection, two tabs, looks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run

from ..ledgers import bought, rows_of
from ..report.test_browser import WIDER_THAN_THE_PAGE
from ..runs.conftest import CLASSES
from ..runs.people_cases import begin, gold, play, wrong
from .clients import Client
from .conftest import wait_for
from .served import NAMES, Served, of_many_classes

pytestmark = pytest.mark.browser


PROMPT = "article:not([hidden]) .prompt"


def test_a_session_by_keyboard_alone(visit: Callable[..., Any], tmp_path: Path) -> None:
    served = Served(
        begin(tmp_path, annotators="anna", budget=10, open_questions=6, audit=2), linger=4.0
    )
    page = visit(served.links["anna"])
    assert "#" not in page.url
    keyboard, seen, undone = page.keyboard, 0, False
    wait_for(lambda: page.evaluate("document.activeElement.matches('.prompt')"))
    until = time.monotonic() + 240
    while not page.is_visible("#finished"):
        assert time.monotonic() < until
        if not page.is_visible(PROMPT):
            page.wait_for_timeout(50)
            continue
        prompt = page.inner_text(PROMPT)
        place = CLASSES.index(gold(prompt))
        seen += 1
        if seen == 1:  # moved to the end, and a question with a note
            keyboard.press(">")
            assert page.inner_text(PROMPT) != prompt
        elif seen == 2:
            keyboard.press("+")
            keyboard.type("sure: A, 1, 0 and ?")
            keyboard.press("Enter")
            keyboard.press(str(place + 1))
        elif seen == 3:
            for _ in range(place + 1):
                keyboard.press("ArrowDown")
            keyboard.press("Enter")
        elif seen == 4:
            keyboard.press("?")
        elif not undone:
            keyboard.press("ABC"[(place + 1) % 3])
            keyboard.press("Backspace")
            assert page.inner_text(PROMPT) == prompt
            undone = True
            keyboard.press("ABC"[place])
        else:
            keyboard.press("abc"[place])
    served.thread.join(30)
    assert not served.thread.is_alive()
    status = served.run.status()
    assert (status["state"], status["spent"]) == ("finished", 10)
    with served.run.ledger as ledger:
        notes = [answer.note for answer in ledger.texts()]
        said = ledger.counts_by_kind()
    assert notes == ["sure: A, 1, 0 and ?"]
    assert said == {"label": 9, "none": 0, "ambiguous": 1, "broken": 0}
    assert served.run.replay()["labels"] >= 7


def events_of(run: Run) -> list[str]:
    return [row.event for row in rows_of(run)]


def test_offline_a_double_click_and_a_second_tab(visit: Callable[..., Any], tmp_path: Path) -> None:
    served = Served(begin(tmp_path, annotators="anna", budget=12, open_questions=12, audit=0))
    page = visit(served.links["anna"])
    page.context.set_offline(True)
    for _ in range(4):
        page.keyboard.press("a")
    wait_for(lambda: "No connection" in page.inner_text("#said"))
    with served.run.ledger as ledger:
        assert ledger.counts_by_kind()["label"] == 0
    assert page.inner_text("#left") == "8"
    page.context.set_offline(False)
    wait_for(lambda: page.inner_text("#said") == "")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(PROMPT)
    assert other.inner_text("#left") == "8", "the answer held in one tab is not asked in another"
    before = page.inner_text(PROMPT)
    page.dblclick("article:not([hidden]) li:nth-child(2) button")
    assert page.inner_text("#left") == "7"
    wait_for(lambda: other.inner_text("#left") == "7")
    assert before not in (page.inner_text(PROMPT), other.inner_text(PROMPT))
    page.keyboard.press("b")
    wait_for(lambda: events_of(served.run).count("answered") == 5)
    assert events_of(served.run).count("late") == 0
    for key in "aaaaaa":
        page.keyboard.press(key)
    page.wait_for_selector("#finished:not([hidden])")
    served.finish()
    assert served.run.status()["spent"] == 12


def test_three_hundred_classes_and_a_hostile_prompt(visit: Callable[..., Any], tmp_path) -> None:
    hostile = "</button><script>document.title='owned'</script>"
    names = [*NAMES[:41], hostile, "a name that is long " * 9 + "!", *NAMES[43:]]
    text = "<img src=x onerror=document.title='owned'>\u202e" + "long " * 4000
    made = of_many_classes(tmp_path, names, ["short", text], budget=2, open_questions=2)
    served = Served(made)
    looks = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
    page = visit(served.links["anna"], **looks)
    assert page.title() == "Label · run"
    assert page.evaluate("document.scripts.length + document.images.length") == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(WIDER_THAN_THE_PAGE) == []
    order = page.eval_on_selector_all("#shared .text", "all => all.map(each => each.textContent)")
    assert order == names
    widths = page.eval_on_selector_all("#shared .text", "all => all.map(each => each.clientWidth)")
    assert min(widths) > 150, "a long description leaves room for the name"
    near = "document.querySelector('#filter').getBoundingClientRect().top < innerHeight"
    assert page.evaluate(near)
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    page.focus(PROMPT)
    assert (page.get_attribute(PROMPT, "tabindex"), page.evaluate(ring)) == ("-1", "none")
    page.focus("#filter")
    page.keyboard.type("CLASS 4 zé")
    assert page.locator("#shared li:visible").count() == 0
    page.keyboard.press("Escape")
    page.keyboard.type("class 4")
    assert page.inner_text("#shared .marked .text") == "class 4 eee"
    page.keyboard.press("Escape")
    page.keyboard.type("251")
    assert page.inner_text("#shared .marked .text") == "class 250 aaa"
    page.keyboard.press("Enter")
    assert page.evaluate(near), "also where the text is long"
    page.focus("#filter")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.matches('.prompt')"), "a text that scrolls"
    assert page.evaluate(ring) == "solid"
    page.keyboard.press("?")
    page.wait_for_selector("#finished:not([hidden])")
    served.finish()
    answers = [(row["kind"], row["answer"]) for row in bought(made)]
    assert sorted(answers, key=str) == [("ambiguous", None), ("label", 250)]
    assert re.search("finished", made.status()["state"])


def kept_in(page: Any) -> dict[str, Any]:
    """What the page keeps in the browser."""
    text = page.evaluate("Object.values(localStorage)[0] ?? '{}'")
    return json.loads(text)  # type: ignore[no-any-return]


def test_the_back_button_a_skip_and_a_revoked_session(visit: Callable[..., Any], tmp_path) -> None:
    served = Served(begin(tmp_path, annotators="anna,ben", budget=12, open_questions=12, audit=0))
    page = visit(served.links["anna"])
    page.keyboard.press("a")
    second = page.inner_text(PROMPT)
    page.fill("#note", "half a note")
    page.goto("about:blank")
    page.go_back()
    page.wait_for_selector(PROMPT)
    assert page.inner_text(PROMPT) == second, "it resumes where one was"
    assert page.input_value("#note") == "half a note"
    page.fill("#right", "half a class")
    page.reload()
    page.wait_for_selector(PROMPT)
    assert (page.input_value("#note"), page.input_value("#right")) == (
        "half a note",
        "half a class",
    )
    assert kept_in(page)["draft"] is None, "it is kept while the page is away alone"
    wait_for(lambda: events_of(served.run).count("answered") == 1)
    page.keyboard.press("-")
    page.wait_for_selector("#why[open]")
    page.keyboard.press("Escape")
    assert page.inner_text(PROMPT) == second
    page.keyboard.press("-")
    page.keyboard.press("2")
    assert page.inner_text(PROMPT) != second
    assert page.input_value("#note") == "", "a note is of one question"
    page.keyboard.press("Backspace")
    assert page.inner_text(PROMPT) == second, "a skip can be undone"
    assert page.input_value("#note") == "half a note", "what was typed comes back with it"
    page.keyboard.press("-")
    page.keyboard.press("2")
    page.keyboard.press("b")
    wait_for(lambda: events_of(served.run).count("released") == 1)
    ben = visit(served.links["ben"])
    wait_for(
        lambda: second in ben.eval_on_selector_all(".prompt", "all => all.map(p => p.innerText)")
    )
    owner = visit(served.links["(owner)"], ready=".numbers")
    owner.click("button[data-act=revoke][data-name=anna]")
    wait_for(lambda: "ended" in owner.inner_text("#said"))
    page.keyboard.press("a")
    page.keyboard.press("b")
    wait_for(lambda: "session has expired" in page.inner_text("#said"))
    assert len(kept_in(page)["outbox"]) >= 1
    owner.click("button[data-act=link][data-name=anna]")
    owner.wait_for_selector("#invited:not([hidden])")
    page.goto("about:blank")  # else the question that is shown would seem to be the new page's
    page.goto(owner.input_value("#link"))
    page.wait_for_selector(PROMPT)
    wait_for(lambda: kept_in(page)["outbox"] == [])
    assert events_of(served.run).count("late") == 0
    for each in (page, ben):
        while each.is_visible(PROMPT):
            each.keyboard.press("a")
    for each in (page, ben):
        each.wait_for_selector("#finished:not([hidden])")
    owner.wait_for_selector("a[href='/report']")
    assert not owner.is_visible("form")
    with owner.context.expect_page() as opened:
        owner.click("a[href='/report']")
    opened.value.wait_for_selector("h1")
    assert opened.value.evaluate("origin") == "null", "it cannot act for the owner"
    owner.context.close()
    served.finish()
    assert served.run.status()["spent"] == 12
    assert events_of(served.run).count("answered") == 12


def go_on(served: Served, page: Any, owner: Any) -> None:
    """Answer until the run has finished."""
    owner.close()
    while not page.is_visible("#finished"):
        page.keyboard.press("a")
        page.wait_for_timeout(30)
    served.finish()


def test_who_moves_the_pointer_at_an_open_page_gets_rows_again(
    visit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stacksl.label.player.TICK", 0.05)
    served = Served(begin(tmp_path, annotators="anna,ben", budget=12, audit=2), idle=4.0)
    page, ben = visit(served.links["anna"]), Client(served.links["ben"])
    until = time.monotonic() + 120
    while not page.is_visible("#idle"):  # her rows go to who is there
        ben.call("GET", "/")
        assert time.monotonic() < until
        page.wait_for_timeout(50)
    page.mouse.move(200, 200)
    ben.answer_one()
    until = time.monotonic() + 120
    while not page.is_visible(PROMPT):
        page.mouse.move(100 + time.monotonic() % 100, 200)
        ben.answer_one()
        assert time.monotonic() < until
        page.wait_for_timeout(50)


def test_the_owner_sees_news_and_changes_the_run(visit: Callable[..., Any], tmp_path: Path) -> None:
    served = Served(
        begin(tmp_path, annotators="anna", budget=10, open_questions=6, audit=2, price="0.5")
    )
    page = visit(served.links["anna"])
    owner = visit(served.links["(owner)"], ready=".numbers", viewport={"width": 390, "height": 800})
    wait_for(lambda: owner.evaluate("document.documentElement.scrollWidth <= innerWidth"))
    prompt = page.inner_text(PROMPT)
    key = page.inner_text("#key")
    page.keyboard.press("ABC"[(CLASSES.index(gold(prompt)) + 1) % 3])
    page.keyboard.press("a")
    wait_for(lambda: "$0.50" in owner.inner_text(".numbers"))
    owner.fill("#row", key)
    owner.fill("#answer", gold(prompt))
    owner.press("#answer", "Enter")
    owner.wait_for_selector("#asked:not([hidden])")
    assert key in owner.inner_text("#question")
    owner.keyboard.press("Enter")  # the focus is on the button
    wait_for(lambda: "Corrected" in owner.inner_text("#said"))
    assert events_of(served.run).count("corrected") == 1
    owner.fill("#budget", "11")
    owner.click("form[data-act=budget] button")
    owner.click("#agree")
    wait_for(lambda: "of 11" in owner.inner_text(".numbers"))
    go_on(served, page, owner)
    assert served.run.status()["spent"] == 11


def test_numbers_that_change_during_a_click_do_not_lose_it(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    served = Served(begin(tmp_path, annotators="anna", budget=4, open_questions=4, audit=0))
    page, owner = visit(served.links["anna"]), visit(served.links["(owner)"], ready=".numbers")
    owner.hover("[data-act=link]")
    owner.mouse.down()
    for _ in range(3):
        page.keyboard.press("a")
    wait_for(lambda: events_of(served.run).count("answered") == 2)
    for _ in range(2):  # the first may have been asked for before the answers were there
        with owner.expect_response("**/rows", timeout=60_000):
            pass
    owner.wait_for_timeout(100)  # the new numbers are there
    owner.mouse.up()
    owner.wait_for_selector("#invited:not([hidden])", timeout=20_000)
    go_on(served, page, owner)
    assert served.run.status()["spent"] == 4


def test_the_owner_of_a_finished_run_corrects_by_a_click(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    made = play(begin(tmp_path, annotators="anna", budget=12, audit=2), wrong)
    served = Served(made, linger=0.0)
    assert list(served.links) == ["(owner)"]
    page = visit(served.links["(owner)"], ready=".numbers")
    assert not page.is_visible("form")
    page.click("a[href='/asked']")
    prompt = page.inner_text("tbody tr:first-child .text")
    page.fill("#find", prompt)
    page.press("#find", "Enter")
    wait_for(lambda: page.locator("tbody tr").count() == 1)
    assert not page.is_visible("#again")
    page.click("button[data-key]")
    assert page.inner_text("#of") == prompt
    page.keyboard.type(gold(prompt)[:3])
    assert page.locator("#correct li:visible").count() == 1
    page.click("#correct li:visible button")
    wait_for(lambda: "Corrected" in page.inner_text("#said"))
    assert gold(prompt) in page.inner_text("tbody tr")
    page.fill("#find", "")
    page.press("#find", "Enter")
    wait_for(lambda: page.locator("tbody tr").count() > 1)
    free = page.locator("tr:has(button[data-item])").last
    prompt = free.locator(".text").inner_text()
    free.locator("button").click()
    assert not page.is_visible("#unclear"), "a label alone is free"
    page.click(f"#correct li:has-text('{gold(prompt)}') button")
    wait_for(lambda: "has your label" in page.inner_text("#said"))
    assert gold(prompt) in free.inner_text()
    assert free.locator("button").inner_text() == "Correct"
    page.click("#again")
    wait_for(lambda: page.is_visible(".doing") and "has finished" in page.inner_text(".doing"))
    page.context.close()
    assert served.thread.is_alive(), "the page stays open until its owner stops it"
    assert events_of(made).count("corrected") == 1
    assert [row["purpose"] for row in made.ledger.export()].count("owned") == 1
    assert made.status()["state"] == "finished"
