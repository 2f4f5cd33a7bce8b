"""How far widths drift from an exact factorization after many rank-one updates of the inverse.

    python benchmarks/width_error.py [--json FILE]
    python benchmarks/width_error.py --floor 20 128
    python benchmarks/width_error.py --floor 768 --labels 20000

V⁻¹ is never inverted again, so rounding adds up. The error is the largest relative error of a width
‖φ‖ in V⁻¹ over fresh unit vectors and over the candidates themselves, against a Cholesky factor of
V, which is summed exactly. Both ways of keeping V⁻¹ are measured: `ConfidenceSet`, that all scorers
share, and the compiled engine. `--floor` shows for these d what the ridge's floor is for: the
largest entry of |V⁻¹V − I| after near-duplicates of three vectors, which lie apart by `APART`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from stacksl.core.confidence import ConfidenceSet
from stacksl.core.gates.registry import Always
from stacksl.core.scorers.base import ScorerSettings
from stacksl_lab.engines import run_stream

DIM, CHUNK = 20, 1000
GENERIC, REPEATS = 1_000_000, 100_000
RIDGES, APART = (1e-5, 1e-6, 1e-7, 1e-8), (0.0, 1e-6, 1e-5)


def unit(generator: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    """Unit vectors, (rows, d)."""
    drawn = generator.normal(size=(rows, DIM))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def exact_widths(
    rows: np.ndarray[Any, Any], ridge: float, probes: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Widths from the Cholesky factor of V = ridge·I + ΣφφT, summed in extended precision."""
    gram = ridge * np.eye(DIM, dtype=np.longdouble)
    for block in np.array_split(rows, max(1, len(rows) // 10_000)):
        wide = block.astype(np.longdouble)
        gram += wide.T @ wide
    factor = np.linalg.cholesky(gram.astype(np.float64))
    return np.linalg.norm(solve_triangular(factor, probes.T, lower=True), axis=0)


def by_confidence_set(rows: np.ndarray[Any, Any], ridge: float) -> ConfidenceSet:
    """V⁻¹ after every row of `rows`, as the scorers keep it."""
    trust = ConfidenceSet.empty(DIM, ridge)
    for t in range(len(rows)):
        trust.update(rows[t : t + 1])
    return trust


def by_engine(rows: np.ndarray[Any, Any], ridge: float) -> ConfidenceSet:
    """V⁻¹ after every row of `rows`, as the compiled engine keeps it."""
    played = run_stream(
        "sgd",
        rows[:, None],
        labels=np.zeros(len(rows)),
        gate=Always(),
        budget=len(rows),
        settings=ScorerSettings(ridge=ridge, learning_rate=1e-9),
        certificates=False,
        engine="fused",
    )
    assert played.gram_inv is not None
    return ConfidenceSet(played.gram_inv, ridge)


def error(kept: ConfidenceSet, exact: np.ndarray[Any, Any], probes: np.ndarray[Any, Any]) -> float:
    """The largest relative error of a width."""
    return float(np.max(np.abs(kept.widths(probes) - exact) / exact))


def residual(dim: int, ridge: float, apart: float, labels: int) -> float:
    """The largest entry of |V⁻¹V − I| after `labels` near-duplicates of three unit vectors."""
    generator = np.random.default_rng(0)
    three = generator.normal(size=(3, dim))
    three /= np.linalg.norm(three, axis=1, keepdims=True)
    trust, gram = ConfidenceSet.empty(dim, ridge), ridge * np.eye(dim)
    for _ in range(0, labels, CHUNK):
        rows = three[generator.integers(3, size=CHUNK)]
        rows = rows + apart * generator.normal(size=rows.shape) / np.sqrt(dim)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        for row in rows:
            trust.update(row[None])
        gram += rows.T @ rows
    return float(np.abs(trust.gram_inv @ gram - np.eye(dim)).max())


def floor(dims: list[int], labels: int) -> None:
    print(f"largest entry of |V⁻¹V − I| after {labels:,} rows")
    for dim in dims:
        for ridge in RIDGES:
            residuals = " ".join(f"{residual(dim, ridge, apart, labels):.1e}" for apart in APART)
            print(f"  d = {dim}, ridge {ridge:g}, apart {APART}: {residuals}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--floor", type=int, nargs="+", metavar="D", help="the ridge's floor")
    parser.add_argument("--labels", type=int, default=REPEATS, help="of --floor")
    options = parser.parse_args()
    if options.floor:
        floor(options.floor, options.labels)
        return 0
    generator = np.random.default_rng(0)
    five = unit(generator, 5)
    streams = [
        (f"{GENERIC:,} generic updates, ridge 1", unit(generator, GENERIC), 1.0, 1e-9),
        (
            f"{REPEATS:,} updates by five candidates, ridge 1e-3",
            five[generator.integers(5, size=REPEATS)],
            1e-3,
            1e-5,
        ),
    ]
    fresh = unit(generator, 256)
    found = []
    print(f"largest relative error of a width, d = {DIM}")
    for name, rows, ridge, most in streams:
        for probed, probes in (("fresh vectors", fresh), ("rows of the stream", rows[:256])):
            exact = exact_widths(rows, ridge, probes)
            for kind, keep in (("ConfidenceSet", by_confidence_set), ("engine", by_engine)):
                worst = error(keep(rows, ridge), exact, probes)
                verdict = "met" if worst <= most else "MISSED"
                print(f"  {name:46} {probed:19} {kind:14} {worst:.1e} of {most:.0e}  {verdict}")
                found.append({"stream": name, "probes": probed, "kept_by": kind, "error": worst,
                              "bar": most, "met": worst <= most})  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"rows": found}, indent=1) + "\n")
    return 0 if all(row["met"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
