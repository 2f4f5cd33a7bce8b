"""Where does the time of an ordinary run go, and is it faster than another commit's?

`stacksl run` on Banking77's training rows, as a pool with 500 labels, MiniLM's vectors from the
cache, a process a tree: seconds of CPU by phase, and whether the same items were bought in the same
order. All trees read the same vectors: those of the first are put into each one's cache. A phase
has the CPU time of the samples (one each 5 ms) in which a frame of its files is on the stack; where
several are, the first phase of the list counts.

    git worktree add ../before ee51a1e
    python benchmarks/ordinary_run.py --data $STACKSL_DATA src ../before/src --json FILE
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

FEATURES = "sentences:minilm"
LABELS = 500
EVERY = 0.005
PHASES = {
    "imports": r"importlib\._bootstrap",
    "report": r"stacksl/report/|finish\.py:write_pages",
    "graph": r"spreading\.py:(neighbou?r_graph|restored_graph)|coverage\.py:kernel_of",
    "ledger and answers": r"stacksl/(ledger|labelers)/",
    "features": r"stacksl/features/",
    "ranking": r"choosers\.py",
    "final model": r"trainer\.py:(finish|final)|runs/finish/",
    "refits": r"trainer\.py:",
    "reading and intake": r"stacksl/(data|runs/items|api)/",
}


class Sampler(threading.Thread):
    """Adds the CPU time between samples of the main thread's stack to a phase."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: Counter[str] = Counter()
        self._patterns = {name: re.compile(words) for name, words in PHASES.items()}

    def run(self) -> None:
        """Sample until the process ends."""
        main, before = threading.main_thread().ident, time.process_time()
        while True:
            time.sleep(EVERY)
            frame, now = sys._current_frames().get(main), time.process_time()
            self.seconds[self._phase(frame)] += now - before
            before = now

    def _phase(self, frame: FrameType | None) -> str:
        names = []
        while frame is not None:
            names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            frame = frame.f_back
        stack = "\n".join(names)
        return next((n for n, words in self._patterns.items() if words.search(stack)), "other")


def play(data: str, out: str) -> None:
    """One run with the package on the path; prints what it took and bought."""
    from stacksl.cli import main

    sampler = Sampler()
    sampler.start()
    sys.argv = ["stacksl", "run", data, "--mode", "pool", "--budget", str(LABELS)]
    sys.argv += ["--features", FEATURES, "--out", out, "--quiet"]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    seconds = time.process_time()
    phases = dict(sampler.seconds)
    from stacksl import Run

    rows = Run.open(out).ledger.export()
    bought = [str(row["item"]) for row in rows if row["purpose"] == "train"]
    print(json.dumps({"seconds": seconds, "phases": phases, "bought": bought}))


def called(source: Path, cache: Path, *words: str) -> str:
    """What a process with the package of `source` prints last."""
    own = {"PYTHONPATH": str(source), "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout.strip().splitlines()[-1]


def identity(source: Path, cache: Path) -> str:
    """The name of the encoder's file in the cache."""
    words = f"from stacksl.features import make_features as m; print(m({FEATURES!r}, classes=('a',"
    return called(source, cache, "-c", f"{words} 'b')).encoder.identity)")


def encode(source: Path, cache: Path, data: Path) -> None:
    """Fill the cache by the encoder of `source`."""
    words = (
        "from stacksl.data import read; from stacksl.features import make_features;"
        "from stacksl.runs.loop.class_names import name_texts;"
        f"data = read({str(data)!r}); encoder = make_features({FEATURES!r}, classes=data.classes)"
        ".encoder; encoder.encode([i.prompt for i in data.items]);"
        "encoder.encode(name_texts(data.classes)); print('done')"
    )
    called(source, cache, "-c", words)


def main() -> None:
    """Play each tree in turn and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path, default=[Path("src")])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="a cache folder whose vectors are taken")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    train = asked.data / "banking77" / "train.csv"
    sources = [source.resolve() for source in asked.sources]
    taken: list[dict[str, Any]] = [{} for _ in sources]
    with tempfile.TemporaryDirectory() as folder:
        cache, root = Path(folder) / "cache", Path(folder)
        cached_vectors = cache / "stacksl" / "vectors-1"
        first = identity(sources[0], cache)
        if asked.cache is not None:
            cached_vectors.mkdir(parents=True)
            shutil.copy(asked.cache / "stacksl" / "vectors-1" / f"{first}.sqlite", cached_vectors)
        encode(sources[0], cache, train)
        for source in sources[1:]:
            name = identity(source, cache)
            if name != first:
                shutil.copy(cached_vectors / f"{first}.sqlite", cached_vectors / f"{name}.sqlite")
        for turn in range(asked.turns):
            for number, source in enumerate(sources):
                out = root / f"run-{turn}-{number}"
                words = (__file__, "--play", str(train), str(out))
                result = json.loads(called(source, cache, *words))
                if not taken[number] or result["seconds"] < taken[number]["seconds"]:
                    taken[number] = result  # the least disturbed turn
    rows = [
        {
            "source": str(path),
            "cpu_seconds": round(result["seconds"], 1),
            "phases": {n: round(result["phases"].get(n, 0.0), 1) for n in (*PHASES, "other")},
            "times_as_long_as_the_first": round(result["seconds"] / taken[0]["seconds"], 2),
            "same_purchases": result["bought"] == taken[0]["bought"],
        }
        for path, result in zip(asked.sources, taken, strict=True)
    ]
    text = json.dumps(rows, indent=1)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        play(*sys.argv[2:])
    else:
        main()
