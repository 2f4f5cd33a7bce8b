"""How do time and memory of a pool grow to a million items?

Vectors of 384 numbers are given: a center of the item's class, one of twenty of its own and noise,
so that classes can be learned. A run of 500 labels chooses from all. A bare scan is timed, too:
the same vectors are mapped from their file and multiplied once by a row for each class. With
--hashing the items are texts instead, questions of Banking77 mixed with words of other questions of
their class, whose features are made by `hashing` (most of the time).

Each runs in a process of its own on one thread; seconds are of CPU, memory is the peak of the
process as the kernel counts it, the mapped file of given vectors included.

    python benchmarks/large_pool.py --items 10000 100000 1000000 --json FILE
    python benchmarks/large_pool.py --items 1000000 --hashing --data $STACKSL_DATA
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.data import Dataset, read

BUDGET, CLASSES, DIM = 500, 77, 384
CENTERS = 20  # a class
AT_ONCE = 8192  # rows


def vectors(count: int, folder: Path) -> None:
    """Write clustered unit vectors of `count` items, and their classes."""
    draw = np.random.default_rng(0)
    of_class = _unit(draw.standard_normal((CLASSES, DIM)))
    own = _unit(draw.standard_normal((CLASSES * CENTERS, DIM)))
    which = draw.integers(0, len(own), count)
    rows = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (count, DIM))
    for start in range(0, count, AT_ONCE):
        near = which[start : start + AT_ONCE]
        noise = draw.standard_normal((len(near), DIM)) * (0.9 / np.sqrt(DIM))
        rows[start : start + AT_ONCE] = _unit(of_class[near % CLASSES] + 0.8 * own[near] + noise)
    rows.flush()
    np.save(folder / "labels.npy", which % CLASSES)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scan(folder: Path) -> None:
    """Multiply the vectors by a row for each class."""
    rows = np.load(folder / "rows.npy", mmap_mode="r")
    heads = np.random.default_rng(1).standard_normal((DIM, CLASSES)).astype(np.float32)
    for start in range(0, len(rows), AT_ONCE):
        (rows[start : start + AT_ONCE] @ heads).argmax(axis=1)


def play(folder: Path) -> None:
    """A run over the items whose vectors are given."""
    import stacksl

    rows = np.load(folder / "rows.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy").tolist()
    texts = [f"question {number}" for number in range(len(rows))]
    classes = [f"class {number}" for number in range(CLASSES)]
    out = folder / "run"
    stacksl.run(texts, labels, classes=classes, features=rows, budget=BUDGET, mode="pool", out=out)


def mixed(data: Dataset, count: int) -> Iterator[tuple[str, str]]:
    """`count` questions, each with some of its words replaced by those of its class."""
    draw = random.Random(0)
    by_class: dict[int, list[list[str]]] = defaultdict(list)
    for item in data.items:
        by_class[data.answers[item.id]].append(item.prompt.split())
    names, labels = data.classes or (), sorted(by_class)
    for number in range(count):
        label = draw.choice(labels)
        words = list(draw.choice(by_class[label]))
        other = draw.choice(by_class[label])
        for place in range(len(words)):
            if draw.random() < 0.3:
                words[place] = draw.choice(other)
        yield f"{' '.join(words)} {number}", names[label]


def timed(words: list[str]) -> dict[str, float]:
    """Seconds and peak memory of a process."""
    start = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} failed")
    return {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "seconds": round(time.monotonic() - start, 1),
        "peak_gib": round(used.ru_maxrss / 2**20, 2),
    }


def measure(count: int, folder: Path, data: Dataset | None) -> dict[str, Any]:
    """One run over `count` items, and what it came to."""
    row: dict[str, Any] = {"items": count, "labels": BUDGET}
    if data is None:
        vectors(count, folder)
        row["scan"] = timed([sys.executable, __file__, "--scan", str(folder)])
        row["run"] = timed([sys.executable, __file__, "--play", str(folder)])
    else:
        path = folder / "pool.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(("text", "label"))
            table.writerows(mixed(data, count))
        words = [sys.executable, "-m", "stacksl", "run", str(path), "--mode", "pool", "--quiet"]
        words += ["--budget", str(BUDGET), "--features", "hashing", "--out", str(folder / "run")]
        row["run"] = timed(words)
    facts = json.loads((folder / "run" / "facts.json").read_text())
    return {**row, "audited": facts["audit"]["accuracy"]}


def main() -> None:
    """Measure and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--hashing", action="store_true", help="texts with hashed features")
    parser.add_argument("--data", type=Path, help="the folder of data sets, with --hashing")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    data = read(asked.data / "banking77" / "train.csv") if asked.hashing else None
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    for count in asked.items:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(count, Path(folder), data))
        print(json.dumps(rows[-1]), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--scan"]:
        scan(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--play"]:
        play(Path(sys.argv[2]))
    else:
        main()
