"""A model on a server beside people, in one run with one ledger and one budget."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.errors import SettingsError
from stacksl.labelers.chat import labeler as chat
from stacksl.runs.loop import choosers
from stacksl.runs.loop.choosers import DRAWN_FIRST
from stacksl.runs.session.model_labels import people_labels
from stacksl.runs.settings.budget import Budget
from stacksl.runs.settings.resolve import resolve
from stacksl.types import Item

from .beside_cases import (
    CALL,
    COUNT,
    PRICED,
    TOPICS,
    begin,
    bought,
    chance,
    expect_books,
    filled,
    good,
    head_of,
    play,
    text,
)
from .chat_server import Handler, completion, options_of, serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(choosers, "FEWEST_AT_ONCE", 40)


def test_people_begin_the_model_labels_the_rest_and_people_get_what_is_left(
    tmp_path: Path,
) -> None:
    with serving(good) as server:
        run = begin(server, tmp_path)
        assert run.status()["state"] == "waiting"
        assert not server.bodies  # people first
        run = play(run)
    books = expect_books(run)
    assert books["audit answered"] == 5
    assert books["soft answered"] == COUNT - 5  # all that do not measure
    assert books["train answered"] == 45 - 5 - 1  # the model has cost a part of a dollar
    with run.ledger as ledger:
        spent = (COUNT - 5) * CALL + 44_000_000
        assert ledger.spent_money == spent
        rounds = [row.decision() for row in ledger.rows() if row.event == "round"]
        soft = [row for row in ledger.rows() if row.purpose == "soft"]
        first = min(row.seq for row in soft)
        before = [row for row in ledger.rows() if row.event == "learnt" and row.seq < first]
        assert len(before) == DRAWN_FIRST
        audited = set(ledger.bought("audit"))
        assert not audited & set(ledger.bought("soft"))
    asked = [each.reason for each in rounds if each.asked]
    assert asked.count("drawn") == DRAWN_FIRST
    said = json.loads((run.path / "facts.json").read_text())["refit"]["sentence"]
    assert "the model's label was people's in an estimated" in said
    assert f"It gave {COUNT - 5} labels for ${(COUNT - 5) * CALL / 1e6:.4f}" in said
    assert run.replay()["labels"] == 39
    assert run.status()["asked"] == 39


def test_a_model_by_chance_is_not_bought_beyond_the_estimate(tmp_path: Path) -> None:
    with serving(chance) as server:
        run = play(begin(server, tmp_path))
    books = expect_books(run)
    assert DRAWN_FIRST <= books["soft answered"] <= DRAWN_FIRST + 10
    assert books["train answered"] == 39
    facts = json.loads((run.path / "facts.json").read_text())
    assert "may be chance: its labels took no part" in facts["refit"]["sentence"]


def test_a_dear_model_is_not_bought_beyond_the_estimate(tmp_path: Path) -> None:
    with serving(good) as server:  # $0.70 a label
        dear = {"input_price": "7000", "output_price": "0", "budget": "$75"}
        run = play(begin(server, tmp_path, **dear))
    assert expect_books(run)["soft answered"] < DRAWN_FIRST + 10


@pytest.mark.parametrize("at", [3, DRAWN_FIRST + 30], ids=["estimate", "pool"])
def test_the_run_waits_for_a_server_that_refuses_and_goes_on(at: int, tmp_path: Path) -> None:
    def refuses(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number >= at:
            handler.send(401)
        else:
            good(handler, body, number)

    with serving(good) as server:
        whole = head_of(play(begin(server, tmp_path / "whole", concurrency=1)))
    with serving(refuses) as server:
        run = begin(server, tmp_path, concurrency=1)
        for _ in range(5):
            run.answer(*filled(run))
        asked = len(bought(run, "train"))
        assert asked == DRAWN_FIRST  # people are asked nothing while it is waited for
        assert "refused the key" in str(run.status()["sheets"])
        assert expect_books(run)["soft open"] > 0
        server.behave = good
        run = play(run.resume())
    expect_books(run)
    assert head_of(run) == whole


def test_garbage_and_lost_answers_are_booked(tmp_path: Path) -> None:
    def bad(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number % 7 == 0:
            handler.send(500)
        elif number % 11 == 0:
            handler.send(200, completion("none of your business"))
        else:
            good(handler, body, number)

    with serving(bad) as server:
        run = begin(server, tmp_path, concurrency=1)
        for _ in range(40):
            if run.status()["state"] != "waiting":
                break
            run.answer(*filled(run))
            expect_books(run)
    assert run.status()["state"] == "finished"
    expect_books(run)
    kinds = Counter(str(row["said"]) for row in bought(run, "soft"))
    assert kinds["broken"] > 5
    assert kinds["label"] > 70
    run.replay()


ANSWER = """
import sys, stacksl
from pathlib import Path
from stacksl.runs.loop import choosers
choosers.FEWEST_AT_ONCE = 40
run = stacksl.Run.open(sys.argv[1])
run.answer(*map(Path, sys.argv[2:]))
"""
BETWEEN = """
import os, signal
from stacksl.ledger.ledger import Ledger
post = Ledger.post

