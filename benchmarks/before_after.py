"""What a label buys, before and after coverage, the right premise and the fitted temperature.

The table of docs/what-a-label-buys.md, from the records in benchmarks/results/. The numbers
before are those of the package at the commit that `before.json` names, by the same scripts there.

    python benchmarks/before_after.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _rows import interval

RESULTS = Path(__file__).parent / "results"
POOL = "label_efficiency_pool.py"
POOLS = [("shuffled", n) for n in ("100", "150", "300", "500", "1000")]
POOLS += [("rare", "300"), ("rare", "0.1")]
HEADER = "| what | before | now | at random, now | seeds | by |\n|---|---|---|---|---|---|"


def table() -> str:
    """A line for each number, as Markdown."""
    before = record("before")
    lines = (*pools(before["pool"]), *language(before["language model"]), *chosen())
    return "\n".join([HEADER, *(f"| {' | '.join(cells)} |" for cells in lines)])


def pools(before: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    """Banking77, the default next to random labels under the same final model."""
    rows = record("label_efficiency_pool")["rows"]
    for stream, budget in POOLS:
        own = {
            gate: [
                row["accuracy"]
                for row in rows
                if (row["stream"], row["budget"], row["gate"]) == (stream, budget, gate)
                and not row["alone"]
            ]
            for gate in ("coverage", "random")
        }
        labels = "10% of the" if budget == "0.1" else budget
        what = f"Banking77, *{stream}*: accuracy with {labels} labels"
        values = before[f"{stream} {budget}"]
        now, seeds = map(shown, own.values()), f"0-{len(own['random']) - 1}"
        yield what, shown(values), *now, seeds, f"`{POOL}`"


def language(before: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    """The sample model on its test questions: one batch by margin next to one at random."""
    results = record("language_model")
    by = "`language_model.py`"
    base = f"{results['base']['test']:.3f}"
    what = "sample language model: accuracy without a label"
    yield what, shown(before["0"]), base, "", "", by
    for budget in (0.05, 0.1, 0.25, 0.5):
        own = {
            gate: [
                row["accuracy"]
                for row in results["rows"]
                if (row["gate"], row["budget"], row["pilot"], row["settings"])
                == (gate, budget, 0, {})
            ]
            for gate in ("margin", "random")
        }
        what = f"the same with {budget:.0%} of the labels"
        seeds = f"0-{len(own['margin']) - 1}"
        values = [before.get(str(budget), []), own["margin"], own["random"]]
        yield (what, *map(shown, values), seeds, by)


def chosen() -> Iterable[tuple[str, ...]]:
    """The sample model without the scores that are known to suit it, on its test questions."""
    rows = [row for row in record("normalization_choice")["trained"] if row["quarter"] == 0]
    for budget in (0.05, 0.1):
        before, now = (
            [row["accuracy"] for row in rows if (row["way"], row["budget"]) == (way, budget)]
            for way in ("token_mean", "auto")
        )
        what = f"its scores chosen by `auto`, {budget:.0%} of the labels"
        by = "`normalization_choice.py`"
        yield what, f"`token_mean` {shown(before)}", shown(now), "", "0-2", by


def record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def shown(values: list[float]) -> str:
    """Mean and half-width of its 95% interval over seeds, where these differ."""
    if not values:
        return "not measured"
    mean, half = interval(values)
    return f"{mean:.3f}" if max(values) == min(values) else f"{mean:.3f} ± {half:.3f}"


if __name__ == "__main__":
    print(table())
