"""The page over HTTP: who may see and send what, and what the ledger makes of it."""

from __future__ import annotations

import json
import os
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import RunError
from stacksl.label.app import make_app
from stacksl.label.player import Player
from stacksl.label.site import OWNER, Site
from stacksl.report.quality import Differing
from stacksl.runs.session import session

from ..ledgers import bought, handed_rows, open_leases, rows_of, verify
from .conftest import CLASSES_SHOWN, HERE, Opened, play, wait_for


def test_two_annotators_finish_a_run_to_the_last_label(opened: Opened) -> None:
    page = opened()
    anna, ben = page.browser("anna"), page.browser("ben")
    assert anna.rows()
    assert not set(anna.rows()) & set(ben.rows())
    assert not set(anna.rows().values()) & set(ben.rows().values())
    play([anna, ben], page)
    status = page.run.status()
    assert (status["state"], status["spent"], status["audit"]["n"]) == ("finished", 24, 4)
    assert page.spent() == (24, 0)
    answered = {row["labeler"] for row in bought(page.run)}
    verify(page.run)
    assert answered == {"anna", "ben"}
    assert "The run has finished" in anna.http.get("/").text
    assert 'data-state="finished"' in anna.http.get("/rows").text
    assert page.run.replay()["labels"] == 20


def test_nothing_tells_an_audit_row_from_another(opened: Opened) -> None:
    page = opened(budget=12, open_questions=12, audit=6)
    anna, ben = page.browser("anna"), page.browser("ben")
    purpose = {(p.item, p.slot): p.purpose for p in open_leases(page.run)}
    handed = handed_rows(page.run)
    audit = {row.key for row in handed if purpose[row.item, row.slot] == "audit"}
    shown = {**anna.rows(), **ben.rows()}
    assert len(audit) == 6
    assert audit < set(shown)
    html = anna.http.get("/rows").text + ben.http.get("/rows").text
    for row in handed:
        assert row.item not in re.findall(r"\bi\d+\b", html), "ids stay with the owner"
    assert not re.search("audit|train|purpose|score|round|probab|reason", html, re.I)
    by_shape: dict[str, set[bool]] = {}
    for article in re.findall(r"<article.*?</article>", html, re.S):
        key = re.search('data-key="([^"]+)"', article)[1]  # type: ignore[index]
        shape = re.sub('data-key="[^"]+"|<div class="prompt".*?</div>', "", article, flags=re.S)
        by_shape.setdefault(shape, set()).add(key in audit)
    assert by_shape == {next(iter(by_shape)): {True, False}}
    for browser in (anna, ben):
        assert list(browser.rows()) == sorted(browser.rows()), "the order is that of random keys"
    replies = {}
    for browser in (anna, ben):
        for key in browser.rows():
            body = browser.given(key, position=0)
            reply = browser.post(body)
            told = {k: v for k, v in reply.headers.items() if k != "date"}
            replies.setdefault(key in audit, set()).add((reply.status_code, reply.text, *told))
    assert replies[True] == replies[False]


def test_a_link_works_once_and_looking_at_it_uses_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr("stacksl.label.site.time", clock)
    page = opened()
    first, second = page.browser("anna", entered=False), page.browser("anna", entered=False)
    secret = page.access.link("anna")
    for _ in range(3):
        assert first.http.get(f"/?{secret}").status_code == 200
        assert first.http.head("/").status_code in (200, 405)
    assert first.http.get("/rows").status_code == 401
    reply = first.enter(secret)
    cookie = reply.headers["set-cookie"]
    assert reply.status_code == 200
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert secret not in cookie
    assert first.rows()
    refused = second.enter(secret)
    assert refused.status_code == 403
    assert "used before or has expired" in refused.json()["sentence"]
    late = page.access.link("ben")
    now[0] += 25 * 3600
    assert second.enter(late).status_code == 403
    assert first.http.get("/rows").status_code == 401, "sessions expire"
    assert "data-key" not in first.http.get("/").text


def test_secrets_are_nowhere_on_disk(opened: Opened) -> None:
    page = opened()
    secret = page.access.link("anna")
    anna = page.browser("anna", entered=False)
    anna.enter(secret)
    token = next(iter(anna.http.cookies.jar)).value
    for file in page.run.path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert secret.encode() not in data, file
            assert token.encode() not in data, file
    assert (page.run.path / "run.db").stat().st_mode & 0o077 == 0


