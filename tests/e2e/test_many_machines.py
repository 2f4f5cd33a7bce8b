"""Two nodes of Ray, one of them killed on the way: the same rows and bits as on one machine."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.api.parts import label_parts
from stacksl.features import weights
from stacksl.features.minilm import MiniLM

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra ray)")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(weights.minilm_lacks(), reason="the extra minilm is not installed"),
]
ABOUT = {"card": "my card number {} has not arrived", "cash": "the machine kept cash, {} in all"}
TEXTS = [
    (f"{text.format(n)}, {'please ' * (n % 23)}help", name)
    for n in range(900)
    for name, text in ABOUT.items()
]


@pytest.fixture
def cluster(monkeypatch) -> Iterator[Any]:
    """A cluster of two nodes with a CPU each; `second` is the one that holds no driver."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    # On Linux a node else has the machine's address in its network, which no test may use.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")  # in the actors as well
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def kill(cluster: Any) -> None:
    """End the second node at once, as a machine that goes down."""
    cluster.remove_node(cluster.second, allow_graceful=False)


def test_vectors_are_the_same_though_a_node_died(cluster, monkeypatch) -> None:
    texts = [text for text, _ in TEXTS] * 2
    texts = [f"{text} {n}" for n, text in enumerate(texts)]
    expected = MiniLM().encode(texts)
    seen: list[int] = []

    def show(done: int, total: int) -> None:
        if done and not seen:
            kill(cluster)
        seen.extend([done] if done else [])

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    found = MiniLM().encode(texts, show)
    np.testing.assert_array_equal(found, expected)
    assert seen[-1] == len(texts)
    assert len(seen) > 1
    assert_one_left()


def test_a_run_and_its_labels_are_the_same_though_a_node_died(
    cluster, tmp_path, monkeypatch
) -> None:
    pool = tmp_path / "pool.csv"
    pool.write_text("text,label\n" + "".join(f'"{text}",{name}\n' for text, name in TEXTS))
    given = {"budget": 30, "audit": 0, "features": "sentences:minilm"}
    here = stacksl.run(str(pool), out=tmp_path / "here", **given)
    source = tmp_path / "parts"
    source.mkdir()
    for part in range(8):
        rows = [json.dumps({"text": f"{text} again {part}"}) for text, _ in TEXTS[::2]]
        (source / f"part-{part}.jsonl").write_text("\n".join(rows) + "\n")
    list(label_parts(here, str(source), str(tmp_path / "one"), {}, None))

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    there = stacksl.run(str(pool), out=tmp_path / "there", **given)
    assert files(there.path / "model") == files(here.path / "model")
    out = tmp_path / "two"
    stopped = label_parts(there, str(source), str(out), {}, None)
    next(stopped)
    stopped.close()  # a command that was stopped
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*.jsonl")}
    left: list[int] = []

    def kill_on_the_way() -> None:
        while (there := len(list(out.glob("*.jsonl")))) == len(finished):
            time.sleep(0.02)
        left.append(8 - there)
        kill(cluster)

    killer = threading.Thread(target=kill_on_the_way)
    killer.start()
    found = list(label_parts(there, str(source), str(out), {}, None))
    killer.join()
    assert 0 < left[0] < 8
    assert sum(row["kept"] for row in found) == len(finished) < 7
    assert finished == {path: path.stat().st_mtime_ns for path in finished}
    assert files(out) == files(tmp_path / "one")
    assert_one_left()


def assert_one_left() -> None:
    """One node is left, once Ray has noticed that the other went down."""
    until = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) > 1 and time.monotonic() < until:
        time.sleep(0.5)
    assert sum(node["Alive"] for node in ray.nodes()) == 1


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}
