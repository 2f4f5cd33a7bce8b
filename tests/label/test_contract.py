"""The page against the forms of its requests (schemathesis): whatever is sent, and no 5xx."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis.openapi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from stacksl.label.app import make_app
from stacksl.label.site import OWNER, Site, csrf_of

from ..ledgers import verify
from .conftest import HERE, Opened, Page


def fuzz(page: Page, who: str, examples: int) -> dict[str, set[int]]:
    """Send `examples` requests of each operation as `who`; the statuses of each path.

    Every second answer is about a question that is open.
    """
    site = Site(page.player, page.access, {"127.0.0.1"})
    app = make_app(site)
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    seen: dict[str, set[int]] = {}

    def play(operation: Any) -> None:
        headers = {"Origin": HERE}
        if who:
            token = page.access.exchange(page.access.link(who)) or ""
            headers |= {"Cookie": f"{site.cookie}={token}", "X-CSRF-Token": csrf_of(token)}

        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(), real=st.booleans())
        def send(case: Any, real: bool) -> None:
            rows = page.player.view.rows.get("anna", ())
            if real and rows and isinstance(case.body, dict) and "key" in case.body:
                case.body["key"] = rows[0].key
            reply = case.call(base_url=HERE, headers=headers)
            case.validate_response(reply, checks=[not_a_server_error])
            seen.setdefault(operation.path, set()).add(reply.status_code)

        send()

    for each in schema.get_all_operations():
        play(each.ok())
    return seen


@pytest.mark.parametrize("examples", [4, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("who", ["", "anna", OWNER])
def test_whatever_is_sent_is_answered(opened: Opened, who: str, examples: int) -> None:
    page = opened(count=120, budget=100, open_questions=40, audit=4)
    seen = fuzz(page, who, examples)
    assert set(seen) >= {"/", "/rows", "/answer", "/enter", "/leave", "/web/{name}"}
    assert seen["/rows"] == ({200} if who else {401})
    assert seen["/answer"] <= ({200, 422} if who == "anna" else {403, 422} if who else {401, 422})
    assert (200 in seen["/answer"]) == (who == "anna")
    assert seen["/sheet"] <= ({422} if who == OWNER else {401, 403, 422})
    assert not page.player.over.is_set()
    verify(page.run)
