"""A run of MedQA's size from cached features to its report: time, fsyncs and memory.

    python benchmarks/end_to_end.py [--json FILE] [--cores 2]

T = 10,178 items with K = 5 options and synthetic pair features of d = 384, at budget 0.1 and the
default settings: `Session.play`, which is what `stacksl run` calls, over features
that lie frozen in the run's folder. Ledger, decisions, saved arrays, refit and report are all in
the time. The run is played at T and at 2T, each in a process of its own, to see what memory
does: `anonymous` is what the run itself adds, beyond the items and the memory-mapped features.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROUNDS, K, DIM, BUDGET = 10_178, 5, 384, "0.1"
SECONDS = 15.0


def status(name: str) -> float:
    """A line of /proc/self/status in MiB; NaN where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))


class Peak:
    """The largest anonymous memory while it is watched, in MiB."""

    def __init__(self) -> None:
        self.most = self.before = status("RssAnon")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.most = max(self.most, status("RssAnon"))

    def added(self) -> float:
        """What came on top since it was made."""
        self._stop.set()
        self._thread.join()
        return self.most - self.before


def job_of(rounds: int, folder: Path) -> Any:
    """A run over `rounds` items whose features lie frozen in its folder."""
    import numpy as np

    from stacksl import Item, prepare
    from stacksl.core.blocks import PairBlock
    from stacksl.features import make_features
    from stacksl.features.store import save_block
    from stacksl.files import arrays
    from stacksl.runs.session.setup import begin
    from stacksl.runs.storage.folder import RunFolder

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(rounds * K, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    noise = generator.gumbel(size=(rounds, K))
    hidden = 30.0 * generator.normal(size=DIM) / DIM**0.5
    gold = np.argmax((rows @ hidden).reshape(rounds, K) + noise, axis=1).tolist()
    items = [
        Item(f"q{n}", f"question {n} on topic {n % 97}", tuple(f"answer {n} {x}" for x in range(K)))
        for n in range(rounds)
    ]
    settings = {"budget": BUDGET, "features": "hashing", "audit": 0}
    plan = prepare(items, gold, out=folder, settings=settings)
    run = RunFolder.create(plan.out)
    spec = replace(plan.spec, folder=run)
    begin(spec, (), None)
    features = make_features("hashing", classes=None)
    features.fit(items[:500])
    arrays.save(run.features / "map.safetensors", features.state())
    offsets = np.arange(0, rounds * K + 1, K, dtype=np.int64)
    ids = [item.id for item in items]
    save_block(run.features, PairBlock(rows, offsets), features.fingerprint, ids)
    return spec


def child(rounds: int, folder: Path, cores: int) -> dict[str, Any]:
    """One run in this process."""
    import gc

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    spec = job_of(rounds, folder)
    gc.collect()

    from stacksl.ledger.store.database import Store
    from stacksl.runs.session.session import Session

    phases: dict[str, list[float]] = {}
    commits: list[float] = []
    commit = Store.commit

    def timed(store: Store) -> None:
        begun = time.perf_counter()
        commit(store)
        commits.append(time.perf_counter() - begun)

    Store.commit = timed  # type: ignore[method-assign,assignment]

    def told(progress: Any) -> None:
        memory = status("RssAnon") - peak.before
        phases[progress.phase] = [time.perf_counter() - start, memory]

    peak, start, cpu = Peak(), time.perf_counter(), time.process_time()
    with Session.open(spec, told) as session:
        session.play()
        ledger = session.ledger
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {
        "rounds": rounds, "seconds": seconds, "cpu_seconds": cpu, "phases": phases,
        "labels": ledger.accounts.asked, "budget": ledger.accounts.budget,
        "ledger_rows": ledger.head.count,
        "fsyncs": len(commits), "fsync_seconds": sum(commits),
        "anonymous_added_mib": peak.added(), "peak_rss_mib": status("VmHWM"),
    }  # fmt: skip


def spawned(rounds: int, cores: int) -> dict[str, Any]:
    """One run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", str(rounds), folder, str(cores)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        rounds, folder, cores = sys.argv[2:]
        print(json.dumps(child(int(rounds), Path(folder, "run"), int(cores))))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    rows = [spawned(rounds, options.cores) for rounds in (ROUNDS, 2 * ROUNDS)]
    print(
        "      T  seconds   (cpu)  labels  ledger rows  fsyncs  (seconds)  MiB added  peak RSS MiB"
    )
    for row in rows:
        print(
            f"{row['rounds']:7}{row['seconds']:9.2f}{row['cpu_seconds']:8.2f}{row['labels']:8}"
            f"{row['ledger_rows']:13}{row['fsyncs']:8}{row['fsync_seconds']:11.2f}"
            f"{row['anonymous_added_mib']:11.1f}{row['peak_rss_mib']:14.1f}"
        )
        ends = ", ".join(f"{n} {at:.2f} s {m:.0f} MiB" for n, (at, m) in row["phases"].items())
        print(f"        at the end of each phase: {ends}")
    met = rows[0]["seconds"] <= SECONDS
    print(
        f"bar: T = {ROUNDS} in {rows[0]['seconds']:.2f} of {SECONDS:g} s, "
        f"{'met' if met else 'MISSED'}"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"rows": rows, "bar": SECONDS, "met": met}, indent=1) + "\n"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