def test_a_session_ends_with_the_server_and_can_be_ended(opened: Opened) -> None:
    page = opened()
    anna = page.browser("anna")
    page.player.stop()
    again = opened(page.run)
    anna.http.app = again.app
    anna.http._transport.app = again.app
    assert anna.http.get("/rows").status_code == 401, "nor has another server on its port a session"
    assert anna.enter(again.access.link("anna")).status_code == 200
    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt) == "taken"
    left = anna.http.post("/leave", headers={"Origin": HERE, "X-CSRF-Token": anna.csrf})
    assert left.status_code == 200
    assert anna.http.get("/rows").status_code == 401
    ben = again.browser("ben")
    again.access.revoke("ben")
    assert ben.http.get("/rows").status_code == 401


def test_requests_are_not_reported_to_a_collector_of_the_environment(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI 0.165 and newer would export them, if it is installed with OpenTelemetry."""
    page = opened()
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    app = make_app(Site(page.player, page.access, {"127.0.0.1"}))
    assert os.environ["FASTAPI_OTEL_AUTO_CONFIGURE"] == "false"
    assert not vars(app).get("_telemetry", {}).get("auto_configure")  # it is read in the making


def test_every_route_knows_who_asks_before_it_reads_what_is_sent(opened: Opened) -> None:
    """A new route is in `owned`, or in none of these sets if it has no role yet."""
    page = opened()
    anna, nobody = page.browser("anna"), page.browser("ben", entered=False)
    paths = make_app(Site(page.player, page.access, {"127.0.0.1"})).openapi()["paths"]
    found: dict[str, tuple[int, int]] = {}
    for path, methods in paths.items():
        for method in methods:
            here = path.replace("{name}", "page.js")
            token = {"Origin": HERE, "X-CSRF-Token": anna.csrf}
            codes = [
                each.http.request(method.upper(), here, headers=token, content=b"{}").status_code
                for each in (nobody, anna)
                if path != "/leave"
            ]
            found[path] = tuple(codes)
    assert {path for path, codes in found.items() if codes == (401, 403)} == {
        "/report", "/asked", "/owner", "/sheet",
    }  # fmt: skip
    assert {path for path, codes in found.items() if codes[:1] == (401,)} >= {
        "/rows", "/answer", "/skip",
    }  # fmt: skip
    assert {path for path, codes in found.items() if codes[:1] != (401,)} == {
        "/", "/web/{name}", "/enter", "/leave",
    }  # fmt: skip


def test_requests_of_other_pages_are_refused(opened: Opened) -> None:
    page = opened()
    anna = page.browser("anna")
    key = next(iter(anna.rows()))
    body, csrf = anna.given(key, position=0), anna.csrf
    good = {"Origin": HERE, "X-CSRF-Token": csrf}

    def status(url: str = "/answer", **headers: str) -> int:
        sent = {**good, **headers}
        return anna.http.post(url, json=body, headers=sent).status_code

    assert status(Origin="http://evil.example") == 403
    assert status(Origin="null") == 403
    assert status(Origin="") == 403
    assert status(Host="evil.example") == 421
    assert status(Host="127.0.0.1.evil.example") == 421
    assert status(Host="evil@127.0.0.1", Origin="http://evil@127.0.0.1") == 421
    assert status(Host="[127.0.0.1") == 421, "no address of the Internet"
    assert status(Origin="http://[127.0.0.1") == 403
    assert status(**{"X-CSRF-Token": "0" * 64}) == 403
    assert anna.http.get("/rows", headers={"Host": "evil.example"}).status_code == 421
    assert anna.http.post("/answer", json=body, headers={"Origin": HERE}).status_code == 403
    ben = page.browser("ben")
    other = ben.http.post("/answer", json=body, headers=good)
    assert other.status_code == 403, "the value of one session is not that of another"
    assert page.spent() == (0, 0)
    assert status() == 200
    for path in ("/", "/rows", "/web/page.js", "/nothing"):
        headers = anna.http.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
    assert anna.http.get("/openapi.json").status_code == 404
    assert anna.http.get("/web/label.html.j2").status_code == 422


def test_a_malformed_answer_is_refused_in_a_sentence(opened: Opened) -> None:
    page = opened()
    anna = page.browser("anna")
    bodies: list[Any] = [{}, [], {"key": "k"}, {"kind": "label"}, {"key": "k", "kind": "yes"}]
    bodies += [{"key": "k", "kind": "none", **more} for more in ({"more": 1}, {"note": "n" * 4001})]
    for body in bodies:
        reply = anna.post(body)
        assert reply.status_code == 422, body
        assert reply.json()["sentence"] == "the request is not of the form that the page sends"
    assert page.spent() == (0, 0)


def test_answers_that_fit_no_open_row_change_nothing(opened: Opened) -> None:
    page = opened()
    anna, ben = page.browser("anna"), page.browser("ben")
    key, theirs = next(iter(anna.rows())), next(iter(ben.rows()))

    def state(key: str, **more: Any) -> str:
        return str(anna.post(anna.given(key, **more)).json()["state"])

    assert state(theirs, position=0) == "gone"
    assert state("a2a2-a", position=0) == "gone"
    assert state(key, position=3) == "refused"
    assert anna.post(anna.given(key, position=True)).status_code == 422
    assert state(key) == "refused"
    assert state(key, kind="none", position=0) == "refused"
    assert state(key, kind="none", text=" Bread ") == "refused"
    assert page.spent() == (0, 0)
    assert set(anna.rows()) >= {key}
    half = json.dumps(anna.given(key, kind="none", text="\ud800"))  # of a pair of surrogates
    headers = {"Origin": HERE, "X-CSRF-Token": anna.csrf, "Content-Type": "application/json"}
    assert anna.http.post("/answer", content=half, headers=headers).status_code == 422
    assert state(key, kind="none", text=" butter\x00", note="=1+1") == "taken"
    with page.run.ledger as ledger:
        [answer] = ledger.texts()
    assert (answer.kind, answer.text, answer.note) == ("none", "butter␀", "=1+1")
    long = anna.http.post(
        "/answer", content=b"x" * 70_000, headers={"Origin": HERE, "X-CSRF-Token": anna.csrf}
    )
    assert long.status_code == 413


def test_a_repeated_answer_is_taken_once_and_a_stale_one_changes_nothing(opened: Opened) -> None:
    page = opened()
    anna = page.browser("anna")
    key, other = list(anna.rows())[:2]
    first = anna.given(key, position=1)
    assert [anna.post(first).json()["state"] for _ in range(3)] == ["taken"] * 3
    assert page.spent() == (1, 0)
    stale = {**first, "position": 2}
    assert anna.post(stale).json()["state"] == "kept"
    assert anna.post(anna.given(other, position=0)).json()["state"] == "taken"
    assert anna.post(first).json()["state"] == "taken", "sent again from a queue"
    assert page.spent() == (2, 1)
    answered = {each.key: each.item for each in handed_rows(page.run)}
    found = {row["item"]: row["answer"] for row in bought(page.run)}
    assert found[answered[key]] == 1


def test_hostile_texts_are_shown_and_nothing_of_them_is_markup(opened: Opened) -> None:
    from stacksl.label.pages import visible_html

    text = str(visible_html('<script>alert(1)</script>"\u202eevil\u2066\x1b[2J\r\n{{ 7*7 }}'))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert '<span class="sign">U+202E</span>' in text
    assert '<span class="sign">U+2066</span>' in text
    assert "␛[2J\n{{ 7*7 }}" in text
    assert not re.search("[\x00-\x08\u202a-\u202e\u2066-\u2069]", text)


def test_a_run_that_is_held_has_no_other_page_and_a_finished_one_no_questions(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened()
    monkeypatch.setattr("stacksl.runs.storage.folder.WAIT", 0.1)
    with pytest.raises(RunError, match="is held by process"):
        Player(page.run.folder).start()
    ben = page.browser("ben")
    assert ben.skip(next(iter(ben.rows()))).json() == {"state": "skipped"}
    play([page.browser("anna"), ben], page)
    page.run.people(away="ben")
    again = opened(Run.open(page.run.path))
    assert "The run has finished" in again.browser("anna").http.get("/").text
    assert again.browser("anna").rows() == {}
    told = again.browser(OWNER).http.get("/rows").text
    assert re.search(r"ben <small>away</small></th>\s*<td>0</td><td>\d+</td><td>1</td>", told)


def test_the_owner_ends_sessions_and_sees_no_audit(opened: Opened) -> None:
    page = opened()
    anna, owner = page.browser("anna"), page.browser(OWNER)

    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt) == "taken"
    told = owner.http.get("/rows").text
    assert re.search(r"anna</th>\s*<td>\d</td><td>1</td>", told)
    assert "of 24" in told
    shown = owner.http.get("/").text
    assert "audit" not in told + shown
    assert "/asked" not in shown
    assert owner.http.get("/asked").status_code == 404, "nor the rows before the end"
    assert "stacksl change RUN --free NAME" in shown
    assert anna.act(act="revoke", name="ben").status_code == 403
    key, prompt = next(iter(anna.rows().items()))
    assert owner.post(owner.given(key, position=0)).status_code == 403
    assert anna.answer(key, prompt) == "taken"
    assert owner.act(act="link", name="carl").status_code == 422
    assert owner.act(act="revoke", name="anna").status_code == 200
    assert anna.http.get("/rows").status_code == 401
    assert anna.enter(owner.act(act="link", name="anna").json()["link"]).status_code == 200
    assert anna.rows()
    assert page.spent() == (2, 0)


def test_an_annotator_sees_no_number_of_the_run(opened: Opened) -> None:
    page = opened()
    anna, ben = page.browser("anna"), page.browser("ben")
    before = anna.http.get("/rows").text
    key, prompt = next(iter(ben.rows().items()))
    assert ben.answer(key, prompt) == "taken"
    assert anna.http.get("/rows").text == before, "how many others have answered is not told"
    assert str(page.run.status()["budget"]) not in re.sub("<article.*", "", before, flags=re.S)


def test_the_owner_changes_the_budget_invites_and_corrects(opened: Opened) -> None:
    page = opened(sheets={"overlap": 4})
    anna, owner = page.browser("anna"), page.browser(OWNER)

    key, prompt = next(iter(anna.rows().items()))
    assert anna.answer(key, prompt, position=0) == "taken"
    asked = owner.act(act="budget", value="30").json()
    assert asked["state"] == "asked"
    assert "30 labels in all, 6 more" in asked["sentence"]
    assert page.run.status()["budget"] == 24, "nothing changes before it is agreed"
    assert owner.act(act="budget", value="30", agreed=True).json()["state"] == "done"
    assert page.run.status()["budget"] == 30
    assert owner.act(act="budget", value="none").status_code == 422
    invited = owner.act(act="annotator", name="carl").json()
    carl = page.browser("carl", entered=False)
    assert carl.enter(invited["link"]).status_code == 200
    assert carl.http.get("/rows").status_code == 200
    wait_for(lambda: "carl" in owner.http.get("/rows").text)  # the run is open again
    right = CLASSES_SHOWN[1]
    asked = owner.act(act="correct", name=key, value=right).json()
    assert asked == {"state": "asked", "sentence": f"{key}, anna: {CLASSES_SHOWN[0]} → {right}"}
    assert owner.act(act="correct", name=key, value=right, agreed=True).json()["state"] == "done"
    found = [row.payload["index"] for row in rows_of(page.run, "corrected")]
    assert found == [1]
    refused = owner.act(act="correct", name="a2a2-a", value="x").json()
    assert "no accepted answer" in refused["sentence"]
    play([anna, page.browser("ben"), carl], page)
    assert page.run.status()["spent"] == 30
    told = owner.http.get("/rows").text
    assert "/report" in told
    report = owner.http.get("/report")
    assert report.status_code == 200
    assert report.headers["content-security-policy"].startswith("sandbox; default-src 'none';")
    assert "script" not in report.headers["content-security-policy"]  # and the report has none
    assert "<script" not in report.text
    assert anna.http.get("/report").status_code == 403


def test_the_owner_sets_aside_who_differs_and_keeps_them(opened: Opened, monkeypatch) -> None:
    found = Differing("anna", 20, 1, 9.5, 0.0001)
    monkeypatch.setattr(session, "differing", lambda *given: (found,))
    page = opened()
    anna, owner = page.browser("anna"), page.browser(OWNER)
    told = owner.http.get("/rows").text
    assert "differs from the others: 1 of 20 answers as predicted, while others have 9.5." in told

    assert anna.rows()
    assert owner.act(name="anna", act="set_aside").json()["state"] == "asked"
    assert page.run.annotators()[0].standing == ""
    done = owner.act(name="anna", act="set_aside", agreed=True).json()
    assert done["sentence"] == "anna is set aside."
    assert [each.standing for each in page.run.annotators()] == ["set_aside", ""]
    wait_for(lambda: not anna.rows())
    wait_for(lambda: "set aside</small>" in owner.http.get("/rows").text)
    refused = owner.act(act="set_aside", name="ben", agreed=True)
    assert refused.status_code == 422
    assert "expected an annotator left to answer" in refused.json()["sentence"]
    assert owner.act(name="anna", act="keep").json()["sentence"] == "The answers of anna count."
    assert page.run.annotators()[0].standing == "kept"
    assert owner.act(act="keep", name="carl").status_code == 422


def test_the_owner_adds_a_proposed_class_by_a_click(opened: Opened, monkeypatch) -> None:
    found = [{"rows": 41, "name": "rain, <wet>"}, {"rows": 30, "name": "<dry>", "written": 10}]
    monkeypatch.setattr(session, "proposed", lambda *given: found)
    monkeypatch.setattr(session, "lost_by_class", lambda *given: "ends all")
    page = opened()
    anna, owner = page.browser("anna"), page.browser(OWNER)
    told = owner.http.get("/rows").text
    assert '41 rows look alike and like no class: <b dir="auto">rain, &lt;wet&gt;</b>' in told
    assert 'data-act="class" data-name="rain, &lt;wet&gt;"' in told
    assert '10 rows were answered with none and the text: <b dir="auto">&lt;dry&gt;</b>' in told
    assert "answered with none" not in anna.http.get("/rows").text
    assert "Adding a class ends all." in told

    asked = owner.act(act="class", name="rain, <wet>").json()
    assert (asked["state"], len(page.run.folder.classes().names)) == ("asked", 3)
    assert "The run gets the class rain, <wet> for good;" in asked["sentence"]
    done = owner.act(act="class", name="rain, <wet>", agreed=True).json()
    assert done["sentence"].startswith("The class was added")
    assert page.run.folder.classes().names[3:] == ("rain, <wet>",)
    wait_for(lambda: "rain, &lt;wet&gt;" in anna.http.get("/rows").text)
    for agreed in (False, True):  # nobody is asked to agree to what is refused then
        refused = owner.act(act="class", name="Rain,  <WET>", agreed=agreed)
        assert refused.status_code == 422
        assert "already has the class" in refused.json()["sentence"]
        assert owner.act(act="class", name=" ", agreed=agreed).status_code == 422


def test_the_owner_cannot_count_an_audit_before_the_end(opened: Opened) -> None:
    """The numbers after an answer to a row of the audit are those after any other."""
    shown: dict[bool, set[str]] = {}
    page = opened(budget=12, open_questions=12, audit=6)
    owner, people = page.browser(OWNER), {name: page.browser(name) for name in ("anna", "ben")}
    purpose = {(p.item, p.slot): p.purpose for p in open_leases(page.run)}
    rows = handed_rows(page.run)
    kinds = [[r for r in rows if purpose[r.item, r.slot] == kind] for kind in ("audit", "train")]
    for n, row in enumerate([each for pair in zip(*kinds, strict=True) for each in pair][:11]):
        browser = people[row.annotator]
        assert browser.answer(row.key, browser.rows()[row.key]) == "taken"
        wait_for(lambda n=n: f"{n + 1} <small>of 12" in owner.http.get("/rows").text)
        told = owner.http.get("/rows").text
        words = re.sub(r"\d+", "#", re.sub("<[^>]+>|\\s+", " ", told)).split()
        shown.setdefault(purpose[row.item, row.slot] == "audit", set()).add(" ".join(words))
    assert shown[True] == shown[False]
