"""Do many annotators at once wait for their next question, and does any answer get lost?

`stacksl label` serves one run of made-up texts in 20 classes (`hashing` features) in a process of
its own, on loopback. The annotators are simulated in this process. Each answers the first question
shown, after a pause drawn with mean --pace, and then asks for the next. Some answers are sent
twice at once, some again later (the same request), some again from a second tab with
another choice. The server is killed by SIGKILL at --kills random moments and started again.

Waiting is the time from sending an answer to having a question that was not answered yet, asked
from the server each time: nothing loaded before is used, as the page does. It is shown apart for
answers sent while the run refitted and bought, and for those that met a kill. An annotator for whom
no question was left is not counted. `entered` is the time until the reply that the answer is in
the ledger. At the end the ledger is compared with every reply: any loss, double or overspending
ends the script with an error.

    python benchmarks/label_page.py --items 3000 100000 --json label_page.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from answering import write_items

from stacksl.api import Run
from stacksl.label.site import csrf_of

GOAL = 0.3  # seconds at the 99th percentile
# The command, which also writes when the run refits and buys.
SERVER = """
import sys, time
from stacksl.cli.entry import call
from stacksl.runs.session.session import Session
log, play = open(sys.argv[1], "a", buffering=1), Session.play
def noted(session):
    print("begin", time.time(), file=log)
    try:
        return play(session)
    finally:
        print("end", time.time(), file=log)
Session.play = noted
sys.exit(call(["label", *sys.argv[2:], "--json"]))
"""
LINK = re.compile(r"(\S+)\s+http://\S+/#(\S+)")
ARTICLE = re.compile(r'<article data-key="([^"]+)".*?<div class="prompt"[^>]*>(.*?)</div>', re.S)


@dataclass
class Answered:
    """One answer, with the moments at which it was sent, entered and followed by a question."""

    who: str
    body: dict[str, Any]
    sent: float
    state: str = ""
    entered: float = 0.0
    next: float = 0.0


@dataclass
class Server:
    """`stacksl label` on one run, which may be killed and started again."""

    run: Path
    log: Path
    port: int = 0
    process: Any = None
    links: dict[str, str] = field(default_factory=dict)
    starts: list[tuple[float, float]] = field(default_factory=list)  # began, ready
    kills: list[float] = field(default_factory=list)
    peak: float = 0.0
    cpu: float = 0.0

    async def start(self) -> None:
        """Start the process; returns when it has printed its links."""
        began = time.time()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, str(self.log), str(self.run), "--port", str(self.port),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        said = b""
        while b"Each link works once" not in said:
            line = await self.process.stderr.readline()
            if not line:
                raise SystemExit(f"the server did not start:\n{said.decode()}")
            said += line
            if found := LINK.match(line.decode()):
                self.links[found[1]] = found[2]
        self.starts.append((began, time.time()))

    def look(self) -> None:
        """Note memory and processor time of the process so far."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        if memory := re.search(r"VmHWM:\s+(\d+)", status):
            self.peak = max(self.peak, int(memory[1]) / 1024)
        self.cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        """Kill the process and start another."""
        self.look()
        self.process.send_signal(signal.SIGKILL)
        self.kills.append(time.time())
        await self.process.wait()
        await self.start()

    def playing(self) -> list[tuple[float, float]]:
        """When the run refitted and bought."""
        spans: list[tuple[float, float]] = []
        begun = None
        for line in self.log.read_text().splitlines():
            word, moment = line.split()
            if word == "begin":
                begun = float(moment)
            elif begun is not None:
                spans.append((begun, float(moment)))
                begun = None
        return spans


