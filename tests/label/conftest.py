"""A run of two annotators, and its page as clients of HTTP see it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from starlette.testclient import TestClient

from stacksl.api import Run
from stacksl.label.app import make_app
from stacksl.label.player import Player
from stacksl.label.site import Access, Site

from ..ledgers import rows_of
from ..runs.conftest import CLASSES
from ..runs.people_cases import begin, gold

HERE = "http://127.0.0.1"


@dataclass
class Browser:
    """A browser without JavaScript: what one annotator sees and sends."""

    http: Any
    name: str

    def enter(self, secret: str) -> Any:
        return self.http.post("/enter", json={"secret": secret}, headers={"Origin": HERE})

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" content="(\w+)"', self.http.get("/").text)
        return found[1] if found else ""

    def rows(self) -> dict[str, str]:
        """The prompt of each open question, by its key."""
        page = self.http.get("/rows")
        assert page.status_code == 200, page.text
        found = re.findall(
            r'data-key="([^"]+)".*?<div class="prompt"[^>]*>(.*?)</div>', page.text, re.S
        )
        return {key: unescape(prompt) for key, prompt in found}

    def post(self, body: dict[str, Any], path: str = "/answer") -> Any:
        headers = {"Origin": HERE, "X-CSRF-Token": self.csrf}
        return self.http.post(path, json=body, headers=headers)

    def act(self, **body: Any) -> Any:
        """Do something on the owner's page."""
        return self.post(body, "/owner")

    def skip(self, key: str, why: str = "unsure", **more: str) -> Any:
        """Pass a row on."""
        return self.post({"key": key, "why": why, **more}, "/skip")

    def given(self, key: str, **more: Any) -> dict[str, Any]:
        return {"key": key, "kind": "label", **more}

    def answer(self, key: str, prompt: str, **more: Any) -> str:
        """Answer a row rightly, as the list of classes has it; the state in the reply."""
        more.setdefault("position", CLASSES_SHOWN.index(gold(prompt)))
        return str(self.post(self.given(key, **more)).json()["state"])


CLASSES_SHOWN = list(CLASSES)


def wait_for(holds: Callable[[], object], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@dataclass
class Page:
    """The page of one run."""

    run: Run
    player: Player
    access: Access
    app: Any

    def browser(self, name: str, *, entered: bool = True) -> Browser:
        browser = Browser(TestClient(self.app, base_url=HERE), name)
        if entered:
            assert browser.enter(self.access.link(name)).status_code == 200
        return browser

    def spent(self) -> tuple[int, int]:
        """Labels accepted and late answers, as the ledger has them."""
        events = [row.event for row in rows_of(self.run)]
        return events.count("answered"), events.count("late")


Opened = Callable[..., Page]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply waits for its answer to be in the ledger, however slow the machine."""
    monkeypatch.setattr("stacksl.label.app.PATIENCE", 120.0)


# What a page waits for: news every two seconds, a time to undo, a time before it sends again.
QUICKER = """for (const name of ["setTimeout", "setInterval"]) {
  const original = window[name];
  window[name] = (act, wait, ...more) => original(act, wait / 8, ...more);
}"""


@pytest.fixture
def context_of(browser: Any) -> Iterator[Callable[..., Any]]:
    """Makes contexts of the browser, whose pages wait for less long than those of a user."""
    contexts = []

    def make(**looks: Any) -> Any:
        contexts.append(browser.new_context(**looks))
        contexts[-1].add_init_script(QUICKER)
        contexts[-1].set_default_timeout(120_000)
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def visit(context_of: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Opens a link in a browser of its own; what the page complains of fails the test."""
    complaints: list[str] = []

    def open_link(link: str, ready: str = "article:not([hidden])", **looks: Any) -> Any:
        page = context_of(**looks).new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: complaints.append(said.text) if "Security" in said.text else None,
        )
        page.goto(link)
        page.wait_for_selector(ready)
        page.wait_for_load_state()  # what the server wrote is there before the script that acts
        return page

    yield open_link
    assert complaints == []


@pytest.fixture(scope="package")
def waiting_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Copies a run that waits for its first answers; of equal settings one is made."""
    made: dict[str, Run] = {}

    def copied(folder: Path, **settings: Any) -> Run:
        name = repr(sorted(settings.items()))
        if name not in made:
            made[name] = begin(tmp_path_factory.mktemp("waiting"), **settings)
        return Run(shutil.copytree(made[name].path, folder / "run"))

    return copied


@pytest.fixture
def opened(tmp_path: Path, waiting_runs: Callable[..., Run]) -> Iterator[Opened]:
    """Makes a run of `settings`, or takes the one given, and opens its page."""
    players: list[Player] = []

    def open_page(run: Run | None = None, idle: float = 0.0, **settings: Any) -> Page:
        settings = {"annotators": "anna,ben", "audit": 4, **settings}
        run = run or waiting_runs(tmp_path, **settings)
        player = Player(run.folder, idle)
        players.append(player)
        access = Access()
        app = make_app(Site(player, access, {"127.0.0.1"}))
        player.start()
        return Page(run, player, access, app)

    yield open_page
    for player in players:
        player.stop()


def play(browsers: list[Browser], page: Page, *, seconds: float = 240.0) -> None:
    """All answer in turn until the run has finished."""
    until = time.monotonic() + seconds
    while not page.player.over.is_set():
        assert time.monotonic() < until, "the run should have finished by now"
        for browser in browsers:
            for key, prompt in list(browser.rows().items())[:1]:
                assert browser.answer(key, prompt) == "taken"
        time.sleep(0.01)
