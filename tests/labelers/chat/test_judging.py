"""A model with prices is judged by labels that are owned; the labels that it gives pay for that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.cli.entry import call
from stacksl.labelers.chat.calls import Calls, read_calls
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.session.model_labels import JUDGED, LEAST_KNOWN
from stacksl.runs.storage.folder import RunFolder

from ...ledgers import accounts_of
from .chat_server import Behavior, Handler, Server, completion, letter_of, right, serving, wanted_of
from .hostile_cases import NAMES, PRICED, SINGLY, expect_books, once, says, status


def begin_free(server: Server, folder: Path, **given: Any) -> stacksl.Run:
    """6 labels without a price of 24 items next to 40 owned ones."""
    settings = {"server.url": server.url, "server.allow_send": True, **SINGLY, "budget": 6, **given}
    data = settings.pop("data", [f"text {n} of {NAMES[n % 3]} and w{n % 5}" for n in range(24)])
    return stacksl.run(data, labeler="openai:m", out=folder / "run", **settings)


def begin(server: Server, folder: Path, **settings: Any) -> stacksl.Run:
    """48 labels of 60 texts, ten open at a time, next to 40 that are owned."""
    owned = folder / "owned.csv"
    rows = [f"owned {n} of {NAMES[n % 3]},{NAMES[n % 3]}\n" for n in range(40)]
    owned.write_text("text,label\n" + "".join(rows))
    texts = [f"text {n} of {NAMES[n % 3]}" for n in range(60)]
    given: dict[str, Any] = {"data": texts, "classes": NAMES, "owned": str(owned), "budget": 48}
    return begin_free(server, folder, **{**given, "open_questions": 10, **PRICED, **settings})


def wrong(handler: Handler, body: dict[str, Any], number: int) -> None:
    """Name another class than the text's."""
    other = NAMES[(NAMES.index(wanted_of(body)) + 1) % 3]
    handler.send(200, completion(f'{{"answer": "{letter_of(body, other)}"}}'))


def about_owned(server: Server) -> int:
    return sum("owned " in body["messages"][0]["content"] for body in server.bodies)


def test_a_model_that_agrees_with_no_label_pauses_the_run(tmp_path: Path) -> None:
    with serving(wrong) as server:
        run = begin(server, tmp_path)
        assert about_owned(server) == LEAST_KNOWN
        assert len(server.bodies) == LEAST_KNOWN + 20  # ten labels a turn pay for ten questions
        shown = run.status()
        assert shown["state"] == "waiting"
        assert "it agrees with 0 of 30 labels that you own" in shown["sheets"][0]["why"]
        expect_books(run)
        run.resume()
        assert len(server.bodies) == LEAST_KNOWN + 48
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"label": 40 + 48}


def test_a_model_that_agrees_goes_on_and_is_charged_for_all_calls(tmp_path: Path) -> None:
    with serving(right) as server:
        run = begin(server, tmp_path)
        assert len(server.bodies) == LEAST_KNOWN + 48
    assert run.status()["state"] == "finished"
    expect_books(run)
    assert RunFolder(run.path).resolved()[JUDGED] == LEAST_KNOWN
    rows = read_calls(run.path / "run.db")
    paid = [row for row in run.labels().rows if row["purpose"] == "train"]
    assert sum(row["cost"] for row in rows if "cost" in row) == round(
        1e6 * sum(row["price"] for row in paid)
    )


def owned_classes(folder: Path) -> dict[str, Any]:
    names = ["green"] * 20 + ["red"] * 10 + ["blue"] * 10
    rows = [f"owned {n} of {name} and z{n},{name}\n" for n, name in enumerate(names)]
    (owned := folder / "owned.csv").write_text("text,label\n" + "".join(rows))
    return {"owned": str(owned), "classes": NAMES}


