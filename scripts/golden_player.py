"""Play one golden run with the tree on PYTHONPATH, and keep its values in `values.pickle`.

    python scripts/golden_player.py NAME FOLDER

Trees that are laid out differently are played by this one file: it uses the command line and the
public Python API, and imports no module inside the package. `golden_values` reads what is left.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import pickle
import random
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golden_values import read

TOPICS = {
    "bread": "flour dough oven loaf yeast",
    "sea": "wave salt tide ship shore",
    "night": "star moon owl dark dream",
    "garden": "seed leaf soil bloom hedge",
}
BY_FILE = ("--labeler", "file", "--sheets", "csv")
NESTED = importlib.util.find_spec("stacksl.runs.settings.marks") is None
"""Whether the settings of the tree are in groups; in an earlier one their names are plain."""
Rows = list[dict[str, Any]]


def typed(words: tuple[object, ...]) -> list[str]:
    """The words of a command as the tree takes them."""
    known = [str(word) for word in words]
    if NESTED:
        return known
    plain = ["--batch" if word == "--open-questions" else word for word in known]
    return [re.sub(r"^(?:lm|update)\.(\w+=)", r"\1", word) for word in plain]


class Play:
    """A folder with data files in it, and what was called there with which exit code."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.sheets: Rows = []

    def call(self, *words: object, name: str = "") -> str:
        """What `stacksl WORDS` prints on stdout; its exit code is kept under `name`."""
        out, before = io.StringIO(), sys.argv
        sys.argv = ["stacksl", *typed(words)]
        code: Any = 0
        try:
            with contextlib.redirect_stdout(out):
                runpy.run_module("stacksl", run_name="__main__")
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            sys.argv = before
        self.calls.append((name or str(words[0]), int(code)))
        return out.getvalue()

    def run(self, *words: object) -> None:
        """`stacksl run` into the folder `run`."""
        self.call("run", *words, "--out", "run", "--yes", "--quiet")

    def killed(self, pattern: str, number: int, *words: object) -> None:
        """A call that is killed after its `number`-th write like `pattern`."""
        command = [sys.executable, __file__, "--killed", pattern, str(number), *typed(words)]
        self.calls.append(("killed", subprocess.run(command, check=False).returncode))

    def change(self, option: str, value: str, *more: str) -> None:
        """Change a run that has begun, and let it go on."""
        self.call("change", "run", option, value, *more, "--yes", "--quiet")
        self.call("resume", "run", "--quiet")

    def free(self, key: str, *more: str) -> None:
        """Free one row that was handed out."""
        options = ("run", "--key", key, *more, "--quiet")
        self.call_either(("change", *options), ("people", *options))

    def call_either(self, now: tuple[str, ...], before: tuple[str, ...]) -> None:
        """A call as it is typed now, or as `before` in a tree that knows no such option."""
        self.call(*now, name=before[0])
        if self.calls[-1][1] == 2:
            self.calls.pop()
            self.call(*before)

    def status(self) -> dict[str, Any]:
        """The run's status, as JSON."""
        values: dict[str, Any] = json.loads(self.call("status", "run", "--json"))
        self.calls.pop()
        return values

    def exported(self) -> Rows:
        """The purchases, one row each."""
        lines = self.call("ledger", "export", "run", "--json").splitlines()
        self.calls.pop()
        return [json.loads(line) for line in lines]

    def waiting(self) -> dict[str, Rows]:
        """The rows of each sheet that waits, by its file."""
        found = {}
        for sheet in self.status().get("sheets") or []:
            text = Path(sheet["file"]).read_text(encoding="utf-8-sig")
            found[sheet["file"]] = list(csv.DictReader(io.StringIO(text, newline="")))
        return found

    def answer(self, say: Callable[[str, dict[str, str]], str], *, wrong_key: bool = False) -> None:
        """Fill in the sheets that wait, and hand them in."""
        sheets = self.waiting()
        for name, rows in sheets.items():
            self.sheets += [{"sheet": Path(name).name, **row} for row in rows]
            for row in rows:
                row["answer"] = row["answer"] or say(name, row)
            if wrong_key:
                rows[-1]["key"] = "a2a2-a"
        filled = [write(f"filled-{Path(name).name}", rows) for name, rows in sheets.items()]
        self.call("answer", "run", *filled, "--quiet")

    def answer_all(self, say: Callable[[str, dict[str, str]], str]) -> None:
        """Answer until the run waits no more."""
        for _ in range(30):
            if self.status()["state"] != "waiting":
                return
            self.answer(say)
        raise SystemExit("the run still waits after 30 rounds of answers")


