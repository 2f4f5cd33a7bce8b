"""What does `--engine ray` cost next to a plain script that maps the same encoder by Ray Data?

Texts of the training file of Banking77, made distinct by a number, become vectors of
`sentences:minilm` in three ways at 1 and 2 workers, each with one thread: in this process (`one
machine`), by `--engine ray`, and by the plain script below. A time has the start of the actors in
it, but not that of Ray. The ways take turns, a ratio is taken inside a turn, and all give the same
bits. With `--encoder NAME_OR_DIR` and a GPU, each actor has the GPU for itself; how far the vectors
are off those of this process is measured then.

    pip install 'stacksl[minilm,ray]'
    python benchmarks/ray_encoding.py --data $STACKSL_DATA --json ray_encoding.json
    python benchmarks/ray_encoding.py --data $STACKSL_DATA --encoder FOLDER --json ray_on_gpu.json
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
from stacksl.features.sentences import SentenceEncoder
from stacksl.features.weights import MINILM

WAYS = ("one machine", "--engine ray", "plain script")


def encoder_of(name: str, threads: int | None = None) -> Any:
    """The encoder `name`: `minilm`, or one that torch runs, on a GPU if there is one."""
    return MiniLM(threads=threads) if name == MINILM else SentenceEncoder(name, threads=threads)


class Encode:
    """The actor of the plain script."""

    def __init__(self, name: str) -> None:
        self.encoder = encoder_of(name, 1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The vectors of a batch."""
        return {"n": batch["n"], "vector": self.encoder.encode(list(batch["text"]))}


def plain(texts: list[str], name: str, workers: int) -> np.ndarray:
    import ray

    rows = [{"n": n, "text": text} for n, text in enumerate(texts)]
    pool = ray.data.ActorPoolStrategy(size=workers)
    one = {"num_gpus": 1} if on_gpu(name) else {"num_cpus": 1}
    data = ray.data.from_items(rows).map_batches(
        Encode, fn_constructor_args=(name,), batch_size=512, compute=pool, **one
    )
    vectors = np.empty((len(texts), encoder_of(name).dim), np.float32)
    for batch in data.iter_batches(batch_size=None):
        vectors[batch["n"]] = np.stack(list(batch["vector"]))
    return vectors


def ours(texts: list[str], name: str, _: int) -> np.ndarray:
    os.environ["RAY_ADDRESS"] = "local"  # Ray runs already: this only names the engine
    try:
        return encoder_of(name).encode(texts)
    finally:
        del os.environ["RAY_ADDRESS"]


def here(texts: list[str], name: str, workers: int) -> np.ndarray:
    return encoder_of(name, workers).encode(texts)


def timed(
    way: Callable[[list[str], str, int], np.ndarray], texts: list[str], name: str, workers: int
) -> Any:
    start = time.perf_counter()
    vectors = way(texts, name, workers)
    return time.perf_counter() - start, vectors


def on_gpu(name: str) -> bool:
    """Whether torch runs the encoder, and finds a GPU."""
    if name == MINILM:
        return False
    import torch

    return torch.cuda.is_available()


def measured(texts: list[str], name: str, turns: int) -> list[dict[str, Any]]:
    import ray
    import ray.data

    rows, expected = [], encoder_of(name).encode(texts)
    for workers in (1,) if on_gpu(name) else (1, 2):
        ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        for turn in range(turns):
            row: dict[str, Any] = {"workers": workers, "turn": turn, "load": os.getloadavg()[0]}
            ways = list(zip(WAYS, (here, ours, plain), strict=True))
            for way, play in ways[turn % 3 :] + ways[: turn % 3]:
                row[way], vectors = timed(play, texts, name, workers)
                off = float(np.abs(vectors - expected).max())
                assert name != MINILM or not off, "other bits"
                row["off"] = max(off, row.get("off", 0.0))
            rows.append(row)
            print(row, flush=True)
        ray.shutdown()
    return rows


def table(rows: list[dict[str, Any]], texts: int) -> str:
    lines = ["| workers | way | texts per second | time / plain script's |", "|---|---|---|---|"]
    for workers in sorted({row["workers"] for row in rows}):
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
    parser.add_argument("--encoder", default=MINILM)
    parser.add_argument("--texts", type=int, default=8000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    prompts = [item.prompt for item in read(options.data / "banking77" / "train.csv").items]
    texts = [f"{prompts[n % len(prompts)]} {n}" for n in range(options.texts)]
    rows = measured(texts, options.encoder, options.turns)
    about = {name: version(name) for name in ("ray", "onnxruntime", "numpy")}
    if on_gpu(options.encoder):
        import torch

        about |= {"torch": version("torch"), "device": torch.cuda.get_device_name()}
    record = {"texts": len(texts), "cores": os.cpu_count(), "versions": about, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(rows, len(texts)))


if __name__ == "__main__":
    main()
