"""Is a pool's default ever below class names alone, or below random labels?

Sets of fixed classes, split and drawn as `stacksl-lab compare` does: a fifth of the rows, drawn by
seed 0, is tested on; each seed draws a pool of the others. `coverage` is the default of
`stacksl run`, `random` the same final model on random labels, `names` that model without a label.

    python benchmarks/floors.py --data $STACKSL_DATA --json benchmarks/results/floors.json
    python benchmarks/floors.py --from benchmarks/results/floors.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from label_efficiency import interval
from plan_scenarios import dataset, rows_of

from stacksl.core.threads import one_thread
from stacksl.runs.loop.head_fitting import Component, Kind, Source, make_final
from stacksl.runs.settings.resolve import resolve
from stacksl.version import __version__
from stacksl_lab.pools.arena import Arena, make_arena
from stacksl_lab.pools.strategies import COVERAGE, PRODUCT, RANDOM, measure

SETS = [
    ("sample", "hashing"),
    ("sample", "sentences:minilm"),
    ("medquad", "hashing"),
    ("medquad", "sentences:minilm"),
    ("exams", "hashing"),
]
BUDGETS = (25, 75, 150, 300)
POOL = 1_000  # rows, or four fifths of those that are not tested on

Row = dict[str, Any]


def arena_of(source: str, features: str, data: Path) -> Arena:
    """The set as `stacksl-lab compare` would split it."""
    rows = rows_of(source, data)
    whole = dataset(rows, np.arange(len(rows)), rows[0][1])
    size = min(POOL, round(0.8 * 0.8 * len(rows)))
    return make_arena(whole, None, resolve({"features": features}).settings, size, BUDGETS[-1])[0]


def names_alone(arena: Arena, seed: int, kind: Kind = "names") -> float:
    """The test accuracy of the final model without a label."""
    pool = arena.pool(seed)
    none = np.zeros(0, dtype=np.int64)
    source = Source(pool.block, pool.names, frozenset(), seed)
    head, _ = make_final(source, none, none, (Component(kind),))
    said = np.argmax(np.asarray(head.probabilities(arena.test)), axis=1)
    return float((said == arena.test_gold).mean())


def measured(source: str, features: str, arena: Arena, seed: int) -> list[Row]:
    """A row for each budget."""
    with one_thread():
        names = names_alone(arena, seed)
        ours, other = (measure(arena, each, seed, BUDGETS)[0] for each in (COVERAGE, RANDOM))
    about = {"set": source, "features": features, "seed": seed, "pool": arena.size}
    about |= {"classes": arena.about["classes"], "n_test": len(arena.test_gold), "names": names}
    return [
        {**about, "labels": n, "ours": ours[f"{PRODUCT}@{n}"], "random": other[f"{PRODUCT}@{n}"]}
        for n in BUDGETS
    ]


def table(rows: list[Row]) -> str:
    """Means over seeds, and the default's paired gains with 95 % t-intervals."""
    lines = [
        "| items | classes | labels | names alone | random | default | over names | over random |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for source, features in SETS:
        for labels in BUDGETS:
            cell = [r for r in rows if (r["set"], r["features"]) == (source, features)]
            cell = [r for r in cell if r["labels"] == labels]
            if not cell:
                continue
            means = [
                f"{np.mean([r[each] for r in cell]):.3f}" for each in ("names", "random", "ours")
            ]
            gains = [
                "{:+.3f} ± {:.3f}".format(*interval([r["ours"] - r[each] for r in cell]))
                for each in ("names", "random")
            ]
            shown = (f"{source}, `{features}`", str(cell[0]["classes"]), str(labels))
            lines.append(f"| {' | '.join((*shown, *means, *gains))} |")
    return "\n".join(lines)


def run(data: Path, file: Path | None, seeds: int) -> list[Row]:
    """Measure what the file does not hold yet."""
    rows: list[Row] = []
    if file is not None and file.exists():
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    done = {(r["set"], r["features"], r["seed"]) for r in rows}
    for source, features in SETS:
        todo = [seed for seed in range(seeds) if (source, features, seed) not in done]
        arena = arena_of(source, features, data) if todo else None
        for seed in todo:
            assert arena is not None
            rows += measured(source, features, arena, seed)
            print(f"{source}, {features}, seed {seed}", file=sys.stderr)
            if file is not None:
                text = json.dumps({"version": __version__, "rows": rows}, indent=1)
                file.write_text(text + "\n", encoding="utf-8")
    return rows


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source is not None:
        print(table(json.loads(words.source.read_text(encoding="utf-8"))["rows"]))
    elif words.data is not None:
        print(table(run(words.data, words.json, words.seeds)))
    else:
        parser.error("give --data DIR or --from FILE")


if __name__ == "__main__":
    main()