def killed(self, *rest):
    os.kill(os.getpid(), signal.SIGKILL)

Ledger.post = killed
"""
RESERVED = """
import os, signal
from stacksl.labelers.chat.labeler import ChatLabeler
answers = ChatLabeler.answers

def killed(self):
    if len(self._open) == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers(self)

ChatLabeler.answers = killed
"""


@pytest.mark.parametrize("when", ["reserved", "called", "before-people"])
def test_killed(when: str, tmp_path: Path) -> None:
    """`kill -9` after the reservation, while a call is under way, and before people's next batch.

    The end is that of a run that nobody killed.
    """
    pid: list[int] = []

    def kill(handler: Handler, body: dict[str, Any], number: int) -> None:
        if when == "called" and number == DRAWN_FIRST + 20 and pid:
            os.kill(pid.pop(), signal.SIGKILL)
        good(handler, body, number)

    with serving(good) as server:
        whole = head_of(play(begin(server, tmp_path / "whole", concurrency=1)))
    with serving(kill) as server:
        run = begin(server, tmp_path, concurrency=1)
        deaths = 0
        for _ in range(30):
            if run.status()["state"] != "waiting":
                break
            if len(bought(run, "train")) < DRAWN_FIRST or deaths:
                run.answer(*filled(run))
                continue
            head = {"reserved": RESERVED, "before-people": BETWEEN}.get(when, "")
            words = [sys.executable, "-c", head + ANSWER, str(run.path), *map(str, filled(run))]
            with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
                pid.append(process.pid)
                _, err = process.communicate(timeout=120)
            assert process.returncode == -signal.SIGKILL, err
            expect_books(run)
            deaths += 1
            run = stacksl.Run.open(run.path).resume()
    assert deaths == 1
    assert run.status()["state"] == "finished"
    books = expect_books(run)
    assert books["soft answered"] == COUNT - 5
    assert len(server.bodies) == COUNT - 5 + (when == "called")
    assert head_of(run) == whole
    run.replay()


def test_a_budget_below_what_both_cost_is_refused_with_one_that_is_not(tmp_path: Path) -> None:
    from stacksl.runs.changes.change import Change, change_run

    with serving(good) as server:
        run = begin(server, tmp_path)
        while not bought(run, "soft"):
            run.answer(*filled(run))
    with run.ledger as ledger:
        spent, paid = ledger.spent, ledger.spent_money
    assert paid > spent * 1_000_000  # people's labels alone would fit
    with pytest.raises(SettingsError, match="are paid or promised") as refused:
        change_run(run.folder, Change(budget=str(spent)))
    least = str(refused.value).split("'")[-2]
    assert change_run(run.folder, Change(budget=least)).left == 0
    with run.ledger as ledger:
        assert ledger.money == paid


def test_exports_name_the_model_and_train_on_people_alone(tmp_path: Path) -> None:
    from stacksl.api.exporting import tasks_of, write_labels
    from stacksl.api.labelling import bought_answers

    with serving(good) as server:
        run = play(begin(server, tmp_path))
    write_labels(run, tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = Counter((row["purpose"], row["labeler"]) for row in rows)
    assert kinds["soft", "openai:m"] == COUNT - 5
    assert kinds["train", "annotator 1"] == 39
    told = tasks_of(bought_answers(run, names=False))
    assert len(told) == 44
    assert "openai" not in json.dumps(told)


def test_a_forgotten_item_has_no_label_of_the_model(tmp_path: Path) -> None:
    from stacksl.runs.changes.forgetting import forget

    with serving(good) as server:
        run = play(begin(server, tmp_path))
    trained = {row["item"] for row in bought(run, "train")}
    item = next(row["item"] for row in bought(run, "soft") if row["item"] not in trained)
    prompt = text(int(item.removeprefix("row-")) - 1)
    assert prompt in (run.path / "calls.jsonl").read_text()
    forget(run.path, item)
    for path in run.path.rglob("*"):
        assert not path.is_file() or prompt.encode() not in path.read_bytes(), path
    with run.ledger as ledger:
        ledger.verify()
        assert item not in ledger.bought("soft")


def test_a_call_that_may_have_been_billed_is_charged_though_its_item_is_forgotten(
    tmp_path: Path,
) -> None:
    from stacksl.runs.changes.forgetting import forget

    def lost(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number == DRAWN_FIRST + 10:
            raise BrokenPipeError  # it read the request, and never answers
        if number > DRAWN_FIRST + 10:
            handler.send(401)
        else:
            good(handler, body, number)

    with serving(lost) as server:
        run = begin(server, tmp_path, concurrency=1)
        for _ in range(6):
            run.answer(*filled(run))
        lines = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
        [call] = [line for line in lines if line.get("cost", 0) > CALL]
        with run.ledger as ledger:
            [lease] = [each for each in ledger.open_purchases() if each.item == call["item"]]
            before = ledger.spent_money
        forget(run.path, call["item"])
        with run.ledger as ledger:
            ledger.verify()
            assert ledger.spent_money == before - lease.price + call["cost"]
        server.behave = good
        run = play(stacksl.Run.open(run.path).resume())
        stacksl.Run.open(run.path).replay()


@pytest.mark.slow
def test_a_local_model_beside_people(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from stacksl_lab.sample import FOLDER as SAMPLE

    texts = [text(n) for n in range(40)]
    run = stacksl.run(
        texts, classes=list(TOPICS), labeler=f"hf:{SAMPLE},people", budget="$32", price="1",
        audit=0, out=tmp_path / "run", sheets="csv", features="hashing",
    )  # fmt: skip
    run = play(run)
    rows = bought(run, "soft")
    assert len(rows) >= DRAWN_FIRST
    assert {(row["price"], row["labeler"]) for row in rows} == {(0, f"hf:{SAMPLE}")}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"labeler": None, "labelers": "openai:m,anna"}, "openai:MODEL,people or hf:DIR,people"),
        ({"labeler": None, "labelers": "oracle,people"}, "openai:MODEL,people or hf:DIR,people"),
        ({"labeler": "file", "labelers": "openai:,people"}, "needs a model and its server"),
        ({"labeler": "oracle", "labelers": "openai:m,people"}, "give one of them"),
        ({"labeler": lambda _: 0, "labelers": "openai:m,people"}, "so does labeler="),
        ({"price": None, "budget": 40}, "give the --price of people's"),
        ({"shots": 2}, "leave it out beside people"),
        ({"budget": "$20"}, "people label 25 items first"),
        ({"mode": "stream"}, "labelers needs a pool of texts"),
        ({"allow_send": None}, "of up to 120 of 120 items"),
        ({"model_labels": "said.csv"}, "exclude each other"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with serving(good) as server:
        with pytest.raises(SettingsError, match=sentence):
            begin(server, tmp_path, **settings)
        assert not server.bodies
    assert not (tmp_path / "run").exists()


def test_one_request_can_be_shown(tmp_path: Path) -> None:
    from stacksl.api.planning import prepare
    from stacksl.cli.verbs.run import plan_facts

    settings = {"labelers": "openai:m,people", "url": "http://127.0.0.1:9/v1", "price": "1"}
    texts = [text(n) for n in range(COUNT)]
    plan = prepare(texts, classes=list(TOPICS), settings={**settings, "budget": "$60"})
    body = plan_facts(plan)["request"]["body"]
    assert sorted(options_of(body)) == sorted(TOPICS)


@pytest.mark.parametrize(
    ("money", "prices", "labels"),
    [
        (200, {}, 200),  # a local model costs nothing
        (200, PRICED, 199),  # 40 items, 0.8 cents each
        (20, {"input_price": "1000", "output_price": "2000"}, 10),  # 40 items, 80 cents each
    ],
)
def test_the_audit_is_sized_by_the_money_that_people_are_sure_of(
    money: int, prices: dict[str, str], labels: int
) -> None:
    given = {"labeler": "openai:m,people", "url": "http://127.0.0.1:9", "price": "1", **prices}
    items = [Item(str(n), "x", tuple(TOPICS)) for n in range(40)]
    budget = Budget(money, money * 1_000_000, 1_000_000)
    settings = resolve(given).settings
    assert people_labels(settings, budget, items) == labels
