"""From how many labels on Theorem D speaks on a corpus (docs/theory.md, section 3.1).

The gate `reserve` can force a round only where its level is below the largest gap that two classes
can have. The level falls with the labels: by the bound that knows no corpus, and by the capacity of
the corpus's own features. Labels are counted to the nearest 10.

    python benchmarks/theorem_speaks.py $STACKSL_DATA/banking77
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from label_efficiency import load

from stacksl.core.blocks import Array
from stacksl_lab.baselines import statistics
from stacksl_lab.baselines.capacity import STEPS, corpus_capacity
from stacksl_lab.baselines.reserve import Reserve

FEATURES = ("sentences:minilm", "hashing")
SCORERS = {"ridge": 1.0, "newton": 0.5}  # and the weight of hhᵀ that a label adds
AT = (1000, 2000)
RIDGE = 1.0


def level(capacity: float, labels: int) -> float:
    """The level of `reserve` over β, with answers that are learned at once."""
    square = statistics.reserve_square(capacity, labels, Reserve().share, 0)
    return 2.0 * math.sqrt(square)


def old(rows: Array, labels: int) -> float:
    """The level by dℓ_B."""
    return level(statistics.capacity(labels, rows.shape[1], 1.0 / math.sqrt(RIDGE)), labels)


def new(rows: Array, labels: int, steps: int = STEPS) -> float:
    """The level by the capacity of these rows, √w·h for a weight w."""
    return level(corpus_capacity(rows, labels, RIDGE, steps=steps), labels)


def first(height: Callable[[int], float], most: int, largest: float) -> int:
    """The least labels, to the nearest 10, at which a round can be forced."""
    low, high = 0, most // 10
    while high - low > 1:  # the level falls with the labels: the best log det is concave in them
        middle = (low + high) // 2
        low, high = (low, middle) if height(10 * middle) < largest else (middle, high)
    return 10 * high


def starts(rows: Array, largest: float) -> tuple[int, int]:
    """The same by both bounds; that of the corpus from few steps first, which are quick."""
    by_dimension = first(lambda n: old(rows, n), 10 * len(rows), largest)
    label_count = first(lambda n: new(rows, n, 8), by_dimension, largest)
    while label_count > 10 and new(rows, label_count - 10) < largest:
        label_count -= 10
    return by_dimension, label_count


def main() -> None:
    """Print the table of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder of train.csv and test.csv")
    folder = parser.parse_args().folder
    at = " | ".join(f"at {labels:,}: dℓ | corpus" for labels in AT)
    print(f"\n| features | d | scorer | {at} | speaks from: dℓ | corpus |")
    print("|" + "---|" * (5 + 2 * len(AT)))
    for features in FEATURES:
        block = load(folder, features).block
        h = np.asarray([block[row].h for row in range(len(block))], dtype=np.float64)
        largest = math.sqrt(2.0) * float(np.linalg.norm(h, axis=1).max()) / math.sqrt(RIDGE)
        for scorer, weight in SCORERS.items():
            rows = math.sqrt(weight) * h
            levels = [f"{old(rows, n):.2f}β | {new(rows, n):.2f}β" for n in AT]
            counts = [f"{start:,}" for start in starts(rows, largest)]
            cells = [features, str(h.shape[1]), scorer, *levels, *counts]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
