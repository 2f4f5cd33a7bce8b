"""Answers and errors in the shapes that real servers were seen to send; texts are of the tests.

Played against llama.cpp b10434 (`llama-server`, the model of this package and stories260K as GGUF)
and vLLM 0.32.0 (CPU, the model of this package).
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacksl.labelers.chat.labeler import FIRST, UNNAMED
from stacksl.labelers.chat.prompts import SPACE, THOUGHT, position_of
from stacksl.labelers.chat.prompts import completion as read

from .chat_server import Behavior, Handler, completion, letter_of, right, serving, wanted_of
from .hostile_cases import FREE, NAMES, begin, expect_books, once, says

TOO_LONG = {
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "request (900 tokens) exceeds the available context size (512 tokens)",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 900,
            "n_ctx": 512,
        }
    },
    "names the limit": {
        "error": {
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 8. This model's"
            " maximum context length is 512 tokens and the request has 900",
            "type": "BadRequestError",
            "param": "max_tokens",
            "code": 400,
        }
    },
    "by its code": {"error": {"message": "no", "code": "context_length_exceeded"}},
}


def refuses(payload: bytes) -> Behavior:
    return lambda handler, body, number: handler.send(400, payload)


@pytest.mark.parametrize("shape", TOO_LONG.values(), ids=TOO_LONG)
def test_an_item_longer_than_the_context_is_broken_and_no_other(
    shape: dict[str, Any], tmp_path: Path
) -> None:
    short = refuses(json.dumps(shape).encode())
    with serving(once(short, 1)) as server:
        run = begin(server, tmp_path / "run")
        bodies = server.bodies
    assert run.status()["state"] == "finished"
    assert expect_books(run) == {"broken": 1, "label": 5}
    assert len(bodies) == 6
    for body in bodies:  # neither the schema nor the limit is given up for it
        assert "response_format" in body
        assert body["max_tokens"] == 8 + SPACE


def test_a_server_whose_context_is_too_short_for_all_is_left_alone(tmp_path: Path) -> None:
    with serving(refuses(json.dumps(TOO_LONG["llama.cpp"]).encode())) as server:
        run = begin(server, tmp_path / "run", budget=12)
        assert len(server.bodies) == UNNAMED
    status = run.status()
    assert status["state"] == "waiting"
    assert "longer than the model's context" in status["sheets"][0]["why"]
    assert expect_books(run)["broken"] == UNNAMED


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_server_that_fails_at_a_schema_is_asked_without_one(at_once: int, tmp_path: Path) -> None:
    def without_schema(handler: Handler, body: dict[str, Any], number: int) -> None:
        if "response_format" in body:
            handler.send(500, b'{"error": {"message": "failed to parse grammar"}}')
        else:
            right(handler, body, number)

    with serving(without_schema) as server:
        run = begin(server, tmp_path / "run", **{"server.concurrency": at_once})
        schema = ["response_format" in body for body in server.bodies]
    assert run.status()["state"] == "finished"
    assert sum(schema) <= at_once
    assert schema.count(False) == 6
    assert expect_books(run) == {"label": 6}


def test_a_refused_item_does_not_take_a_way_from_the_others(tmp_path: Path) -> None:
    filtered = refuses(b'{"error": {"message": "filtered", "code": "content_filter"}}')
    with serving(once(filtered, 2, 3)) as server:  # the second, by the schema and without
        run = begin(server, tmp_path / "run")
        schema = ["response_format" in body for body in server.bodies]
    assert schema == [True, True, False, True, True, True, True]
    assert expect_books(run) == {"broken": 1, "label": 5}


SHOWN = ["class1", "class12", "red", "red wine"]


@pytest.mark.parametrize(
    ("said", "ended", "way", "place"),
    [
        ('{ "answer" :\n\n       "class12" }', "stop", "text", 1),
        ('{"answer"\n\n : "class12"\n\n        ', "length", "text", 1),  # blanks up to the end
        ('{"answer"\n\n : "class1', "length", "text", None),  # it may be class12
        ('{"answer" :\n\n          ', "length", "schema", None),
        ('{"answer": "B"', "length", "schema", 1),
        ('```json\n{"answer": "red"}\n```', "stop", "schema", 2),
        ("class1", "length", "text", None),
        ("class1", "stop", "text", 0),
        ("I would say red wi", "length", "text", None),
        ("I would say class12, for", "length", "text", None),
        ("clas12", "length", "text", None),
        ("clas12", "stop", "text", 1),
        ("The answer is A", "length", "letter", None),  # it may be an article
        ("A", "length", "letter", None),
        ("B) class12 is", "length", "letter", None),  # a template may have opened a thought
        ("<think>A?</think>B", "length", "letter", None),
        ('{"answer": "B"}\n\nThe answer A', "length", "letter", 1),
        ('Maybe {"answer": "B"}? Or', "length", "letter", None),
        ('{"reason": "the answer: \'A\' is', "length", "schema", None),
    ],
)
def test_an_answer_that_was_cut_short_is_not_guessed(
    said: str, ended: str, way: Any, place: int | None
) -> None:
    found = read(completion(said, ended=ended))
    many = [*SHOWN, *(f"other {n}" for n in range(30))]  # too many for letters
    assert position_of(found, many if way == "text" else SHOWN) == place


# Models that think, and models that do not read ---------------------------------------------------


def thinks(handler: Handler, body: dict[str, Any], number: int, kind: str = "tagged") -> None:
    """A model that thinks about the wrong options first, in so many tokens as it may have.

    The thought is in the reply between two tags, or its template has `opened` it; or it is in a
    place of its own (`apart`), a part of the content (`parts`), or `hidden`, as where a server also
    wants another limit.
    """
    letter = letter_of(body, wanted_of(body))
    thought = f"The answer is {'ABC'.replace(letter, '')[0]}. Or is it?"
    if kind == "hidden" and "max_tokens" in body:
        refusal = {"message": "Unsupported parameter: use another one", "param": "max_tokens"}
        return handler.send(400, json.dumps({"error": refusal}).encode())
    short = body.get("max_tokens", body.get("max_completion_tokens", 0)) < 1000
    if kind == "hidden":
        said, more = (None if short else letter), {}
    elif kind == "opened":
        said, more = thought + ("" if short else f"</think>{letter}"), {}
    elif kind == "apart":
        said, more = (None if short else letter), {"reasoning_content": thought}
    elif kind == "parts":
        said, more = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}], {}
        said += [] if short else [{"type": "text", "text": letter}]
    else:
        said, more = f"<think>{thought}" + ("" if short else f"</think>{letter}"), {}
    handler.send(200, completion(said, ended="length" if short else "stop", **more))


@pytest.mark.parametrize("kind", ["tagged", "opened", "apart", "parts", "hidden"])
def test_a_model_that_thinks_gets_room_and_its_thoughts_are_not_read(kind: str, tmp_path) -> None:
    with serving(partial(thinks, kind=kind)) as server:
        run = begin(server, tmp_path / "run", **FREE)
        limits = [body for body in server.bodies if kind != "hidden" or "max_tokens" not in body]
    name = "max_completion_tokens" if kind == "hidden" else "max_tokens"
    assert [body[name] for body in limits] == [8 + SPACE, *[THOUGHT] * 6]
    assert run.status()["state"] == "finished"
    for row in run.labels().rows:
        assert row["label"] == NAMES[(int(row["item"][4:]) - 1) % 3]


@pytest.mark.parametrize("kind", ["tagged", "opened", "hidden"])
def test_a_label_whose_price_has_no_room_for_a_thought_is_a_sentence(kind: str, tmp_path) -> None:
    with serving(partial(thinks, kind=kind)) as server:
        run = begin(server, tmp_path / "run")
        asked = 1 + (kind == "hidden")
        assert len(server.bodies) == asked
        why = run.status()["sheets"][0]["why"]
        run.resume()
        assert len(server.bodies) == asked
    assert expect_books(run).keys() == {"open"}
    assert f"--set server.answer_tokens={THOUGHT}" in why
    prices = re.search(r"may cost \$([\d.]+), and a label has \$([\d.]+) reserved", why)
    assert prices is not None
    assert Decimal(prices[1]) > Decimal(prices[2])


def test_a_model_that_seldom_thinks_loses_that_label_and_not_the_run(tmp_path: Path) -> None:
    with serving(once(thinks, 3, 4)) as server:
        run = begin(server, tmp_path / "run")
        assert len(server.bodies) == 6
    assert expect_books(run) == {"label": 4, "broken": 2}
    status = run.status()
    assert status["state"] == "finished"
    assert sum("raise server.answer_tokens" in warning for warning in status["warnings"]) == 1


@pytest.mark.parametrize("ended", [None, "stop"])
def test_a_thought_without_an_end_gets_room_whatever_the_server_says(
    ended: Any, tmp_path: Path
) -> None:
    with serving(says("<think>The answer is A.", ended=ended)) as server:
        run = begin(server, tmp_path / "run", **FREE)
        lengths = [body["max_tokens"] for body in server.bodies]
    assert lengths == [8 + SPACE, *[THOUGHT] * UNNAMED]
    assert f"raise server.answer_tokens above {THOUGHT}" in run.status()["sheets"][0]["why"]


@pytest.mark.parametrize(
    ("price", "books"), [("2", {"label": 6}), ("0.885", {"label": 5, "broken": 1})]
)
def test_a_larger_price_has_room_for_a_thought_and_else_the_setting_is_named(
    price: str, books: dict[str, int], tmp_path: Path
) -> None:
    """Of the second price the call that was cut leaves too little for a further one."""
    with serving(thinks) as server:
        run = begin(server, tmp_path / "run", price=price)
        lengths = [body["max_tokens"] for body in server.bodies]
    assert lengths == [8 + SPACE, *[THOUGHT] * books["label"]]
    assert run.status()["state"] == "finished"
    assert expect_books(run) == books
    named = any("raise server.answer_tokens" in each for each in run.status()["warnings"])
    assert named is ("broken" in books)


def test_a_thought_cut_at_the_users_limit_is_broken_and_says_so(tmp_path: Path) -> None:
    with serving(thinks) as server:
        run = begin(server, tmp_path / "run", **{"server.answer_tokens": 50}, budget=12)
        assert len(server.bodies) == UNNAMED
    assert "it was cut, raise server.answer_tokens above 50" in run.status()["sheets"][0]["why"]


@pytest.mark.parametrize(
    ("said", "state", "told"),
    [
        ("first", "waiting", "named the option at place 1"),
        ("seldom", "waiting", "named no option"),
        ("red", "finished", "named one class"),
        ("right", "finished", None),
    ],
)
def test_nonsense_pauses_a_run_and_one_class_warns(
    said: str, state: str, told: str | None, tmp_path: Path
) -> None:
    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        words = {"first": "A", "seldom": "?" if number % 2 else "B", "red": letter_of(body, "red")}
        letter = words.get(said) or letter_of(body, wanted_of(body))
        handler.send(200, completion(f'{{"answer": "{letter}"}}'))

    with serving(behave) as server:
        run = begin(server, tmp_path / "run", budget=24)
        status = run.status()
        assert status["state"] == state
        assert len(server.bodies) == (FIRST if state == "waiting" else 24)
        if state == "waiting":
            assert told in status["sheets"][0]["why"]
            run.resume()
            assert run.status()["state"] == "finished"
            assert len(server.bodies) == 24
        else:
            assert any("named one class" in each for each in status["warnings"]) == bool(told)
