"""A model beside people that does not answer: the run says so, and goes on without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.cli.entry import call
from stacksl.cli.verbs.ls import _labels
from stacksl.errors import SettingsError
from stacksl.labelers.chat import labeler as chat
from stacksl.runs.loop.choosers import DRAWN_FIRST

from .beside_cases import CALL, begin, bought, expect_books, filled, good, play
from .chat_server import Handler, serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "FIRST_PAUSE", 0.01)


@pytest.mark.parametrize("by", ["refused", "lost"])
def test_a_run_goes_on_without_a_model_that_does_not_answer(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """People get all labels that are left; a call that may have been billed is charged."""

    def dies(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number < 4:
            good(handler, body, number)
        else:
            handler.send(401 if by == "refused" else 500)

    with serving(dies) as server:
        run = begin(server, tmp_path, concurrency=1)
        while not (books := expect_books(run))["soft open"]:
            run.answer(*filled(run))
        why = str(run.status()["sheets"])
        assert "the model does not answer since 2" in why
        assert call(["status", str(run.path)]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "the model does not answer since 2" in told
        calls = len(server.bodies)
        with pytest.raises(SettingsError, match="has --labelers 'openai:m,people' or 'people'"):
            run.resume(settings={"labelers": "openai:other,people"})
        assert call(["resume", str(run.path), "--set", "labelers=people"]) == 0
        books = expect_books(run)
        assert books["soft open"] == 0
        assert books["soft answered"] == (3 if by == "refused" else 5)
        paid = [row["price"] for row in bought(run, "soft") if row["said"] == "broken"]
        if by == "refused":
            assert not paid
        else:  # two lost calls, then one, each at the most it may cost
            assert paid[0] == 2 * paid[1] > 4 * CALL
        run = play(run)
        assert len(server.bodies) == calls
    assert run.status()["state"] == "finished"
    assert expect_books(run)["train answered"] >= 38
    assert any("is asked no more" in each for each in run.status()["warnings"])
    run.replay()


def test_what_is_left_is_what_the_money_pays(tmp_path: Path) -> None:
    with serving(good) as server:
        run = play(begin(server, tmp_path))
    status = run.status()
    with run.ledger as ledger:
        assert ledger.left == 0 < ledger.budget - ledger.spent
    assert (status["left"], status["budget"] - status["spent"]) == (0, 1)
    assert ", 0 left ($0.8827 at $1.00 a label)" in _labels(status)


def test_a_model_that_was_left_is_asked_again(tmp_path: Path) -> None:
    with serving(lambda handler, body, _: handler.send(401)) as server:
        run = begin(server, tmp_path, concurrency=1)
        while not expect_books(run)["soft open"]:
            run.answer(*filled(run))
        run.resume(settings={"labelers": "people"})
        assert expect_books(run)["soft released"] == DRAWN_FIRST
        server.behave = good
        run = play(run.resume(settings={"labelers": "openai:m,people"}))
        books = expect_books(run)
        assert books["soft released"] == DRAWN_FIRST  # a label is asked for once
        assert run.status()["state"] == "finished"
    run.replay()
