"""The story that `make demo-people` plays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import demo_people
finally:
    sys.path.remove(str(ROOT / "scripts"))


@pytest.mark.slow
def test_two_annotators_answer_until_the_run_has_finished(tmp_path: Path) -> None:
    desk = demo_people.play(tmp_path)
    state = desk.asks(f"stacksl status {demo_people.RUN}")
    assert (state["state"], state["asked"]) == ("finished", 200 - 50 - 20)
    assert 180 < state["spent"] <= 200, "what the second look did not need is left"
    facts = json.loads((tmp_path / demo_people.RUN / "facts.json").read_text())
    assert facts["audit"]["n"] == 50
    assert facts["audit"]["second"] is not None
    assert desk.typed[-1].printed.startswith("Accuracy")
