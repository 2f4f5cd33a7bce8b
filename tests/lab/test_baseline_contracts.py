"""The gates of the laboratory keep the contract of those in the registry."""

from __future__ import annotations

from typing import Any

import pytest

from stacksl import core
from stacksl.core.gates.registry import LLF
from stacksl_lab.baselines.registry import BASELINES, CODES, GATES, make_gate

from ..contracts import test_gates as contract

pytestmark = pytest.mark.parametrize("kind", BASELINES.values(), ids=BASELINES)


def test_it_keeps_the_contract(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(core.GATES, kind.name, kind)
    contract.expect_contract(kind)


def test_it_is_made_by_its_name_and_no_run_has_it(kind: Any) -> None:
    assert make_gate(kind.name) == kind()
    assert kind.name not in core.GATES
    with pytest.raises(ValueError, match=f"'{kind.name}' has no parameter 'color'"):
        make_gate(kind.name, color=1)


def test_its_number_in_compiled_engines_is_its_own(kind: Any) -> None:
    assert set(CODES) == {*GATES.values(), LLF}
    assert [other for other in GATES.values() if CODES[other] == CODES[kind]] == [kind]
