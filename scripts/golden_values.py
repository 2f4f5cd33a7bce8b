"""The values of a finished golden run, read from its folder without any module of stacksl.

What is random or a time is left out here and nowhere else: `EXCLUDED` and `RANDOM`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

EXCLUDED = {
    "created": "a time",
    "finished": "a time",
    "learnt_at": "a time",
    "time": "a time",
    "seconds": "a duration",
    "peak_memory": "a measurement of the process",
    "previous": "a hash over times and salts",
    "hash": "a hash over times and salts",
    "words": "a salted hash; the texts themselves are compared in its place",
    "commitment": "a salted hash of an item's text",
    "digest": "a hash of a file that holds times or salts",
    "fingerprints": "hashes of files, and of the ledger; the features are compared themselves",
    "identity": "a hash of the feature map's configuration; the map is compared itself",
    "texts": "a hash of class names, beside their feature rows",
    "versions": "the versions of a tree and of its libraries",
    "key": "the name of a sheet's row",
    "report": "where the report lies",
}
"""What may differ between two plays, or is compared under another name, and why."""

RANDOM = re.compile(r"\b[0-9a-f]{16,}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""Hashes, surrogates and times within a text."""

Rows = list[dict[str, Any]]


def plain(value: Any, names: dict[str, str]) -> Any:
    """`value` without what is excluded, and with the names behind random codes."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in EXCLUDED}
        if {"name", "value"} <= set(kept) and kept["name"] in EXCLUDED:
            return None
        return {str(k): plain(v, names) for k, v in kept.items()}
    if isinstance(value, list | tuple):
        return [plain(each, names) for each in value]
    if isinstance(value, str):
        for folder in (str(Path.cwd()), os.environ["PYTHONPATH"]):
            value = value.replace(f"{folder}/", "")
        return RANDOM.sub("RANDOM", names.get(value, value))
    return value


def chain(names: dict[str, str]) -> dict[str, Any]:
    """The ledger's rows in their order: rounds as decisions, the others as events.

    Fills `names`: item ids by surrogate, people by code, free texts by their salted hash.
    """
    (path,) = Path("run").rglob("*.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        tables: dict[str, Rows] = {}
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            tables[name] = [dict(row) for row in db.execute(f'SELECT * FROM "{name}"')]
    chained = (t for t in tables.values() if t and {"event", "payload", "seq"} <= set(t[0]))
    rows = sorted(next(chained, []), key=lambda row: row["seq"])
    rows = [row for row in rows if row["event"] != "stored"]  # salted digests of other tables
    for row in rows:  # forgotten items by where they appear
        if row.get("item") is not None:
            names.setdefault(row["item"], f"forgotten in row {row['seq']}")
    for table in tables.values():
        for row in table:
            if row.get("surrogate") and row.get("id"):
                names[row["surrogate"]] = row["id"]
            elif row.get("code"):
                names[row["code"]] = row["name"]
            elif "words" in row:
                names[row["words"]] = f"{row.get('text')} / {row.get('note')}"
    events = []
    for row in rows:
        told = json.loads(row.pop("payload"))
        told.pop("item", None)  # the commitment to the item's text, a salted hash
        told.pop("stored", None)
        told = {("free text" if k == "words" else k): v for k, v in told.items()}
        events.append({k: v for k, v in row.items() if k not in ("run", "seq")} | told)
    kinds = {True: "decisions", False: "events"}
    found: dict[str, Any] = {name: [] for name in kinds.values()}
    for row in events:
        found[kinds[row["event"] == "round"]].append(row)
    found["order"] = [f"{row['event']} {names.get(row.get('item'))}" for row in events]
    return found


def arrays() -> dict[str, dict[str, Any]]:
    """The arrays of a run: its head, adapters, features and the rest of the learner's state."""
    import numpy as np
    from safetensors.numpy import load, load_file

    found: dict[str, dict[str, Any]] = {"head": {}, "adapter": {}, "features": {}, "theta": {}}
    paths = sorted(Path("run").rglob("*.safetensors"))
    last = [path for path in paths if "checkpoint" in str(path)][-1:]
    tables = {str(p.relative_to("run")): load_file(p) for p in paths if "checkpoint" not in str(p)}
    for data in [path.read_bytes() for path in last] or saved():
        tables["checkpoint"] = load(data)
    for short, table in tables.items():
        for name, value in table.items():
            words = f"{short}/{name}"
            kinds = ((k, k) for k in ("head", "adapter", "lora", "features"))
            kind = next((k for k, part in kinds if part in words), "theta")
            if name not in EXCLUDED:
                found["adapter" if kind == "lora" else kind][words] = value
    for path in Path("run").rglob("*.npy"):
        found["features"][str(path.relative_to("run"))] = np.load(path)
    return found


def saved() -> list[bytes]:
    """The newest arrays of the learner that the run's database holds; none of an older tree."""
    (path,) = Path("run").rglob("*.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'arrays'").fetchall():
            return []
        query = "SELECT data FROM arrays ORDER BY seq DESC LIMIT 1"
        return [data for (data,) in db.execute(query)]


def located(name: str) -> Path:
    """The one file of this name, at any depth of the run's folder."""
    (path,) = Path("run").rglob(name)
    return path


def read(play: Any) -> dict[str, Any]:
    """Every value of the finished run, by field."""
    names: dict[str, str] = {}
    values: dict[str, Any] = chain(names)
    values["purchases"] = play.exported()
    test = "test.jsonl" if Path("test.jsonl").exists() else "test.csv"
    lines = play.call("predict", "run", test, "--quiet").splitlines()
    values["predictions"] = [json.loads(line) for line in lines]
    play.call("ledger", "verify", "run", name="verify")
    play.call("ledger", "replay", "run", name="replay")
    values["report"] = json.loads(located("facts.json").read_text(encoding="utf-8"))
    values["status"] = play.status()
    values |= {"sheets": play.sheets, "calls": [list(call) for call in play.calls]}
    return {**{name: plain(value, names) for name, value in values.items()}, **arrays()}
