"""The page in a real browser: a session by keyboard alone, a lost connection, two tabs, looks."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")

from stacksl.api import Run, run
from stacksl.label.serve import serve

from ..runs.conftest import CLASSES
from ..runs.people_cases import begin, gold

pytestmark = pytest.mark.browser

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("no Chromium found: install the package `chromium` or set CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


class Served:
    """The page of a run, served on a thread of this process until the run has finished."""

    def __init__(self, run: Run) -> None:
        self.run, self.links = run, dict[str, str]()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        assert self.ready.wait(30)

    def _serve(self) -> None:
        def ready(links: Any) -> None:
            self.links |= links
            self.ready.set()

        serve(self.run.folder, ready, linger=2.0)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a link in a browser of its own; what the page complains of fails the test."""
    contexts, complaints = [], []

    def open_link(link: str, **looks: Any) -> Any:
        contexts.append(browser.new_context(**looks))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: complaints.append(said.text) if "Security" in said.text else None,
        )
        page.goto(link)
        page.wait_for_selector("article:not([hidden])")
        return page

    yield open_link
    for context in contexts:
        context.close()
    assert complaints == []


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Poll; a page whose policy forbids `eval` cannot wait for an expression itself."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it should be so by now"
        time.sleep(0.03)


PROMPT = "article:not([hidden]) .prompt"


def test_a_session_by_keyboard_alone(visit: Callable[..., Any], tmp_path: Path) -> None:
    served = Served(begin(tmp_path, annotators="anna", budget=10, batch=6, audit=2))
    page = visit(served.links["anna"])
    assert "#" not in page.url
    keyboard, seen, undone = page.keyboard, 0, False
    wait_until(lambda: page.evaluate("document.activeElement.matches('.prompt')"))
    until = time.monotonic() + 60
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
        said = ledger.said()
    assert notes == ["sure: A, 1, 0 and ?"]
    assert said == {"label": 9, "none": 0, "ambiguous": 1, "broken": 0}
    assert served.run.replay()["labels"] >= 7


def events_of(run: Run) -> list[str]:
    with run.ledger as ledger:
        return [row.event for row in ledger.rows()]


def test_offline_a_double_click_and_a_second_tab(visit: Callable[..., Any], tmp_path: Path) -> None:
    served = Served(begin(tmp_path, annotators="anna", budget=12, batch=12, audit=0))
    page = visit(served.links["anna"])
    page.context.set_offline(True)
    for _ in range(4):
        page.keyboard.press("a")
    wait_until(lambda: "No connection" in page.inner_text("#said"))
    with served.run.ledger as ledger:
        assert ledger.said()["label"] == 0
    assert page.inner_text("#left") == "8"
    page.context.set_offline(False)
    wait_until(lambda: page.inner_text("#said") == "")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(PROMPT)
    assert other.inner_text("#left") == "8", "the answer held in one tab is not asked in another"
    before = page.inner_text(PROMPT)
    page.dblclick("article:not([hidden]) li:nth-child(2) button")
    assert page.inner_text("#left") == "7"
    wait_until(lambda: other.inner_text("#left") == "7")
    assert before not in (page.inner_text(PROMPT), other.inner_text(PROMPT))
    page.keyboard.press("b")
    wait_until(lambda: events_of(served.run).count("answered") == 5)
    assert events_of(served.run).count("late") == 0
    for key in "aaaaaa":
        page.keyboard.press(key)
    page.wait_for_selector("#finished:not([hidden])", timeout=30_000)
    served.thread.join(30)
    assert served.run.status()["spent"] == 12


WIDER_THAN_THE_PAGE = """() => [...document.querySelectorAll('body *')]
  .filter(part => part.getClientRects().length && !part.closest('#shared'))
  .filter(part => {
    const box = part.getBoundingClientRect();
    return box.right > innerWidth + 0.5 || box.left < -0.5;
  })
  .map(part => part.outerHTML.slice(0, 90))"""

CONTRAST = """() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const papers = [document.body, document.querySelector('.others button')]
    .map(part => light(getComputedStyle(part).backgroundColor));
  const inks = ['.prompt', 'h1', '.quiet', 'kbd', 'label', 'button', 'header p']
    .map(name => light(getComputedStyle(document.querySelector(name)).color));
  return Math.min(...inks.flatMap(ink => papers.map(paper =>
    (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05))));
}"""


@pytest.mark.parametrize(
    "looks",
    [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")],
    ids=str,
)
def test_three_hundred_classes_and_a_hostile_prompt(
    visit: Callable[..., Any], tmp_path: Path, looks: tuple[int, str]
) -> None:
    names = [f"class {n} {'abcdefghij'[n % 10] * 3}" for n in range(300)]
    names[41] = "</button><script>document.title='owned'</script>"
    (tmp_path / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    text = "<img src=x onerror=document.title='owned'>\u202e" + "long " * 4000
    lines = [f't{n},"{text if n % 2 else "short"} {n}"' for n in range(12)]
    (tmp_path / "pool.csv").write_text("id,text\n" + "\n".join(lines) + "\n", encoding="utf-8")
    made = run(
        tmp_path / "pool.csv", annotators="anna", budget=2, batch=2, mode="pool", names=False,
        labeler="file", classes=str(tmp_path / "classes.txt"), out=tmp_path / "run",
    )  # fmt: skip
    served = Served(made)
    width, scheme = looks
    page = visit(
        served.links["anna"], viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert page.title() == "Label · run"
    assert page.evaluate("document.scripts.length + document.images.length") == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(WIDER_THAN_THE_PAGE) == []
    assert page.evaluate(CONTRAST) >= 4.5
    order = page.eval_on_selector_all("#shared .text", "all => all.map(each => each.textContent)")
    assert order == names
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
    page.keyboard.press("?")
    page.wait_for_selector("#finished:not([hidden])", timeout=30_000)
    served.thread.join(30)
    with made.ledger as ledger:
        answers = [(row["said"], row["answer"]) for row in ledger.export()]
    assert sorted(answers, key=str) == [("ambiguous", None), ("label", 250)]
    assert re.search("finished", made.status()["state"])
