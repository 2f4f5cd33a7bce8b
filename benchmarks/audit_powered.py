"""How much narrower the model's own probabilities make an audit's interval, and whether it holds.

Final models of 12 to 600 labels answer rows that were kept from them. An audit, and the rows that a
run sets aside next to it, are drawn from these 1,000 times. Next to the product's interval stand
Wilson's, of the audit alone, and that of ppi-python (PPI++), where it is installed. `over` is the
share of redraws whose low end lies above the truth, `width` the mean width in Wilson's. Two sets
are changed so that accuracies from .5 to .99 are among them: the titles have names that say
nothing, and Snips has three classes.

    pip install ppi-python
    python benchmarks/audit_powered.py --data $STACKSL_DATA --json powered.json
    python benchmarks/audit_powered.py --from powered.json
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _rows import read, words_of, write
from _variants import coded
from plan_scenarios import DEFAULT, Row, dataset, rows_of

from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.models.audit import powered
from stacksl.models.metrics import Powers, wilson
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools import ours
from stacksl_lab.pools.arena import make_arena
from stacksl_lab.pools.strategies import COVERAGE

CODED, THREE = "stackoverflow_titles, codes", "snips, three classes"
SETS = ("banking77", "snips", "stackoverflow_titles", "medquad", CODED, THREE)
LABELS = (12, 50, 150, 600)
SIZES = (20, 50, 100, 200)
POOL, KEPT, REFERENCE = 1_400, 3_000, 500
REDRAWS, OF_PEER = 1_000, 200  # ppi-python takes longer

Model = tuple[np.ndarray, np.ndarray]
"""Which of the rows kept a model has right, and its probabilities of its answers."""


def rows_in(name: str, data: Path) -> list[Row]:
    """The rows of a set, changed as its name says."""
    rows = rows_of(name.split(",")[0], data)
    if name == CODED:
        return coded(rows)
    if name == THREE:
        return [(text, names[:3], label) for text, names, label in rows if label < 3]
    return rows


def models(name: str, data: Path) -> Iterator[Model]:
    """The final models of a set, each judged on half of its rows, at most 3,000."""
    rows = rows_in(name, data)
    order = generator(0, "powered").permutation(len(rows))
    cut = min(len(rows) // 2, KEPT)
    kept, rest = (
        dataset(rows, part, rows[0][1]) for part in (order[:cut], order[cut : cut + 1500])
    )
    settings = resolve({"features": DEFAULT}).settings
    arena, _ = make_arena(rest, kept, settings, min(POOL, len(rest.items)), LABELS[-1])
    pool = arena.pool(0)
    bought = np.array(ours.bought(pool, COVERAGE, LABELS[-1]))
    source = Source(pool.block, pool.names, frozenset(), 0)
    for count in LABELS:
        head, _ = make_final(source, bought[:count], pool.gold[bought[:count]])
        found = np.asarray(head.probabilities(arena.test))
        yield (found.argmax(axis=1) == arena.test_gold).astype(float), found.max(axis=1)


def redrawn(model: Model, size: int) -> dict[str, float]:
    """Coverage, overstatement and width of each interval over redraws."""
    right, sure = model
    rng, truth = generator(size, "powered/redraws"), float(right.mean())
    held: dict[str, list[tuple[bool, bool, float]]] = {"wilson": [], "powered": [], "peer": []}
    beside = min(REFERENCE, len(right) // 3)
    for number in range(REDRAWS):
        drawn = rng.integers(len(right), size=size + beside)
        audit, rest = drawn[:size], drawn[size:]
        ends = {"wilson": wilson(int(right[audit].sum()), size)}
        known = np.ones(size, dtype=bool)
        ends["powered"] = powered(right[audit], known, Powers(sure[audit], sure[rest]))[1:]
        if number < OF_PEER and find_spec("ppi_py"):
            from ppi_py import ppi_mean_ci

            low, high = ppi_mean_ci(right[audit], sure[audit], sure[rest], alpha=0.05)
            ends["peer"] = float(np.squeeze(low)), float(np.squeeze(high))
        for each, (low, high) in ends.items():
            held[each].append((low <= truth <= high, low > truth, high - low))
    return {
        f"{each} {what}": float(np.mean([row[at] for row in rows]))
        for each, rows in held.items()
        if rows
        for at, what in enumerate(("holds", "over", "width"))
    }


def run(data: Path) -> list[dict[str, Any]]:
    """A row for each model and size of audit."""
    rows = []
    with one_thread():
        made = [(name, model) for name in SETS for model in models(name, data)]
    for size in SIZES:
        for number, (name, model) in enumerate(made):
            about = {"audit": size, "set": name, "labels": LABELS[number % len(LABELS)]}
            rows.append({**about, "accuracy": float(model[0].mean()), **redrawn(model, size)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each size of audit: means over models."""
    lines = [
        "| audited items | accuracies | Wilson covers | over | this covers | least | over | width"
        " | PPI++ covers | width |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        cells = [row for row in rows if row["audit"] == size]

        def mean(name: str, cells: list[dict[str, Any]] = cells) -> float:
            return float(np.mean([cell.get(name, np.nan) for cell in cells]))

        shares = [cell["accuracy"] for cell in cells]
        widths = [mean(f"{each} width") / mean("wilson width") for each in ("powered", "peer")]
        shown = [mean("wilson holds"), mean("wilson over"), mean("powered holds")]
        shown += [min(cell["powered holds"] for cell in cells), mean("powered over"), widths[0]]
        shown += [mean("peer holds"), widths[1]]
        numbers = " | ".join(f"{each:.3f}" for each in shown)
        lines.append(f"| {size} | {min(shares):.2f} to {max(shares):.2f} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    """Measure or show; see the module's text."""
    words = words_of(__doc__, "--data", "--json", "--from")
    rows = read(words.source) if words.source else run(words.data)
    if words.json is not None:
        write(words.json, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
