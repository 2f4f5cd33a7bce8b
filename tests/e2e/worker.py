"""A process that plays runs in forked children, and kills them where it is told to.

It imports everything once, the modules named as its further arguments too, and then reads one order
a line from stdin: a command's words, or a job, and perhaps a moment. A command may go on `apart`,
until another order asks how it ended. The moment is either `after`
so many seconds, or the n-th call of a function, or of any of several, `before` or `after` it. The
child dies by SIGKILL: nothing of the package gets to clean up. One reply a line.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from stacksl import api
from stacksl.errors import RunWarning
from stacksl.ledger.purchases import Answer
from stacksl.runs.changes.forgetting import forget
from stacksl.types import Item

sys.path.insert(0, str(Path(__file__).parents[1]))
from foretold import foretell

foretell()


class PaidLabeler:
    """Answers once for each token and writes down what it was paid for; nothing is repeatable."""

    name = "paid"
    repeatable = False

    def __init__(self, log: Path, answers: dict[str, int]) -> None:
        self._log, self._answers = log, answers
        self._ready: list[Answer] = []
        lines = log.read_text().splitlines() if log.exists() else []
        self._paid = {tuple(json.loads(line)) for line in lines}

    def ask(self, purchases: Any) -> None:
        for p in purchases:
            key = (p.item, p.slot, p.token)
            if key not in self._paid:
                with self._log.open("a") as file:
                    file.write(json.dumps(key) + "\n")
                self._paid.add(key)
            self._ready.append(Answer(*key, self._answers[p.item], self.name, p.price))

    def answers(self) -> list[Answer]:
        given, self._ready = self._ready, []
        return given

    def pending(self) -> list[Any]:
        return []


def arm(where: str | list[str], call: int, when: str, by: signal.Signals = signal.SIGKILL) -> None:
    """Die at the `call`-th call of `module:name` or `module:Class.name`, or of any in a list."""
    calls = 0

    def armed(original: Any) -> Any:
        def deadly(*words: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            mine = calls
            if mine == call and when == "before":
                os.kill(os.getpid(), by)
            result = original(*words, **named)
            if mine == call and when == "after":
                os.kill(os.getpid(), by)
            return result

        return deadly

    for each in [where] if isinstance(where, str) else where:
        module, _, path = each.partition(":")
        owner: Any = importlib.import_module(module)
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        setattr(owner, name, armed(getattr(owner, name)))


def play(order: dict[str, Any]) -> None:
    """Start the job, or take it up where it was cut off; or forget an item, or enter sheets."""
    out = Path(order["out"])
    if "forget" in order:
        forget(out, order["forget"])
        return
    if "sheets" in order:
        api.Run.open(out).answer(*map(Path, order["sheets"]))
        return
    labeler = None
    if order.get("paid"):
        labeler = PaidLabeler(Path(order["paid"]), order["answers"])
    if (out / "run.db").exists():
        api.Run.open(out).resume(labeler=labeler)
    else:
        api.run(
            order["data"], test=order.get("test"), out=out, labeler=labeler, **order["settings"]
        )


def command(order: dict[str, Any]) -> None:
    """`stacksl WORDS` in a folder and an environment, its two outputs into files; never returns."""
    from stacksl import cli

    for stream, path in zip((sys.stdout, sys.stderr), order["outputs"], strict=True):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(order["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    exec(order["first"], {"__name__": "first"})
    sys.argv = ["stacksl", *order["words"]]
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))


def child(order: dict[str, Any], fault: Path) -> None:
    """The forked process; never returns."""
    code = 3
    os.environ.update(order.get("env", {}))
    try:
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RunWarning)
        if "words" in order:
            command(order)
        if order.get("kill"):
            arm(*order["kill"])
        play(order)
        code = 0
    except BaseException:
        fault.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def wait(pid: int, after: float | None) -> int:
    """The child's wait status; it is killed after so many seconds."""
    if after is None:
        return os.waitpid(pid, 0)[1]
    end = time.monotonic() + after
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def warm(folder: Path) -> None:
    """Play a run once: what it loads and compiles, a third of its time, the children have then."""
    os.environ["STACKSL_FEATURES"] = "hashing"
    items = [Item(f"i{n}", f"text {n}", ("yes", "no")) for n in range(12)]
    test = items[:4], dict.fromkeys(("i0", "i1", "i2", "i3"), 0)
    api.run(
        items, {item.id: n % 2 for n, item in enumerate(items)}, budget=4, out=folder, test=test
    )


def main() -> None:
    import jinja2  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.optimize  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    for name in ("session.session", "spec", "storage.status"):  # these load all that a run needs
        importlib.import_module(f"stacksl.runs.{name}")
    fault = Path(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    hashing = importlib.import_module("stacksl.features.hashing")
    once = importlib.import_module("once")
    hashing.leading_subspace = once.remember_subspaces(fault.parent)
    import typer.main

    typer.main.get_command = once.remember_commands()
    typer.main.get_command(importlib.import_module("stacksl.cli.app").app)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    warm(fault.parent / "warm")
    gc.collect()
    gc.freeze()  # else each child copies the pages of all objects when it looks for garbage
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "ended" in order:
            done, status = os.waitpid(order["ended"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else None
            print(json.dumps({"code": code}), flush=True)
            continue
        fault.unlink(missing_ok=True)
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            child(order, fault)
        if order.get("apart"):
            print(json.dumps({"pid": pid}), flush=True)
            continue
        status = wait(pid, order.get("after"))
        reply = {
            "killed": os.WIFSIGNALED(status),
            "code": None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
            "seconds": time.monotonic() - begun,
            "fault": fault.read_text() if fault.exists() else "",
        }
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
