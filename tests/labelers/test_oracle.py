"""The labeler of a file's own answers."""

from __future__ import annotations

import pytest

from stacksl.errors import LabelerError
from stacksl.labelers.registry import OracleLabeler


def test_items_without_an_answer_are_counted_as_elsewhere() -> None:
    sizes = {f"i{n}": 2 for n in range(1_200)}
    with pytest.raises(LabelerError, match=r"none for 1,199 of 1,200 items \(the first is 'i1'\)"):
        OracleLabeler({"i0": 1}, sizes)
