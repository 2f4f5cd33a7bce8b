"""The page in a real browser, at desktop and phone width, light and dark."""

from dataclasses import replace

import pytest

from stacksl.report import render
from stacksl.report.quality import ColumnFacts

pytestmark = pytest.mark.browser


LOOKS = [(1280, "dark"), (390, "light")]


@pytest.fixture(scope="module")
def opened(browser):
    """One page for all reports, and everything that it says or asks for."""
    page, said, asked = browser.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda sent: sent.url.startswith("data:") or asked.append(sent.url))
    return page, said, asked


@pytest.fixture
def visit(opened, tmp_path):
    """Opens a report."""

    def open_page(facts):
        page, said, asked = opened
        said.clear()
        asked.clear()
        file = tmp_path / "report.html"
        file.write_text(render(facts), encoding="utf-8")
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        return page

    return open_page


def looks(page):
    """The page in each of its looks."""
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        yield page


WIDER_THAN_THE_PAGE = """() => [...document.querySelectorAll('body *')]
  .filter(part => part.getClientRects().length && !part.closest('#shared'))
  .filter(part => {
    const box = part.getBoundingClientRect();
    return box.right > innerWidth + 0.5 || box.left < -0.5;
  })
  .map(part => part.outerHTML.slice(0, 90))"""


COVERED = """() => {
  const area = part => part.offsetWidth * part.offsetHeight;
  const tiles = document.querySelector('.tiles');
  return [...tiles.children].map(area).reduce((a, b) => a + b) / area(tiles);
}"""


def test_silent_alone_inside_the_window_and_the_headline_fills_its_row(visit, opened, case):
    for page in looks(visit(case)):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(WIDER_THAN_THE_PAGE) == []
        assert page.evaluate(COVERED) > 0.96
    assert opened[1:] == ([], [page.url])


def test_hostile_text_runs_nothing(visit, made):
    page = visit(made["hostile"]())
    assert page.title() != "owned"
    assert page.evaluate("document.images.length + document.scripts.length") == 0


def test_the_words_of_the_figure_are_legible(visit, made):
    shown = "[...document.querySelectorAll('svg')]"
    smallest = (
        f"Math.min(...{shown}.flatMap(s => [...s.querySelectorAll('text')])"
        ".map(t => t.getBoundingClientRect().height))"
    )
    for page in looks(visit(made["usual"]())):
        assert page.evaluate(f"{shown}.length") == 1
        assert page.evaluate(smallest) > 10.98  # 11, in the browser's steps of 1/64


def test_the_page_keeps_wcag_a_and_aa(visit, made):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    judged = ColumnFacts("intent", 9, 9, 2, 0, 0, None, ())
    for page in looks(visit(replace(made["usual"](), column=judged))):
        told = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]}).response
        assert (told["violations"], len(told["passes"]) >= 5) == ([], True)
