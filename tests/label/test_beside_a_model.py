"""The page of a run that a model labels beside people: what the owner reads, and nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")

from stacksl.api import Run
from stacksl.label import open_run, pages, player
from stacksl.label.access import OWNER
from stacksl.label.site import Site
from stacksl.labelers.chat import labeler as chat

from ..labelers.chat.beside_cases import TOPICS, begin, filled, good, number_of, topic
from ..labelers.chat.chat_server import Handler, Server, serving
from .conftest import Browser, Opened, Page
from .test_browser import Served
from .test_refits import wait_for

KEY = "sk-not-for-any-page"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(player, "TICK", 0.05)
    monkeypatch.setenv("STACKSL_API_KEY", KEY)


def refuses(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(401, b'{"error": "%s"}' % KEY.encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(refuses) as found:
        yield found


def waiting_for_the_model(server: Server, folder: Path) -> Run:
    """A run without open rows of people, whose model has refused."""
    run = begin(server, folder, concurrency=1)
    while sheets := filled(run):
        run.answer(*sheets)
    return run


def told(owner: Browser) -> str:
    """What the owner reads of the run."""
    return " ".join(re.sub(r"<[^>]+>", "", owner.http.get("/rows").text).split())


def answer_one(page: Page, anna: Browser) -> None:
    for key, prompt in list(anna.rows().items())[:1]:
        place = TOPICS.index(topic(number_of(prompt)))
        assert anna.post(anna.given(key, position=place)).json()["state"] == "taken"


def test_the_owner_reads_that_a_model_does_not_answer_until_it_does(
    opened: Opened, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(open_run, "LONGEST_PAUSE", 0.05)
    page = opened(begin(server, tmp_path, concurrency=1, audit=15))
    anna, owner = page.browser("anna"), page.browser(OWNER)
    site = Site(page.player, page.access, {"127.0.0.1"})
    before = pages.mark(site, OWNER)
    assert "has given no answer" not in told(owner)
    wait_for(lambda: answer_one(page, anna) or page.player.view.silence is not None)
    assert pages.mark(site, OWNER).news(before), "it is pushed"
    sentence = told(owner)
    host = server.url.split("/")[2]
    assert re.search(rf"The model m at {host} has given no answer since 20\d\d-.* UTC:", sentence)
    assert "it refused the key (HTTP 401): set STACKSL_API_KEY. People can answer" in sentence
    assert re.search(r"It is asked again at 20\d\d-.* UTC\.", sentence)
    assert f"stacksl resume {page.run.path} --set labelers=people" in sentence
    assert KEY not in owner.http.get("/").text + sentence
    assert "model" not in anna.http.get("/rows").text
    calls = len(server.bodies)
    wait_for(lambda: len(server.bodies) > calls + 1)
    assert "has given no answer" in told(owner), "also while it is asked again"
    last = pages.mark(site, OWNER)
    server.behave = good
    wait_for(lambda: page.player.view.silence is None)
    assert "has given no answer" not in told(owner)
    assert pages.mark(site, OWNER).news(last)


@pytest.mark.parametrize("alive", [True, False])
def test_a_page_is_served_while_its_first_questions_wait_for_the_model(
    opened: Opened, server: Server, tmp_path: Path, alive: bool
) -> None:
    run, free = waiting_for_the_model(server, tmp_path), Event()

    def hangs(handler: Handler, body: dict[str, Any], number: int) -> None:
        assert free.wait(60)
        (good if alive else refuses)(handler, body, number)

    server.behave = hangs
    page = opened(run)  # returns while the model is asked
    assert not free.is_set()
    anna, owner = page.browser("anna"), page.browser(OWNER)
    assert not anna.rows()
    assert "No open question at the moment" in anna.http.get("/").text
    assert "The run goes on" in told(owner)
    free.set()
    if alive:
        wait_for(lambda: bool(anna.rows()))
        answer_one(page, anna)
    else:
        wait_for(lambda: page.player.view.silence is not None)
        assert "has given no answer" in told(owner)


@pytest.mark.browser
def test_the_sentence_keeps_wcag_a_and_aa(
    visit: Callable[..., Any], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "FIRST_PAUSE", 86_400.0)  # the page is served on after the test
    accessible = pytest.importorskip("tests.label.test_accessible", reason="axe is not installed")
    served = Served(waiting_for_the_model(server, tmp_path))
    owner = visit(served.links["(owner)"], ".notice")
    assert "127.0.0.1" in owner.inner_text(".notice")
    assert accessible.faults(owner) == []
