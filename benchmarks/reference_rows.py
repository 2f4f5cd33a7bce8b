"""What do the reference rows cost, which make the interval of an audit narrower?

From 2,000 items on a tenth of the pool, 500 rows at most, is drawn at random, never bought, and
left out of the graph of neighbors. Pools of training rows with and without them are labeled by the
default and judged on a fifth of the rows, as in `floors.py`, whose other pools have fewer rows.

    python benchmarks/reference_rows.py --data $STACKSL_DATA --json reference_rows.json
    python benchmarks/reference_rows.py --from benchmarks/results/reference_rows.json
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _rows import Row, read, words_of, write
from floors import Case, difference, judged, split_of
from plan_scenarios import DEFAULT

from stacksl.core.gates.registry import COVERAGE
from stacksl.core.threads import one_thread
from stacksl.models.metrics import reference_size
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl_lab.pools import ours

BUDGETS = (100, 300, 1000)
CASES = (("banking77", "plain"), ("banking77", "rare"), ("stackoverflow_titles", "plain"))
POOL = 7_000  # rows, or four fifths of those that are not tested on


def run(data: Path, seeds: int) -> list[Row]:
    """A row for each case, seed, arm and budget, with the test rows that were right."""
    rows: list[Row] = []
    for name, variant in CASES:
        whole = split_of(Case(name, DEFAULT, variant, POOL), data)
        reference = reference_size(whole.size, max(BUDGETS))
        for seed in range(seeds):
            others = replace(whole, size=whole.size - reference)
            for arm, split in (("all", whole), ("reference", others)):
                pool = split.pool(seed)
                with one_thread():
                    bought = np.array(ours.bought_rows(pool, COVERAGE, max(BUDGETS)))
                    source = Source(pool.block, pool.names, frozenset(), seed)
                    for labels in BUDGETS:
                        some = bought[:labels]
                        head = make_final(source, some, pool.gold[some])[0]
                        right, _ = judged(split, head)
                        rows.append(
                            {"set": name, "variant": variant, "pool": whole.size}
                            | {
                                "reference": reference,
                                "seed": seed,
                                "arm": arm,
                                "labels": labels,
                                "n": len(right),
                            }
                            | {"right": np.packbits(right).tobytes().hex()}
                        )
            print(name, variant, "seed", seed, file=sys.stderr)
    return rows


def table(rows: list[Row]) -> str:
    """Mean accuracies, and the paired difference with its two-sided 90% interval."""
    lines = ["| pool | labels | all rows | without reference rows | difference (90% interval) |"]
    lines.append(f"|{'---|' * 5}")
    for case in CASES:
        for labels in BUDGETS:
            wanted = (*case, labels)
            mine = [r for r in rows if (r["set"], r["variant"], r["labels"]) == wanted]
            every, without = (
                np.stack([_right(row) for row in mine if row["arm"] == arm])
                for arm in ("all", "reference")
            )
            away = difference(without, every)
            name = f"{case[0].replace('_', ' ')}, {case[1]}, {mine[0]['pool']:,} rows,"
            name += f" {mine[0]['reference']} for reference"
            between = f"{away.mean:+.4f} ({away.low:+.4f} to {away.high:+.4f})"
            means = f"{every.mean():.3f} | {without.mean():.3f}"
            lines.append(f"| {name} | {labels:,} | {means} | {between} |")
    return "\n".join(lines)


def _right(row: Row) -> Any:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(row["right"]), np.uint8))
    return bits[: row["n"]].astype(bool)


def main() -> None:
    """Measure or show; see the module's text."""
    words = words_of(__doc__, "--data", "--seeds", "--json", "--from")
    rows = read(words.source) if words.source else run(words.data, words.seeds)
    if words.json is not None:
        write(words.json, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
