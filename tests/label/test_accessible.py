"""The pages against WCAG 2.1 A and AA (axe-core), and what a screen reader gets of a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from axe_playwright_python.sync_playwright import Axe

from ..runs.conftest import CLASSES
from ..runs.people_cases import begin, gold
from .conftest import wait_for
from .served import NAMES, Served, of_many_classes
from .test_browser import PROMPT

pytestmark = pytest.mark.browser

# Of a criterion that is met one element is returned: a list of all of them takes most of the time.
WCAG = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    "resultTypes": ["violations", "incomplete"],
}
LOOKS = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]
EACH = LOOKS[:2]  # each width and each scheme: the style of a width sets no color but of the rows
OWNER = "(owner)"


@pytest.fixture
def look(context_of: Callable[..., Any]) -> Callable[[str], Any]:
    """Opens a link in a browser of its own."""

    def open_link(link: str) -> Any:
        page = context_of().new_page()
        page.goto(link)
        return page

    return open_link


def faults(page: Any, looks: Sequence[tuple[int, str]] = EACH) -> list[str]:
    """The criteria that a page breaks in any of its looks, and contrast that cannot be decided.

    The contrast of rows that are scrolled out of sight is decided when they are in sight.
    """
    found = []
    for width, scheme in looks:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        told = Axe().run(page, options=WCAG).response
        assert len(told["passes"]) >= 5, "axe-core has looked at the page"
        unclear = [each for each in told["incomplete"] if each["id"] == "color-contrast"]
        found += [
            f"{each['id']}: {width} {scheme} {node['html'][:120]} {node['failureSummary']}"
            for each in [*told["violations"], *unclear]
            for node in each["nodes"]
            if "partially obscured" not in node["failureSummary"]
        ]
    return found


def unfolded(page: Any, wait: str) -> Any:
    """The page with all its details open, once there is a `wait` on it."""
    page.wait_for_selector(wait)
    for each in page.query_selector_all("details:not([open]) > summary"):
        each.click()
    return page


def test_every_page_keeps_wcag_a_and_aa(look: Callable[[str], Any], tmp_path: Path) -> None:
    served = Served(begin(tmp_path, annotators="anna,ben", budget=4, open_questions=4, audit=0))
    page = unfolded(look(served.links["anna"]), PROMPT)
    assert faults(page) == [], "a question"
    page.focus("#note")
    page.evaluate("document.querySelector('#said').textContent = 'A sentence.'")
    assert faults(page) == [], "a note and a sentence"
    owner = unfolded(look(served.links[OWNER]), "#figures")
    assert faults(owner) == [], "the owner's page"
    assert faults(look(page.url.partition("#")[0])) == [], "the entry page"
    ben = unfolded(look(served.links["ben"]), PROMPT)
    for each in (page, ben):
        each.focus(PROMPT)
        for _ in range(2):
            each.keyboard.press("a")
    for each in (page, ben):
        each.wait_for_selector("#finished:not([hidden])")
    assert faults(page) == [], "a finished run"
    owner.wait_for_selector("a[href='/asked']").click()
    owner.wait_for_selector("table.asked")
    assert faults(owner, LOOKS) == [], "the rows of a finished run"
    owner.click("button[data-key]")
    owner.wait_for_selector("#correct[open]")
    assert faults(owner) == [], "a correction"


def test_a_list_of_three_hundred_classes_keeps_wcag_a_and_aa(
    look: Callable[[str], Any], tmp_path: Path
) -> None:
    page = unfolded(
        look(Served(of_many_classes(tmp_path, NAMES, ["a text"])).links["anna"]), PROMPT
    )
    assert faults(page, LOOKS[:1]) == []
    page.focus("#filter")
    page.keyboard.type("class 4")
    assert re.search("status: .*class 4 eee", page.locator("body").aria_snapshot())
    assert faults(page, EACH[1:]) == [], "with a class marked"


def test_the_rows_of_a_run_fit_however_long_their_texts(
    look: Callable[[str], Any], tmp_path: Path
) -> None:
    texts = ["https://example.com/" + "a" * 400, " ".join(["\u0644\u0645\u0627\u0630\u0627"] * 40)]
    names = ["b" * 90, "\u0628\u0637\u0627\u0642\u0629", *(f"class {n}" for n in range(148))]
    served = Served(of_many_classes(tmp_path, names, texts, budget=2, open_questions=2, audit=0))
    page, owner = look(served.links["anna"]), look(served.links[OWNER])
    for word in ("bbb", "\u0628\u0637"):
        page.wait_for_selector(PROMPT)
        page.fill("#filter", word)
        page.focus("#filter")
        page.keyboard.press("Enter")
    page.wait_for_selector("#finished:not([hidden])")
    owner.wait_for_selector("a[href='/asked']").click()
    owner.wait_for_selector("table.asked")
    owner.wait_for_load_state("load")  # with the style sheet, which the row may come before
    for width, _ in EACH:
        owner.set_viewport_size({"width": width, "height": 800})
        for place in ("html", ".scroll"):
            beyond = "e => e.scrollWidth - e.clientWidth"
            assert owner.eval_on_selector(place, beyond) <= 0, (width, place)
    assert faults(owner, [LOOKS[1], LOOKS[3]]) == []


def test_the_accessibility_tree_of_a_session_by_keyboard(
    look: Callable[[str], Any], tmp_path: Path
) -> None:
    served = Served(begin(tmp_path, annotators="anna", budget=6, open_questions=6, audit=2))
    page = look(served.links["anna"])
    seen = []
    while len(seen) < 6:
        wait_for(lambda: page.is_visible(PROMPT))
        prompt = page.inner_text(PROMPT)
        tree = page.locator("body").aria_snapshot()
        seen.append(prompt)
        assert prompt in tree
        assert sum(each in tree for each in seen) == 1, "only the question asked is in the tree"
        assert page.evaluate("document.activeElement.textContent") == prompt, "it is read out"
        for sign, name in zip("ABC", CLASSES, strict=True):
            assert f'button "{sign} {name}"' in tree
        for name in ("None of these", "Ambiguous", "Broken", "Later", "Undo the last answer"):
            assert re.search(rf'button ".*{name}.*"', tree), name
        assert re.search('textbox "Note', tree)
        assert "status" in tree
        page.keyboard.press("ABC"[CLASSES.index(gold(prompt))])
    page.wait_for_selector("#finished:not([hidden])")
    assert "The run has finished" in page.locator("body").aria_snapshot()
