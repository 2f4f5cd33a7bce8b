"""How fast is the packaged encoder, and are its vectors those of sentence-transformers?

The same texts are encoded in turn by `sentences:minilm` on ONNX Runtime, by the same weights as
`sentences:FOLDER` (sentence-transformers, in the fixed shapes of this package), and by
sentence-transformers alone in its own batches of 32, sorted by length. Each on one thread, no
cache, seconds of CPU. With --equal as many texts of all lengths up to 256 tokens are compared:
questions, titles, commands and abstracts, each cut at a random place. (Longer texts are encoded in
parts.) With --before the package in another folder encodes the texts as well, in a process of its
own.

    python benchmarks/encoder.py --data $STACKSL_DATA --json encoder.json
    git worktree add ../before ee51a1e
    python benchmarks/encoder.py --data $STACKSL_DATA --texts 500 --before ../before/src
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from stacksl.data import read
from stacksl.features.minilm import LONGEST, MiniLM
from stacksl.features.sentences import SentenceEncoder
from stacksl.features.weights import find_minilm

SETS = ("banking77", "medical_abstracts", "snips", "stackoverflow_titles")


def ways() -> dict[str, Callable[[list[str]], Any]]:
    """The three encoders, loaded, each on one thread."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    folder = str(find_minilm())
    ours, theirs = MiniLM(threads=1), SentenceEncoder(folder, threads=1)
    plain = SentenceTransformer(folder, local_files_only=True)
    encoders = {
        "onnx": ours.encode,
        "torch": theirs.encode,
        "sentence-transformers": lambda texts: plain.encode(texts, show_progress_bar=False),
    }
    for encode in encoders.values():
        encode(["a first text, so that all is loaded"])
    return encoders


BEFORE = """
import json, sys, time
from stacksl.features import make_features
encode = make_features("sentences:minilm", classes=("a", "b")).encoder.encode
texts = json.load(sys.stdin)
encode(["a first text, so that all is loaded"])
start = time.process_time()
encode(texts)
print(len(texts) / (time.process_time() - start))
"""


def speed_before(source: Path, texts: list[str]) -> float:
    """Texts a second of CPU of the default encoder of the package in `source`, on one thread."""
    own = {"PYTHONPATH": str(source), "STACKSL_ENCODER_THREADS": "1", "OMP_NUM_THREADS": "1"}
    words, env = json.dumps(texts), {**os.environ, **own}
    command = [sys.executable, "-c", BEFORE]
    done = subprocess.run(command, input=words, stdout=subprocess.PIPE, env=env, text=True)
    return float(done.stdout.splitlines()[-1])


def speeds(texts: list[str], turns: int, before: Path | None) -> dict[str, list[float]]:
    """Texts a second of CPU of each encoder, in turn."""
    texts_a_second: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, encode in WAYS.items():
            start = time.process_time()
            encode(texts)
            texts_a_second.setdefault(name, []).append(len(texts) / (time.process_time() - start))
        if before is not None:
            texts_a_second.setdefault("before", []).append(speed_before(before, texts))
    return texts_a_second


def of_all_lengths(root: Path, count: int) -> list[str]:
    """`count` questions and abstracts of up to 256 tokens, each cut at a random place."""
    draw, tokenizer = random.Random(0), Tokenizer.from_file(str(find_minilm() / "tokenizer.json"))
    tokenizer.no_truncation()
    texts = [item.prompt for name in SETS for item in read(root / name / "train.csv").items]
    draw.shuffle(texts)
    some = (text[: draw.randint(1, len(text))] for text in texts)
    return list(islice((t for t in some if len(tokenizer.encode(t).ids) <= LONGEST), count))


def main() -> None:
    """Measure and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--texts", type=int, default=1000, help="Banking77's first training texts")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--equal", type=int, default=10_000, help="texts that are compared")
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    items = read(options.data / "banking77" / "train.csv").items[: options.texts]
    measured = speeds([item.prompt for item in items], options.turns, options.before)
    ratios = np.array(measured["onnx"]) / np.array(measured["torch"])
    plain = np.array(measured["onnx"]) / np.array(measured["sentence-transformers"])
    result: dict[str, Any] = {
        "texts_a_cpu_second": {name: np.median(rows).round(1) for name, rows in measured.items()},
        "onnx_to_torch": {"median": np.median(ratios).round(2), "all": ratios.round(2).tolist()},
        "onnx_to_sentence_transformers": np.median(plain).round(2),
    }
    if options.before is not None:
        older = np.array(measured["onnx"]) / np.array(measured["before"])
        result["onnx_to_before"] = {"median": np.median(older), "all": older.round(2).tolist()}
    if options.equal:
        texts = of_all_lengths(options.data, options.equal)
        one, other = (WAYS[name](texts) for name in ("onnx", "sentence-transformers"))
        result["compared"] = len(texts)
        result["largest_difference"] = float(np.abs(one - other).max())
    text = json.dumps(result, indent=1, default=float)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["STACKSL_NO_CACHE"] = "1"
    WAYS = ways()
    main()
