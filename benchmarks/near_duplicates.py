"""How many different questions a language model's pool buys where questions occur twice.

The pool has the sample model's questions to label, and copies of a tenth of them, drawn at random
or those with the smallest margins, or of all. A copy has the same text, other spaces and capitals,
other marks, another first word, or a further one; it has the same options and an id of its own, and
the base model scores it anew. One batch of a tenth as many labels as there are questions is bought
by the smallest margins, as a run with `--gate margin` does, with the rule on near-duplicates of a
run and without it. Nothing is trained.

    python benchmarks/near_duplicates.py --json benchmarks/results/near_duplicates.json
    python benchmarks/near_duplicates.py --from benchmarks/results/near_duplicates.json
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _refits import model_of
from numpy.typing import NDArray
from selections import margin

from stacksl.core.losses import softmax
from stacksl.core.rng import generator
from stacksl.lm.scoring.normalize import prior_temperature
from stacksl.runs.loop.batch_selection import NearDuplicates
from stacksl.types import Item
from stacksl.version import __version__

Row = dict[str, Any]
SEEDS, SHARE = 10, 0.1
MARKS = str.maketrans({".": "!", ",": ";", "(": "[", ")": "]", "`": '"', "'": '"'})
COPIES: dict[str, Callable[[str], str]] = {  # of a prompt, which begins with "# "
    "the same text": str,
    "other spaces and capitals": lambda text: text.upper().replace(" ", "  "),
    "other marks": lambda text: text.translate(MARKS),
    "another first word": lambda text: " ".join(["#", "Kindly", *text[2:].split(" ")[1:]]),
    "a further word": lambda text: f"# Kindly {text[2:]}",
}
POOLS = {
    "random": "a tenth, drawn at random",
    "close": "a tenth, the smallest margins",
    "all": "every question",
}


def by_margin(scores: NDArray[np.float64], times: int) -> NDArray[np.int64]:
    """The items by margin (n,), at the temperature of the first `times`; scores are (n, K)."""
    scale = prior_temperature(list(scores[:times]))
    return margin(np.array([softmax(each / scale) for each in scores]))


def different(
    items: list[Item], scores: NDArray[np.float64], count: int, times: int
) -> tuple[int, int]:
    """How many different questions `count` labels buy, without the rule and with it.

    Args:
        items: the questions, then the copies; a copy's id is its question's and an `x`.
        scores: (n, K) of the base model.
        count: labels to buy.
        times: how many of the items are questions.
    """
    ranked = by_margin(scores, times).tolist()
    by_rule = NearDuplicates(items, classes=False).without(ranked, [], count)
    counts = [
        len({items[row].id.removesuffix("x") for row in r}) for r in (ranked[:count], by_rule)
    ]
    return counts[0], counts[1]


def measure() -> Row:
    """Every pool under every kind of copy."""
    from stacksl_lab.sample.questions import questions

    items, model = list(questions()[0].items), model_of({}, 0)
    own, n, rows = np.array(model.scores(items, "pmi")), len(items), list[Row]()
    count = int(SHARE * n)
    leads = by_margin(own, n)
    for copy, change in COPIES.items():
        again = [replace(i, id=f"{i.id}x", prompt=change(i.prompt)) for i in items]
        scores = np.array(model.scores(again, "pmi"))
        doubled = {("close", 0): leads[:count], ("all", 0): np.arange(n)}
        for seed in range(SEEDS):
            doubled["random", seed] = generator(seed, "doubled").permutation(n)[:count]
        for (pool, seed), places in doubled.items():
            both = [*items, *(again[place] for place in places)]
            without, by_rule = different(both, np.concatenate([own, scores[places]]), count, n)
            row = {"copies": copy, "pool": pool, "seed": seed, "labels": count}
            rows.append(row | {"without": without, "rule": by_rule})
    alone = NearDuplicates(items, classes=False).without(range(n), [], n)
    apart = next((place for place, row in enumerate(alone) if row != place), n)
    return {"version": __version__, "questions": n, "taken_for_twins": n - apart, "rows": rows}


def table(found: Row) -> str:
    """Means over the draws, with their smallest and largest value where they differ."""
    lines = [
        "| copies of | a copy has | labels | different questions, without the rule | with it |",
        "|---|---|---|---|---|",
    ]
    for pool, shown in POOLS.items():
        for copy in COPIES:
            rows = [r for r in found["rows"] if (r["pool"], r["copies"]) == (pool, copy)]
            cells = [_spread([row[way] for row in rows]) for way in ("without", "rule")]
            lines.append(f"| {shown} | {copy} | {rows[0]['labels']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _spread(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{np.mean(values):.1f} ({low} to {high})"


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    words = parser.parse_args()
    record = json.loads(words.source.read_text()) if words.source else measure()
    if words.json:
        words.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