def owned_options(folder: Path) -> dict[str, Any]:
    """Each item has four options of its own."""

    def write(word: str, count: int) -> str:
        rows = [
            {"question": f"{word} {n} of {NAMES[n % 3]}", "options": [*NAMES, f"other{n}"]}
            | {"answer": n % 3}
            for n in range(count)
        ]
        (path := folder / f"{word}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return str(path)

    return {"data": write("text", 20), "owned": write("owned", 40)}


@pytest.mark.parametrize(
    ("owned", "else_is"),
    [
        (owned_classes, "one class for every item would agree with 50%"),
        (owned_options, "a guess would agree with 25%"),
    ],
)
def test_a_model_without_prices_that_is_worse_than_a_guess_is_left_alone(
    owned: Callable[[Path], dict[str, Any]], else_is: str, tmp_path: Path
) -> None:
    """Judged before any label is bought; `resume` goes on, and a good model is not stopped."""
    for behave, asked, state in ((wrong, 40, "waiting"), (right, 46, "finished")):
        (folder := tmp_path / state).mkdir()
        with serving(behave) as server:
            run = begin_free(server, folder, **owned(folder))
            assert run.status()["state"] == state
            assert len(server.bodies) == asked
            if state == "waiting":
                why = run.status()["sheets"][0]["why"]
                assert "0 of 40 labels that you own (95% interval: at most 9%)" in why
                assert else_is in why
                assert run.resume().status()["state"] == "finished"
                assert len(server.bodies) == 46


@pytest.mark.parametrize("said", [wrong, says('{"answer": "none of them"}')])
def test_a_check_by_owned_labels_that_was_cut_off_is_made_before_any_label_is_bought(
    said: Behavior, tmp_path: Path
) -> None:
    def limited(handler: Handler, body: dict[str, Any], number: int) -> None:
        (said if number <= 10 else status(429, Retry_After="3600"))(handler, body, number)

    with serving(limited) as server:
        run = begin_free(server, tmp_path, **owned_classes(tmp_path))
        assert run.status()["state"] == "waiting"
        server.behave, before = said, len(server.bodies)
        assert run.resume().status()["state"] == "waiting"
        assert "0 of 40 labels that you own" in run.status()["sheets"][0]["why"]
        asked = [body["messages"][0]["content"] for body in server.bodies]
        assert all("owned " in each for each in asked)
        if said is wrong:
            assert len(asked) - before == 30, "the ten answers are kept"
        server.behave = right
        assert run.resume().status()["state"] == "finished"


@pytest.mark.parametrize("lost", [1, 2, 9])
def test_lost_calls_are_charged_and_count_for_nothing(lost: int, tmp_path: Path) -> None:
    """Three in a row stop the session; the next one goes on where it was, with the same payers."""
    with serving(once(status(500), *range(5, 5 + lost))) as server:
        run = begin(server, tmp_path)
        for _ in range(6):
            expect_books(run)
            if run.status()["state"] == "finished":
                break
            run.resume()
    assert run.status()["state"] == "finished"
    assert RunFolder(run.path).resolved()[JUDGED] == LEAST_KNOWN
    assert about_owned(server) <= LEAST_KNOWN + lost


def test_a_price_with_room_for_one_call_leaves_the_model_unjudged(tmp_path: Path) -> None:
    with serving(wrong) as server:
        run = begin(server, tmp_path, price="0.08")
        assert about_owned(server) == 0
        assert len(server.bodies) == 48
    assert run.status()["state"] == "finished"
    assert expect_books(run)["broken"] == 0


@pytest.mark.parametrize("whose", ["owned", "payer"])
def test_a_forgotten_item_leaves_the_calls_of_both(whose: str, tmp_path: Path) -> None:
    """What an open label has to pay stays; the text and the id of the forgotten item do not."""
    with serving(once(status(500), *range(5, 10))) as server:
        run = begin(server, tmp_path)
        file = run.path / "run.db"
        first = next(row for row in read_calls(file) if "payer" in row)
        item = first["item"] if whose == "owned" else first["payer"][0]
        text = next(
            line
            for line in first["request"]["messages"][0]["content"].split("\n")
            if line.startswith("owned")
        )
        cost = Calls(file).cost(*first["payer"])
        assert cost > 0
        forget(run.path, item)
        left = json.dumps(read_calls(file))
        assert f'"{item}"' not in left
        assert text not in left
        if whose == "owned":
            expect_books(run)
            assert Calls(file).cost(*first["payer"]) == cost
        else:
            assert accounts_of(run).paid == cost
        run.resume()
        assert run.status()["state"] == "finished"
        assert call(["ledger", "verify", str(run.path)]) == 0
