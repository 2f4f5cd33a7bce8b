"""What other verbs say while a page has the run open, and sheets that its owner enters there."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stacksl.api import Run
from stacksl.cli.entry import call
from stacksl.errors import RunLocked
from stacksl.label.serve import _stop_at_the_end
from stacksl.label.site import OWNER
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.storage.folder import LOCK

from ..runs.people_cases import begin, fill, gold, sheets
from .clients import Client
from .conftest import HERE, Browser, Opened, wait_for
from .served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(begin(tmp_path, annotators="anna,ben", budget=16, audit=4), linger=0.2)
    yield served
    clients = [Client(served.links[who]) for who in ("anna", "ben")]
    until = time.monotonic() + 240
    while served.thread.is_alive():
        assert time.monotonic() < until
        for client in clients:
            client.answer_one()
        served.thread.join(0.05)  # a session may ask 24 times a second


def test_verbs_say_where_the_page_is_open(served: Served, capsys) -> None:
    run, sheet = str(served.run.path), str(fill(next((served.run.path / "ask").glob("*-anna.csv"))))
    page = served.links["anna"].partition("#")[0]
    begun = time.monotonic()
    for words in (
        ["answer", run, sheet],
        ["answer", run, sheet, "--correct"],
        ["change", run, "--away", "anna"],
        ["change", run, "--budget", "18", "--yes"],
        ["resume", run],
        ["label", run, "--port", "0"],
        ["forget", run, "--id", "i1"],
    ):
        assert call(words) == 2
        said = capsys.readouterr().err
        assert f"the run {run} is open on its page at {page}: do this on the owner's page" in said
        assert "Traceback" not in said
    assert time.monotonic() - begun < 25, "no verb waits for a page"
    assert call(["status", run]) == 0
    said = capsys.readouterr().out
    assert re.search(f"Page open at +{re.escape(page)}", said)
    assert "Go on with" not in said
    assert call(["label", run, "--idle", "soon"]) == 2
    assert "--idle must be a time such as" in capsys.readouterr().err
    assert call(["label", run, "--guidelines", "nowhere.txt"]) == 2
    assert "--guidelines must be a text file" in capsys.readouterr().err


def test_the_page_of_a_finished_run_stays_after_its_report_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stacksl.label.serve.LINGER", 0.0)
    player = SimpleNamespace(over=threading.Event(), fault=None)
    site, server = SimpleNamespace(player=player, watched=False), SimpleNamespace(should_exit=False)
    player.over.set()  # as it is once the report was made again
    _stop_at_the_end(cast(Any, site), server, keep_open=True)
    time.sleep(1.2)
    assert not server.should_exit
    player.fault = RuntimeError()
    wait_for(lambda: server.should_exit)


def test_rows_of_a_page_that_was_stopped_come_into_sheets_by_resume(opened: Opened) -> None:
    page = opened(annotators="anna", budget=8, audit=0)
    page.player.stop()
    told = page.run.status()
    assert [row["file"] for row in told["sheets"]] == ["the page, which is closed"]
    assert told["resume"] == f"stacksl label {page.run.path}", "as the closed page says"
    page.run.resume()
    told = page.run.status()
    assert all(Path(row["file"]).is_file() for row in told["sheets"])
    assert told["resume"] == f"stacksl answer {page.run.path} FILE..."


def test_a_page_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna", budget=8, audit=0)
    with waiting.folder.locked(page="http://127.0.0.1:9/"):
        assert waiting.folder.page() == "http://127.0.0.1:9/"
        with pytest.raises(RunLocked, match="open on its page at http://127"):
            forget(waiting.path, "i1")
    assert "http" in (waiting.path / LOCK).read_text()
    assert waiting.folder.page() == ""
    assert waiting.answer(fill(sheets(waiting)[0])).accepted["label"] > 0
    assert "http" not in (waiting.path / LOCK).read_text()


def upload(browser: Browser, name: str, data: bytes, **headers: str) -> Any:
    sent = {"Origin": HERE, "X-CSRF-Token": browser.csrf, **headers}
    return browser.http.post("/sheet", params={"name": name}, content=data, headers=sent)


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_the_owner_enters_a_sheet(
    opened: Opened, tmp_path: Path, fill_any: Callable[[Path], Path], kind: str
) -> None:
    made = begin(tmp_path, annotators="anna,ben", budget=16, audit=4, sheets=kind)
    [sheet] = [fill_any(path) for path in sheets(made) if "anna" in path.name]
    page = opened(made)
    anna, owner = page.browser("anna"), page.browser(OWNER)
    rows = anna.rows()
    key, prompt = next(iter(rows.items()))
    wrong = 0 if gold(prompt) != "bread" else 1
    assert anna.answer(key, prompt, position=wrong) == "taken"
    reply = upload(owner, sheet.name, sheet.read_bytes())
    assert reply.status_code == 200
    told = reply.json()
    assert told["state"] == "done"
    assert told["sentence"] == (
        f"Answers in {sheet.name}: {len(rows) - 1} accepted, 1 contradicting an accepted one,"
        " kept but not paid."
    )
    assert not set(rows) & set(anna.rows())
    assert page.spent() == (len(rows), 1)
    again = upload(owner, sheet.name, sheet.read_bytes()).json()["sentence"]
    assert f"{len(rows)} given before" in again
    assert page.spent() == (len(rows), 1), "nothing is doubled"


@pytest.fixture
def fill_any() -> Callable[[Path], Path]:
    """Fills in a sheet, of either kind, rightly."""

    def filled(path: Path) -> Path:
        if path.suffix == ".csv":
            return fill(path)
        openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
        book = openpyxl.load_workbook(path)
        for table in book.worksheets:
            names = [cell.value for cell in table[1]]
            if "answer" in names:
                for row in table.iter_rows(min_row=2):
                    prompt = row[names.index("prompt")].value
                    if prompt:
                        row[names.index("answer")].value = gold(str(prompt))
        book.save(path)
        return path

    return filled


def test_what_is_no_sheet_is_refused_in_a_sentence(opened: Opened) -> None:
    page = opened()
    anna, owner = page.browser("anna"), page.browser(OWNER)
    rows = anna.rows()
    for name, data, words in (
        ("no.csv", b"a,b\n1,2\n", "'no.csv'"),
        ("", b"", "'sheet'"),
        ("../../a<b>.xlsx", b"PK\x03\x04 and no workbook", "'_.._a_b_.xlsx'"),
    ):
        reply = upload(owner, name, data)
        assert reply.status_code == 422
        assert words in reply.json()["sentence"]
        assert "/tmp" not in reply.text
    keys = list(rows)
    table = f"key,answer\n{keys[0]},maybe\n{keys[1]},\na2a2-a,1\n"
    told = upload(owner, "some.csv", table.encode()).json()
    assert told["sentence"].startswith("Answers in some.csv: 1 row still empty; not readable: ")
    assert "some.csv row 2, column answer" in told["sentence"]
    assert upload(owner, "long.csv", b"x" * (5 << 20)).status_code == 413
    assert upload(owner, "n" * 300, b"").status_code == 422
    assert upload(anna, "a.csv", table.encode()).status_code == 403
    assert upload(owner, "a.csv", b"", **{"X-CSRF-Token": "0" * 64}).status_code == 403
    assert upload(owner, "a.csv", b"", Origin="http://evil.example").status_code == 403
    assert page.spent() == (0, 0)
    assert anna.rows() == rows


@pytest.mark.browser
def test_a_sheet_is_chosen_and_entered_in_the_browser(visit: Callable[..., Any], tmp_path) -> None:
    made = begin(tmp_path, annotators="anna,ben", budget=8, open_questions=8, audit=0)
    files = [fill(path) for path in sheets(made)]
    served = Served(made)
    owner = visit(served.links["(owner)"], ready=".numbers")
    for path in files:
        owner.get_by_label("A filled-in sheet").set_input_files(str(path))
        owner.click("text=Enter its answers")
        wait_for(lambda path=path: path.name in owner.inner_text("#said"))
        assert "accepted" in owner.inner_text("#said")
        assert owner.input_value("#sheet") == ""
    served.finish()
    status = Run.open(made.path).status()
    assert (status["state"], status["spent"]) == ("finished", 8)
