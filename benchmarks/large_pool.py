"""Does a pool of a million items stay within memory, and how long does it take?

Questions of Banking77's training rows are mixed with words of other questions of their class until
there are as many items as wanted, so that the texts differ and classes stay learnable. One run
chooses from all of them, with class names and the neighbour graph (`hashing` features; a sentence
encoder would take hours for its vectors alone). Seconds are wall-clock, memory is the peak of the
whole process as the kernel counts it.

    python benchmarks/large_pool.py --data $STACKSL_DATA --items 1000000 --json large_pool.json
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from stacksl.data import Dataset, read

BUDGET = 500


def mixed(data: Dataset, count: int) -> list[tuple[str, str]]:
    """`count` questions, each with some of its words replaced by those of its class."""
    draw = random.Random(0)
    by_class: dict[int, list[list[str]]] = defaultdict(list)
    for item in data.items:
        by_class[data.answers[item.id]].append(item.prompt.split())
    names, labels = data.classes or (), sorted(by_class)
    found = []
    for number in range(count):
        label = draw.choice(labels)
        words = list(draw.choice(by_class[label]))
        other = draw.choice(by_class[label])
        for place in range(len(words)):
            if draw.random() < 0.3:
                words[place] = draw.choice(other)
        found.append((f"{' '.join(words)} {number}", names[label]))
    return found


def measure(data: Dataset, count: int, folder: Path) -> dict[str, Any]:
    """One run over `count` items: seconds, peak memory in GiB, and what it came to."""
    path = folder / "pool.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *mixed(data, count)])
    words = [sys.executable, "-m", "stacksl", "run", str(path), "--mode", "pool"]
    words += ["--budget", str(BUDGET), "--features", "hashing", "--out", str(folder / "run")]
    start = time.monotonic()
    subprocess.run([*words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    facts = json.loads((folder / "run" / "facts.json").read_text())
    return {
        "items": count,
        "labels": BUDGET,
        "seconds": round(seconds),
        "peak_gib": round(peak, 2),
        "made_by": facts["refit"]["made_by"],
        "audited": facts["audit"]["accuracy"],
    }


def main() -> None:
    """Measure and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    data = read(asked.data / "banking77" / "train.csv")
    with tempfile.TemporaryDirectory() as folder:
        row = measure(data, asked.items, Path(folder))
    text = json.dumps(row, indent=1)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
