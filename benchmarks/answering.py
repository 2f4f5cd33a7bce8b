"""What does one returned answer cost, and does that grow with the items of the run?

A pool of made-up texts in 20 classes is asked of people by spreadsheet (`hashing` features, batches
of 25). Then `stacksl answer` is run three times as a process of its own: with one row filled, so
that the batch stays open; with all rows but one; and with the row that completes what was first
handed out. CPU seconds are those of the process, user and system; memory is its peak, as the kernel
counts it. `read` is a process that only starts, reads the data file and hashes its contents.

    python benchmarks/answering.py --items 1000 10000 100000 --json answering.json
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLASSES = 20
WORDS = 3_000
BUDGET = 200

READ = """
import sys
from hashlib import sha256
import stacksl.api.stored
from stacksl.data import read, read_classes
data = read(sys.argv[1], classes=read_classes(sys.argv[2]).names)
whole = sha256()
for item in data.items:
    whole.update(sha256("\\x1e".join((item.prompt, *item.candidates)).encode()).digest())
"""


def write_items(folder: Path, count: int) -> tuple[Path, Path]:
    """A file of `count` texts of twelve words, and the list of classes."""
    draw = random.Random(count)
    data, classes = folder / "items.csv", folder / "classes.csv"
    with data.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text"])
        for number in range(count):
            topic = draw.randrange(CLASSES)
            own = (f"topic{topic}word{draw.randrange(30)}" for _ in range(4))
            words = [*own, *(f"word{draw.randrange(WORDS)}" for _ in range(8))]
            rows.writerow([f"item-{number}", " ".join(words)])
    classes.write_text("".join(f"topic {number}\n" for number in range(CLASSES)))
    return data, classes


def measured(words: Sequence[str]) -> dict[str, float]:
    """CPU seconds and peak memory in MiB of a process that must succeed."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(words)} failed:\n{errors.decode()}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"cpu_seconds": round(cpu, 2), "peak_mib": round(usage.ru_maxrss / 1024)}


def fill(sheet: Path, rows: slice) -> None:
    """Answer the unanswered `rows` of a sheet with the first class."""
    lines = list(csv.reader(sheet.open(encoding="utf-8-sig", newline="")))
    header = next(n for n, line in enumerate(lines) if "key" in line and "answer" in line)
    answer = lines[header].index("answer")
    waiting = [line for line in lines[header + 1 :] if line and not line[answer]]
    for line in waiting[rows]:
        line[answer] = "1"
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(lines)


def measure(count: int, folder: Path) -> dict[str, Any]:
    """One run over `count` items: what reading costs, and each of three answers."""
    data, classes = write_items(folder, count)
    run, program = folder / "run", [sys.executable, "-m", "stacksl"]
    asked = [
        "--classes",
        str(classes),
        "--labeler",
        "file",
        "--sheets",
        "csv",
        "--mode",
        "pool",
        "--audit",
        "0",
    ]
    asked += ["--features", "hashing", "--budget", str(BUDGET), "--out", str(run)]
    started = measured([*program, "run", str(data), *asked, "--quiet"])
    sheet = run / "ask" / "0001.csv"
    row: dict[str, Any] = {"items": count, "start": started}
    row["read"] = measured([sys.executable, "-c", READ, str(data), str(classes)])
    for name, rows in (("one", slice(1)), ("most", slice(0, -1)), ("last", slice(None))):
        fill(sheet, rows)
        row[name] = measured([*program, "answer", str(run), str(sheet), "--quiet"])
    return row


def main() -> None:
    """Measure and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for count in options.items:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(count, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
