"""A round under `reserve` against one under `information`, side by side, without certificates.

    python benchmarks/gate_round.py [--json FILE] [--repetitions 9]

One process and one thread, a tenth of the rounds labeled. The two are played in turn, after one
repetition that is not counted; a ratio is the median over repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: it reads them once

import numpy as np  # noqa: E402

from stacksl_lab.baselines.registry import make_gate  # noqa: E402
from stacksl_lab.engines import run_stream  # noqa: E402

BAR = 1.5  # at most so many times a round under `information`

# scorer, feedback, engine, rounds, candidates or classes, dimensions
CASES = (
    ("ridge", "rewards", "fused", 4000, 20, 20),
    ("newton", "labels", "fused", 4000, 5, 20),
    ("newton", "labels", "fused", 1000, 4, 384),
    ("ridge", "classes", "fused", 1000, 77, 384),
    ("ridge", "rewards", "loop", 400, 20, 20),
    ("newton", "labels", "loop", 400, 5, 20),
    ("ridge", "classes", "loop", 200, 77, 384),
)


def job(
    scorer: str, feedback: str, engine: Any, rounds: int, many: int, dim: int, gate: str
) -> Any:
    """What plays the case under the gate, and gives the seconds a round."""
    rng = np.random.default_rng(0)
    shape = (rounds, dim) if feedback == "classes" else (rounds, many, dim)
    phi = rng.normal(size=shape)
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    known: dict[str, Any] = {"labels": rng.integers(many, size=rounds)}
    if feedback == "rewards":
        known = {"rewards": rng.normal(size=(rounds, many))}
    classes = many if feedback == "classes" else None

    def play() -> float:
        began = time.perf_counter()
        run_stream(scorer, phi, gate=make_gate(gate), budget=rounds // 10, classes=classes,
                   certificates=False, engine=engine, **known)  # fmt: skip
        return (time.perf_counter() - began) / rounds

    return play


def measured(repetitions: int) -> list[dict[str, Any]]:
    """A row a case: microseconds a round of each, and the median ratio."""
    rows = []
    for case in CASES:
        ours, theirs = (job(*case, gate) for gate in ("reserve", "information"))
        pairs = [(ours(), theirs()) for _ in range(repetitions + 1)][1:]
        ratio = statistics.median(a / b for a, b in pairs)
        names = ("scorer", "feedback", "engine", "rounds", "candidates", "dim")
        rows.append(
            {
                **dict(zip(names, case, strict=True)),
                "reserve": statistics.median(a for a, _ in pairs) * 1e6,
                "information": statistics.median(b for _, b in pairs) * 1e6,
                "ratio": ratio,
                "met": ratio <= BAR,
            }
        )
        print(" ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{value}"
                       for key, value in rows[-1].items()), flush=True)  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    rows = measured(options.repetitions)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
