"""Facts of runs that look real, and of runs at the edges, by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stacksl.report.facts import Facts

from .adapted_cases import adapted, adapted_badly
from .audited_cases import audited, audited_and_tested, audited_in_vain
from .edge_cases import bare, hostile, untested
from .usual_cases import usual

CASES: dict[str, Callable[[], Facts]] = {
    "adapted": adapted,
    "adapted_badly": adapted_badly,
    "audited": audited,
    "audited_and_tested": audited_and_tested,
    "audited_in_vain": audited_in_vain,
    "usual": usual,
    "bare": bare,
    "hostile": hostile,
    "untested": untested,
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Facts:
    """Each of the runs in turn."""
    return CASES[request.param]()


@pytest.fixture
def made() -> dict[str, Callable[[], Facts]]:
    """The builders by name: ``made["usual"]()``."""
    return CASES
