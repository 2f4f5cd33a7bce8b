"""The learner's round, every round labeled: our engines, NumPy, and other libraries.

    python benchmarks/learner_round.py [--json FILE] [--repetitions 7] [--case 20,10]

One process and one thread. All jobs are played in turn (A B C ... A B C ...), after one repetition
that is not counted; a number is the median over repetitions, a ratio the median of the ratios
within a repetition, so that a busy neighbor slows both sides of it. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: it reads them once

from contenders.cases import Absent, Case, Job  # noqa: E402
from contenders.ours import OURS  # noqa: E402
from contenders.peers import PEERS  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

CASES = (Case(20, 10, 20_000), Case(384, 4, 4_000), Case(384, 77, 210))

# (case, slower, faster, at least so many times)
BARS = (
    ("(20, 10)", "numpy", "fused", 30.0),
    ("(384, 4)", "numpy", "fused", 2.2),
    ("(384, 77)", "fused", "shared", 15.0),
    *(("(20, 10)", peer.name, "fused", 1.0) for peer in PEERS),
)


def jobs_of(case: Case) -> tuple[dict[str, Job], dict[str, str]]:
    """The jobs of a case by name, and why others are absent."""
    jobs, absent = {}, {}
    for contender in [*OURS, *PEERS]:
        if case.name in contender.skip:
            absent[contender.name] = "a round takes too long to wait for"
            continue
        try:
            jobs[contender.name] = contender.make(case)
        except Absent as reason:
            absent[contender.name] = str(reason)
    return jobs, absent


def measure(jobs: dict[str, Job], repetitions: int) -> list[dict[str, float]]:
    """Seconds a round of every job, a row a repetition; the first repetition is thrown away."""
    rows = []
    for number in range(repetitions + 1):
        row = {name: job() for name, job in jobs.items()}
        if number:
            rows.append(row)
    return rows


def summary(
    case: Case, rows: list[dict[str, float]], absent: dict[str, str]
) -> list[dict[str, Any]]:
    """One row a contender: its time, and how many times as long as each of ours it takes."""
    lines: list[dict[str, Any]] = []
    for name in rows[0]:
        times = [row[name] * 1e6 for row in rows]
        lines.append(
            {
                "case": case.name,
                "contender": name,
                "microseconds": statistics.median(times),
                "least": min(times),
                "times_fused": statistics.median(row[name] / row["fused"] for row in rows),
                "times_shared": statistics.median(row[name] / row["shared"] for row in rows),
            }
        )
    return [*lines, *({"case": case.name, "contender": n, "absent": w} for n, w in absent.items())]


def show(rows: list[dict[str, Any]]) -> None:
    """The table of one case."""
    print(f"\n(d, K) = {rows[0]['case']}{'':10}us a round   (least)   / fused  / shared")
    for row in rows:
        if "absent" in row:
            print(f"  {row['contender']:22} left out: {row['absent']}")
        else:
            print(
                f"  {row['contender']:22}{row['microseconds']:12.2f}{row['least']:10.2f}"
                f"{row['times_fused']:10.2f}{row['times_shared']:10.2f}"
            )


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every bar with what was measured."""
    by_contender = {(row["case"], row["contender"]): row for row in rows if "absent" not in row}
    bars = []
    for case, slow, fast, least in BARS:
        if (case, slow) in by_contender:
            ratio = by_contender[case, slow][f"times_{fast}"]
            bars.append({"case": case, "bar": f"{fast} against {slow}", "least": least,
                         "measured": ratio, "met": ratio >= least})  # fmt: skip
    return bars


def versions() -> dict[str, str]:
    """The libraries that were timed."""
    from importlib.metadata import PackageNotFoundError, version

    names = ("stacksl", "numpy", "numba", "vowpalwabbit", "mabwiser", "contextualbandits", "river")
    known = {"python": sys.version.split()[0]}
    for name in names:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return known


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--case", help="d,K of one case, such as 20,10")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries
        for case in CASES:
            if options.case in (None, f"{case.dim},{case.candidates}"):
                jobs, absent = jobs_of(case)
                rows += summary(case, measure(jobs, options.repetitions), absent)
                show([row for row in rows if row["case"] == case.name])
    bars = judged(rows)
    print("\nbars")
    for bar in bars:
        print(f"  {bar['case']:10} {bar['bar']:32} {bar['measured']:9.2f} of {bar['least']:g}  "
              f"{'met' if bar['met'] else 'MISSED'}")  # fmt: skip
    print("\n" + ", ".join(f"{name} {number}" for name, number in versions().items()))
    if options.json:
        facts = {"rows": rows, "bars": bars, "versions": versions()}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if all(bar["met"] for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
