"""The page over HTTP: who may see and send what, and what the ledger makes of it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import RunError
from stacksl.label.player import Player

from ..runs.people_cases import answer_all
from .conftest import HERE, Opened, play


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
    with page.run.ledger as ledger:
        answered = {row["labeler"] for row in ledger.export()}
        ledger.verify()
    assert answered == {"anna", "ben"}
    assert "The run has finished" in anna.http.get("/").text
    assert 'data-state="finished"' in anna.http.get("/rows").text
    assert page.run.replay()["labels"] == 20