class Annotators:
    """All annotators of a run, in one event loop.

    Attributes:
        done: every answer, in the order sent.
        replies: how often each state or HTTP status was the reply.
        requests: how many were sent, those of repeated answers among them.
    """

    def __init__(self, server: Server, names: Sequence[str], budget: int, pace: float) -> None:
        self.server, self.names, self.budget, self.pace = server, names, budget, pace
        self.draw = random.Random(budget)
        self.done: list[Answered] = []
        self.taken = 0
        self.over = asyncio.Event()
        self.replies: Counter[str] = Counter()
        self.requests = 0

    async def play(self) -> None:
        """Answer until every label of the budget was given."""
        async with asyncio.TaskGroup() as tasks:
            for name in self.names:
                tasks.create_task(self._annotator(name, tasks))

    async def _annotator(self, name: str, tasks: asyncio.TaskGroup) -> None:
        here = f"http://127.0.0.1:{self.server.port}"
        mine: list[Answered] = []
        async with httpx.AsyncClient(base_url=here, headers={"Origin": here}, timeout=30) as client:
            http: Any = client
            http.name = name  # whose link opens the page
            while (question := await self._question(http, mine)) is not None:
                if mine:
                    mine[-1].next = time.time()
                await asyncio.sleep(self.draw.expovariate(1 / self.pace))
                key, prompt = question
                topic = int(re.findall(r"topic(\d+)word", prompt)[0])
                body = {"key": key, "kind": "label", "position": topic}
                given = Answered(name, body, time.time())
                mine.append(given)
                self.done.append(given)
                tasks.create_task(self._give(http, given))
                self._repeat(http, mine, tasks)
            while any(not each.state for each in mine):
                await asyncio.sleep(0.1)

    async def _enter(self, http: Any) -> None:
        """Begin a session: the one before has ended with its server."""
        secret = self.server.links.pop(http.name, None)
        if secret is not None:
            reply = await http.post("/enter", json={"secret": secret})
            [token] = reply.cookies.values()
            http.headers["X-CSRF-Token"] = csrf_of(token)

    async def _question(self, http: Any, mine: Sequence[Answered]) -> tuple[str, str] | None:
        """The first question that was not answered; None once no label is left."""
        answered = {each.body["key"] for each in mine}
        while not self.over.is_set():
            self.requests += 1
            with suppress(httpx.TransportError):
                reply = await http.get("/rows")
                if reply.status_code == 401:
                    await self._enter(http)
                    continue
                assert reply.status_code == 200, reply.text
                for key, prompt in ARTICLE.findall(reply.text):
                    if key not in answered:
                        return key, prompt
            await asyncio.sleep(0.25)
        return None

    async def _give(self, http: Any, given: Answered) -> None:
        given.state = await self._send(http, given.body)
        given.entered = time.time()
        self.taken += given.state == "taken"
        if self.taken == self.budget:
            self.over.set()

    def _repeat(self, http: Any, mine: Sequence[Answered], tasks: asyncio.TaskGroup) -> None:
        """Now and then a double click, a queue sent again, or another choice in a second tab."""
        chance, old = self.draw.random(), self.draw.choice(mine)
        if chance < 0.1:
            tasks.create_task(self._send(http, mine[-1].body))
        elif chance < 0.2 and old.state:
            tasks.create_task(self._send(http, old.body))
        elif chance < 0.25 and old.state:
            other = {**old.body, "position": old.body["position"] ^ 1}
            tasks.create_task(self._send(http, other))

    async def _send(self, http: Any, body: dict[str, Any]) -> str:
        """Send an answer until there is a reply that it was entered; the state in it."""
        while True:
            self.requests += 1
            try:
                reply = await http.post("/answer", json=body)
            except httpx.TransportError:
                self.replies["no reply"] += 1
            else:
                state = reply.json()["state"] if reply.status_code == 200 else reply.status_code
                self.replies[str(state)] += 1
                if reply.status_code == 200:
                    return str(state)
                if reply.status_code in (401, 403):
                    await self._enter(http)
                else:
                    assert reply.status_code in (202, 503), reply.text
            await asyncio.sleep(0.25)


async def killing(server: Server, annotators: Annotators, kills: int) -> None:
    """Kill the server at random numbers of answers, some moments after each was reached."""
    draw = random.Random(kills)
    for number in sorted(draw.sample(range(1, annotators.budget), kills)):
        while annotators.taken < number:
            server.look()
            await asyncio.sleep(0.02)
        await asyncio.sleep(draw.random() * 0.5)
        await server.kill()
        say(annotators)


def say(annotators: Annotators) -> None:
    kills = len(annotators.server.kills)
    sys.stderr.write(f"\r{annotators.taken} of {annotators.budget} labels, {kills} kills  ")
    sys.stderr.flush()


