"""How fast does a model answer requests after it was handed over?

A run on Banking77 with `sentences:minilm` is exported, and three servers answer on loopback, each a
process of its own: the lines of FastAPI in docs/hand-over.md over the folder; MLflow's server over
the same folder (--mlflow names its program, in an environment of its own; it is left out
otherwise); and the same lines of FastAPI over sentence-transformers with the same head, in NumPy. A
request has one text of the test file, over a connection that stays open, from 1 or 16 threads of
this process. Servers are measured in turn, and ratios are taken inside a turn. The CPU time of a
server and its children a request, as the kernel counts it, depends least on what else the machine
does. Before that, each server has to give the same class for every one of 200 texts.

    python benchmarks/serving.py --data $STACKSL_DATA --json serving.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import stacksl
from stacksl.api.labeling import write_model
from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.data import read
from stacksl.features.weights import find_minilm

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "hand-over.md"
CLIENTS = (1, 16)
WARM = 30  # requests that are not counted
THEIRS = '''
import json
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


class Model:
    """The same head over sentence-transformers."""

    def __init__(self, folder):
        with np.load(folder / "head.npz") as head:
            self.coefficients, self.intercepts = head["coefficients"], head["intercepts"]
            self.weights = head["weights"]
        self.classes = json.loads((folder / "stacksl.json").read_text())["classes"]
        self.encoder = SentenceTransformer({encoder!r}, device="cpu", local_files_only=True)

    def predict(self, texts):
        vectors = self.encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        logits = np.einsum("nd,mkd->nmk", vectors.astype(np.float64), self.coefficients)
        policies = np.exp(logits + self.intercepts)
        policies /= policies.sum(axis=2, keepdims=True)
        mixed = np.einsum("nmk,m->nk", policies, self.weights)
        best = mixed.argmax(axis=1)
        return [
            {{"choice": self.classes[at], "index": int(at), "probability": float(row[at])}}
            for at, row in zip(best, mixed)
        ]
'''


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers: its command, folder, path, and a body for one text."""

    command: list[str]
    folder: Path
    port: int
    path: str
    body: Callable[[str], Any]
    processes: list[int] = field(default_factory=list)

    def connect(self) -> HTTPConnection:
        """A connection to it."""
        return HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, connection: HTTPConnection, text: str) -> str:
        """The class that it says of a text."""
        headers = {"Content-Type": "application/json"}
        connection.request("POST", self.path, json.dumps(self.body(text)), headers)
        response = connection.getresponse()
        reply = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{self.command[0]} answered {response.status}: {reply}")
        return (reply["predictions"] if isinstance(reply, dict) else reply)[0]["choice"]

    def cpu_seconds(self) -> float:
        """The CPU time, user and system, that its process and its children have taken."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                values = stat.read_text().rpartition(")")[2].split()
                if int(values[2]) in self.processes:  # its group
                    ticks += int(values[11]) + int(values[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server, ready to answer; ended afterwards."""
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
        environment.pop("OMP_NUM_THREADS", None)
        before = environment.get("PATH", "")
        environment["PATH"] = f"{Path(self.command[0]).parent}{os.pathsep}{before}"
        environment["OMP_WAIT_POLICY"] = "PASSIVE"  # torch's threads sleep while they wait
        environment["MLFLOW_DISABLE_TELEMETRY"] = "true"
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process.pid)
        try:
            for _ in range(240):
                time.sleep(0.5)
                try:
                    self.ask(self.connect(), "are you there?")
                    break
                except OSError:
                    continue
            else:
                raise SystemExit((self.folder / "log").read_text())
            yield
        finally:
            os.killpg(process.pid, 15)
            process.wait()


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def lines_of_guide() -> str:
    """The server of docs/hand-over.md."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    return next(block for block in blocks if "FastAPI()" in block)


def make_servers(root: Path, data: Path, mlflow: str | None) -> dict[str, Server]:
    """The servers over one run, each with a folder of its own."""
    run = stacksl.run(
        data / "banking77" / "train.csv",
        features="sentences:minilm",
        budget=400,
        audit=0,
        out=root / "run",
    )
    out = write_model(run, root / "ours")
    theirs = root / "theirs"
    theirs.mkdir()
    shutil.copy(out / "stacksl.json", theirs)
    head = run.model.head
    heads = head.heads if isinstance(head, MixedHead) else (head,)
    assert all(isinstance(each, ClassHead) for each in heads)
    np.savez(
        theirs / "head.npz",
        coefficients=np.stack([each.coefficients for each in heads]),
        intercepts=np.stack([each.intercepts for each in heads]),
        weights=head.weights if isinstance(head, MixedHead) else np.ones(1),
    )
    (theirs / "use.py").write_text(THEIRS.format(encoder=str(find_minilm())), encoding="utf-8")
    servers = {}
    for name, folder in (("fastapi", out), ("sentence_transformers", theirs)):
        (folder / "serve.py").write_text(lines_of_guide(), encoding="utf-8")
        port = free_port()
        words = ["-m", "uvicorn", "serve:app", "--port", str(port), "--log-level", "warning"]
        command = [sys.executable, *words]
        servers[name] = Server(command, folder, port, "/predict", lambda text: {"texts": [text]})
    if mlflow is not None:
        served, port = root / "mlflow", free_port()
        shutil.copytree(out, served)
        words = ["models", "serve", "-m", str(served), "--env-manager", "local", "-p", str(port)]
        servers["mlflow"] = Server(
            [mlflow, *words],
            served,
            port,
            "/invocations",
            lambda text: {"inputs": {"text": [text]}},
        )
    return servers


def load(server: Server, texts: list[str], clients: int) -> dict[str, float]:
    """Requests a second; in milliseconds the 99th percentile of their times, and the CPU of one."""

    def client(number: int) -> list[float]:
        connection, times = server.connect(), []
        for text in texts[number::clients]:
            start = time.perf_counter()
            server.ask(connection, text)
            times.append(time.perf_counter() - start)
        connection.close()
        return times

    start, cpu = time.perf_counter(), server.cpu_seconds()
    with ThreadPoolExecutor(clients) as pool:
        times = [t for part in pool.map(client, range(clients)) for t in part]
    lasted = time.perf_counter() - start
    return {
        "requests_a_second": len(texts) / lasted,
        "p99_ms": 1e3 * float(np.quantile(times, 0.99)),
        "cpu_ms": 1e3 * (server.cpu_seconds() - cpu) / len(texts),
    }


def measured(servers: dict[str, Server], texts: list[str], turns: int) -> dict[str, Any]:
    """Medians over the turns, and ratios to sentence-transformers inside each turn."""
    loads: dict[tuple[str, int], list[dict[str, float]]] = {}
    for server in servers.values():
        load(server, texts[:WARM], 1)
    for _ in range(turns):
        for clients in CLIENTS:
            for name, server in servers.items():
                loads.setdefault((name, clients), []).append(load(server, texts, clients))
    result: dict[str, Any] = {}
    for (name, clients), rows in loads.items():
        base = loads["sentence_transformers", clients]
        row: dict[str, Any] = {}
        for key in ("requests_a_second", "p99_ms", "cpu_ms"):
            values = np.array([each[key] for each in rows])
            ratios = values / np.array([each[key] for each in base])
            row[key] = round(float(np.median(values)), 1)
            row[f"{key}_ratio"] = round(float(np.median(ratios)), 2)
            row[f"{key}_ratios"] = [round(float(ratio), 2) for ratio in ratios]
        result.setdefault(name, {})[f"{clients} clients" if clients > 1 else "1 client"] = row
    return result


def main() -> None:
    """Measure and print, or write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--mlflow", help="MLflow's program, such as /opt/mlflow/bin/mlflow")
    parser.add_argument("--requests", type=int, default=400, help="of each server and turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    texts = [item.prompt for item in read(asked.data / "banking77" / "test.csv").items]
    texts = texts[: asked.requests]
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        servers = make_servers(Path(root), asked.data, asked.mlflow)
        answers = {}
        for name, server in servers.items():
            stack.enter_context(server.running())
            connection = server.connect()
            answers[name] = [server.ask(connection, text) for text in texts[:200]]
        same = {name: answers[name] == answers["fastapi"] for name in answers}
        if not all(same.values()):
            raise SystemExit(f"servers differ: {same}")
        loads = [os.getloadavg()[0]]
        rows = measured(servers, texts, asked.turns)
        loads.append(os.getloadavg()[0])
    result = {
        "requests": len(texts),
        "turns": asked.turns,
        "cores": len(os.sched_getaffinity(0)),
        "load_before_and_after": [round(load, 1) for load in loads],
        "versions": {
            name: version(name)
            for name in ("onnxruntime", "fastapi", "sentence-transformers", "torch")
        },
        "servers": rows,
        "left_out": [] if asked.mlflow else ["mlflow"],
    }
    text = json.dumps(result, indent=1)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
