"""What does `--engine ray` cost next to a plain script that maps the same encoder by Ray Data?

Texts of the training file of Banking77, made distinct by a number, become vectors of
`sentences:minilm` in three ways at 1 and 2 workers, each with one thread: in this process (`one
machine`), by `--engine ray`, and by the plain script below. A time has the start of the actors in
it, but not that of Ray. The ways take turns, a ratio is taken inside a turn, and all give the same
bits.

    pip install 'stacksl[minilm,ray]'
    python benchmarks/ray_encoding.py --data $STACKSL_DATA --json ray_encoding.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

os.environ |= {"STACKSL_NO_CACHE": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}

from stacksl.data import read
from stacksl.features.minilm import MiniLM

WORKERS = (1, 2)
WAYS = ("one machine", "--engine ray", "plain script")


class Encode:
    """The actor of the plain script."""

    def __init__(self) -> None:
        self.encoder = MiniLM(threads=1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The vectors of a batch."""
        return {"n": batch["n"], "vector": self.encoder.encode(list(batch["text"]))}


def plain(texts: list[str], workers: int) -> np.ndarray:
    import ray

    rows = [{"n": n, "text": text} for n, text in enumerate(texts)]
    pool = ray.data.ActorPoolStrategy(size=workers)
    data = ray.data.from_items(rows).map_batches(Encode, batch_size=512, compute=pool, num_cpus=1)
    vectors = np.empty((len(texts), MiniLM.dim), np.float32)
    for batch in data.iter_batches(batch_size=None):
        vectors[batch["n"]] = np.stack(list(batch["vector"]))
    return vectors


def ours(texts: list[str], _: int) -> np.ndarray:
    os.environ["RAY_ADDRESS"] = "local"  # Ray runs already: this only names the engine
    try:
        return MiniLM().encode(texts)
    finally:
        del os.environ["RAY_ADDRESS"]


def here(texts: list[str], workers: int) -> np.ndarray:
    return MiniLM(threads=workers).encode(texts)


def timed(way: Callable[[list[str], int], np.ndarray], texts: list[str], workers: int) -> Any:
    start = time.perf_counter()
    vectors = way(texts, workers)
    return time.perf_counter() - start, vectors


def measured(texts: list[str], turns: int) -> list[dict[str, Any]]:
    import ray
    import ray.data

    found, expected = [], MiniLM().encode(texts)
    for workers in WORKERS:
        ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        for turn in range(turns):
            row: dict[str, Any] = {"workers": workers, "turn": turn, "load": os.getloadavg()[0]}
            ways = list(zip(WAYS, (here, ours, plain), strict=True))
            for name, way in ways[turn % 3 :] + ways[: turn % 3]:
                row[name], vectors = timed(way, texts, workers)
                np.testing.assert_array_equal(vectors, expected)
            found.append(row)
            print(row, flush=True)
        ray.shutdown()
    return found


def table(rows: list[dict[str, Any]], texts: int) -> str:
    lines = ["| workers | way | texts per second | time / plain script's |", "|---|---|---|---|"]
    for workers in WORKERS:
        turns = [row for row in rows if row["workers"] == workers]
        for way in WAYS:
            pace = statistics.median(texts / row[way] for row in turns)
            ratios = sorted(row[way] / row[WAYS[2]] for row in turns)
            ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            lines.append(f"| {workers} | {way} | {pace:.0f} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=8000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    prompts = [item.prompt for item in read(given.data / "banking77" / "train.csv").items]
    texts = [f"{prompts[n % len(prompts)]} {n}" for n in range(given.texts)]
    rows = measured(texts, given.turns)
    about = {name: version(name) for name in ("ray", "onnxruntime", "numpy")}
    record = {"texts": len(texts), "cores": os.cpu_count(), "versions": about, "rows": rows}
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(rows, len(texts)))


if __name__ == "__main__":
    main()