async def played(run: Path, log: Path, asked: argparse.Namespace) -> tuple[Server, Annotators]:
    """One run from its first question to its end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Server(run, log, port)
    annotators = Annotators(server, names(asked.annotators), asked.budget, asked.pace)
    try:
        await server.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(annotators.play())
            tasks.create_task(killing(server, annotators, asked.kills))
            while not annotators.over.is_set():
                server.look()
                say(annotators)
                await asyncio.sleep(1)
        while server.process.returncode is None:
            server.look()
            await asyncio.sleep(1)
    finally:
        if server.process is not None and server.process.returncode is None:
            server.process.kill()
            await server.process.wait()
    return server, annotators


def checked(run: Path, annotators: Annotators) -> dict[str, int]:
    """The ledger next to every reply."""
    opened = Run.open(run)
    with opened.ledger as ledger:
        ledger.verify()
        events = Counter(row.event for row in ledger.rows())
        handed = {row.key: row for row in ledger.private.handed()}
        answers = {(row["item"], row["slot"], row["labeler"]): row for row in ledger.export()}
        budget, spent = ledger.accounts.budget, ledger.accounts.spent
    lost = 0
    for given in annotators.done:
        row = handed[given.body["key"]]
        entry = answers.get((row.item, row.slot, given.who), {})
        right = entry.get("answer") == row.order[given.body["position"]]
        lost += given.state != "taken" or entry.get("state") != "answered" or not right
    return {
        "answers": len(annotators.done),
        "lost": lost,
        "doubled": events["answered"] - len(annotators.done),
        "late": events["late"],
        "spent": spent,
        "budget": budget,
    }


def waits(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    if not seconds:
        return {"n": 0}
    half, most = np.percentile(seconds, [50, 99])
    percentiles = {"p50": half, "p99": most, "most": max(seconds)}
    return {"n": len(seconds)} | {
        name: round(1000 * float(v), 1) for name, v in percentiles.items()
    }


def made(items: int, folder: Path, asked: argparse.Namespace) -> Path:
    """A run over `items` that waits for its first answers."""
    data, classes = write_items(folder, items)
    words = f"--annotators {','.join(names(asked.annotators))} --budget {asked.budget}"
    words += f" --open-questions {asked.batch} --set sheets.overlap={asked.overlap}"
    words += " --features hashing --labeler file --quiet"
    program = [sys.executable, "-m", "stacksl", "run", str(data), "--classes", str(classes)]
    program += [*words.split(), "--out", str(folder / "run")]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    return folder / "run"


def measured(items: int, run: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One run over `items`, checked by its ledger."""
    log = run.with_name("log")
    log.touch()
    began, used = time.time(), time.process_time()
    server, annotators = asyncio.run(played(run, log, asked))
    used = time.process_time() - used
    ended = max(each.entered for each in annotators.done)
    down = list(zip(server.kills, (ready for _, ready in server.starts[1:]), strict=True))
    plays = server.playing()

    def meets(given: Answered, spans: Sequence[tuple[float, float]]) -> bool:
        end = given.next or given.entered
        return any(first <= end and given.sent <= last for first, last in spans)

    groups: dict[str, list[float]] = {"all": [], "during a refit": [], "with a kill": []}
    entered: dict[str, list[float]] = {"all": [], "during a refit": []}
    for given in annotators.done:
        if meets(given, down):
            if given.next:
                groups["with a kill"].append(given.next - given.sent)
            continue
        for name in ("all", *(("during a refit",) if meets(given, plays) else ())):
            entered[name].append(given.entered - given.sent)
            if given.next:
                groups[name].append(given.next - given.sent)
    starts = [ready - first for first, ready in server.starts]
    return {
        "items": items,
        "annotators": asked.annotators,
        "kills": len(server.kills),
        **checked(run, annotators),
        "requests": annotators.requests,
        "replies": dict(annotators.replies),
        "seconds": round(ended - began, 1),
        "next": {name: waits(found) for name, found in groups.items()},
        "entered": {name: waits(found) for name, found in entered.items()},
        "refits": waits([last - first for first, last in plays]),
        "start_seconds": [round(min(starts), 2), round(max(starts), 2)],
        "server_peak_mib": round(server.peak),
        "server_cpu_seconds": round(server.cpu, 1),
        "client_cpu_seconds": round(used, 1),
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def table(found: dict[str, Any]) -> str:
    """What was measured over one number of items."""
    kept = {name: found[name] for name in ("answers", "lost", "doubled", "late", "spent", "budget")}
    lines = [
        f"{found['items']:,} items, {found['annotators']} annotators, {found['kills']} kills:"
        f" {', '.join(f'{name} {value}' for name, value in kept.items())}",
        f"{'milliseconds':<34}{'n':>6}{'p50':>9}{'p99':>9}{'most':>9}",
    ]
    for part in ("next", "entered"):
        lines += [_line(f"{part}, {name}", each) for name, each in found[part].items()]
    lines += [_line("refit and purchase", found["refits"])]
    lines += [
        f"start {found['start_seconds']} s, server {found['server_peak_mib']} MiB and"
        f" {found['server_cpu_seconds']} s CPU since its last start, clients"
        f" {found['client_cpu_seconds']} s CPU, {found['seconds']} s in all, load {found['load']}"
    ]
    return "\n".join(lines)


def _line(name: str, each: dict[str, float]) -> str:
    return (
        f"{name:<34}"
        + f"{each['n']:>6}"
        + "".join(f"{each[k]:>9,.0f}" for k in ("p50", "p99", "most") if k in each)
    )


def names(count: int) -> list[str]:
    """The names of the annotators."""
    return [f"a{number:02d}" for number in range(1, count + 1)]


def main() -> None:
    """Measure, print a table, and write with --json; exits with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[3_000, 100_000])
    parser.add_argument("--annotators", type=int, default=50)
    parser.add_argument("--budget", type=int, default=600)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--overlap", type=int, default=60)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pace", type=float, default=4.0, help="mean seconds for an answer (4)")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows, good = [], True
    for items in asked.items:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(items, made(items, Path(folder), asked), asked))
        print("\n" + table(rows[-1]), flush=True)
        one = rows[-1]
        good &= one["lost"] == one["doubled"] == 0 and one["spent"] == one["budget"]
        worst = max(each.get("p99", 0) for each in list(one["next"].values())[:2])
        good &= worst <= 1000 * GOAL
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