def write(name: str | Path, rows: Rows) -> str:
    """A CSV file of rows."""
    with open(name, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return str(name)


def texts(count: int, *, seed: int = 0, prefix: str = "i", topics: int = 3) -> Rows:
    """Texts of some topics, each with its class; one word in three is of any topic."""
    draw, names = random.Random(seed), list(TOPICS)[:topics]
    rows = []
    for n in range(count):
        topic = draw.choice(names)
        words = [draw.choice(TOPICS[topic].split()) for _ in range(4)]
        words += [draw.choice(TOPICS[draw.choice(names)].split()) for _ in range(2)]
        rows.append({"id": f"{prefix}{n}", "text": " ".join([*words, str(n)]), "label": topic})
    return rows


def questions(name: str, count: int, *, seed: int = 0) -> str:
    """A JSONL file of items with options of their own."""
    lines = []
    for n, row in enumerate(texts(count, seed=seed)):
        draw = random.Random(seed + n)
        options = [" ".join(draw.sample(TOPICS[t].split(), 2)) for t in list(TOPICS)[:3]]
        gold = list(TOPICS).index(row["label"])
        lines.append({"id": f"q{n}", "prompt": row["text"], "options": options, "answer": gold})
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return name


def files(count: int = 90, topics: int = 3) -> tuple[str, str]:
    """A file of texts with their classes and one to test on, and `classes.txt`."""
    Path("classes.txt").write_text("\n".join(list(TOPICS)[:topics]) + "\n", encoding="utf-8")
    return write("train.csv", texts(count)), write("test.csv", texts(30, seed=9, prefix="t"))


def say(sheet: str, row: dict[str, str]) -> str:
    """What people answer: the class, or that it is missing; ben is wrong about every fifth."""
    words, number = row["prompt"].split()[:4], int(row["prompt"].split()[-1])
    topic = next(t for t in TOPICS if words[0] in TOPICS[t].split())
    if topic not in row["options"]:
        return f"[none]: {topic}" if number % 2 else "[none]"
    return "sea" if "ben" in Path(sheet).name and number % 2 == 0 else topic


def pool(play: Play) -> None:
    """Classes, the default mode: a pool ranked in batches."""
    train, test = files()
    play.run(
        train, "--classes", "classes.txt", "--test", test, "--budget", 24, "--open-questions", 8
    )


def stream(play: Play) -> None:
    """Items with options of their own, each seen once."""
    data, test = questions("train.jsonl", 80), questions("test.jsonl", 30, seed=9)
    play.run(data, "--test", test, "--budget", 16, "--mode", "stream", "--seed", 3)


def sample(play: Play) -> None:
    """The built-in sample."""
    files()
    play.run("--budget", 30, "--set", "checkpoint_every=200")
    Path("test.csv").write_text("text\nhow to raise an exception\nslice a list\n")


def people(play: Play) -> None:
    """Sheets of two people: overlap, a wrong key, freed rows, late answers, an audit."""
    files()
    bare = write("bare.csv", [{"id": r["id"], "text": r["text"]} for r in texts(90)])
    words = (*BY_FILE, "--annotators", "anna,ben", "--overlap", 3, "--open-questions", 8)
    play.run(bare, "--classes", "classes.txt", "--budget", 24, "--audit", 4, *words)
    play.answer(say, wrong_key=True)
    late = []
    for drop in ((), ("--drop",)):  # the rows whose key was wrong; their answers come afterwards
        late.append(next(iter(play.waiting().values()))[-1] | {"answer": "sea"})
        play.free(late[-1]["key"], *drop)
    play.call("answer", "run", write("late.csv", late), "--quiet")
    play.answer_all(say)


def audit(play: Play) -> None:
    """An audit by the file's answers, which then join the final model."""
    train, _ = files()
    play.run(train, "--budget", 24, "--open-questions", 8, "--audit", 8)
    play.call_either(("change", "run", "--train-on-audit"), ("refit", "run", "--with-audit"))


def budget(play: Play) -> None:
    """A budget that is raised."""
    train, test = files()
    play.run(train, "--test", test, "--budget", 16, "--open-questions", 8, "--audit", 4)
    play.change("--budget", "28")


def more(play: Play) -> None:
    """More items, then more labels for them."""
    train, _ = files(60)
    play.run(train, "--budget", 16, "--open-questions", 8)
    play.change("--items", write("more.csv", texts(30, seed=5, prefix="more")))
    play.change("--budget", "24")


def owned(play: Play) -> None:
    """Labels held before, at the beginning and later."""
    train, test = files()
    held = write("owned.csv", texts(6, seed=4, prefix="own"))
    play.run(train, "--test", test, "--budget", 12, "--open-questions", 6, "--owned", held)
    play.change("--owned", write("later.csv", texts(5, seed=6, prefix="later")))


def added(play: Play) -> None:
    """A class that people miss, added and asked for again."""
    files(topics=2)
    bare = write("bare.csv", [{"id": r["id"], "text": r["text"]} for r in texts(60)])
    words = (*BY_FILE, "--annotators", "anna", "--open-questions", 8, "--audit", 0)
    play.run(bare, "--classes", "classes.txt", "--budget", 30, *words)
    play.answer(say)
    play.change("--add-class", "night", "--reopen")
    play.answer_all(say)


def forgotten(play: Play) -> None:
    """An item that was learnt and is forgotten, then more labels."""
    train, _ = files()
    play.run(train, "--budget", 16, "--open-questions", 8, "--set", "checkpoint_every=20")
    learnt = next(row["item"] for row in play.exported() if row["purpose"] == "train")
    play.call("forget", "run", "--id", learnt)
    write(train, [row for row in texts(90) if row["id"] != learnt])
    play.change("--budget", "24")


def killed(play: Play) -> None:
    """A stream that is killed when it has saved the learner's arrays, and resumed."""
    train, test = files()
    words = ("--mode", "stream", "--test", test, "--budget", 20, "--set", "checkpoint_every=25")
    out = ("--out", "run", "--yes", "--quiet")
    play.killed(r"checkpoint.*\.safetensors$|^INSERT INTO arrays", 2, "run", train, *words, *out)
    play.call("resume", "run", "--quiet")


def language(play: Play) -> None:
    """A language model with an adapter, killed before the record of a refit and resumed."""
    data, test = questions("train.jsonl", 24), questions("test.jsonl", 12, seed=9)
    quick = {"lm.lora_rank": 2, "lm.state_dim": 8, "lm.batch_size": 2, "update.learning_rate": 1e-2}
    words = [w for name, value in quick.items() for w in ("--set", f"{name}={value}")]
    words += ["--model", "sample", "--adapt", "lora", "--mode", "stream", "--device", "cpu"]
    words += ["--epochs", "2", "--budget", "8", "--refit-at", "0.5,1", "--test", test]
    words += ["--out", "run", "--yes"]
    play.killed(r"adapters/01$", 1, "run", data, *words, "--quiet")
    play.call("resume", "run", "--quiet")


def python(play: Play) -> None:
    """Labelled items in memory, by the Python API."""
    import stacksl

    _, test = files()
    classes = tuple(TOPICS)[:3]
    items = [stacksl.Item(row["id"], row["text"], classes) for row in texts(60)]
    answers = {row["id"]: classes.index(row["label"]) for row in texts(60)}
    tested = (items[40:], {item.id: answers[item.id] for item in items[40:]})
    known = {item.id: answers[item.id] for item in items[:40]}
    done = stacksl.run(items[:40], known, budget=12, test=tested, out="run", scorer="newton")
    play.calls.append(("evaluate", done.evaluate(test)["accuracy"]))


RUNS: tuple[Callable[[Play], None], ...] = (pool, stream, sample, people, audit, budget, more)
RUNS += (owned, added, forgotten, killed, language, python)
GOLDEN = {run.__name__: run for run in RUNS}


def kill_after(pattern: str, number: int) -> None:
    """Kill this process before its next write, once `number` of them are like `pattern`.

    A write is a file that is renamed, by its new name, or a transaction, by its SQL.
    """
    seen = 0

    def happened(what: str, begins: bool) -> None:
        nonlocal seen
        if begins and seen >= number:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += bool(re.search(pattern, what))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            happened(str(arguments[1]), begins=True)

    def connect(*words: Any, **named: Any) -> sqlite3.Connection:
        made = opened(*words, **named)
        made.set_trace_callback(lambda sql: happened(sql, begins=sql.startswith("BEGIN IMMEDIATE")))
        return made

    opened, sqlite3.connect = sqlite3.connect, connect  # its audit event comes too early to trace
    sys.addaudithook(watch)


def main(words: list[str]) -> None:
    """Play a run in a folder, or a call that is killed."""
    if words[0] == "--killed":
        kill_after(words[1], int(words[2]))
        sys.argv = ["stacksl", *words[3:]]
        runpy.run_module("stacksl", run_name="__main__")
        return
    import stacksl

    name, folder = words
    if not Path(stacksl.__file__).is_relative_to(os.environ["PYTHONPATH"]):
        sys.exit(f"stacksl should lie in {os.environ['PYTHONPATH']}, got {stacksl.__file__}")
    os.chdir(folder)
    play = Play()
    GOLDEN[name](play)
    Path("values.pickle").write_bytes(pickle.dumps(read(play)))


if __name__ == "__main__":
    main(sys.argv[1:])
