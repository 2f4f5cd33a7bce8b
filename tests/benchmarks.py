"""The benchmarks, their committed results, and the pages that show these."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


def benchmark(name: str) -> Any:
    """The module of a benchmark; they read each other by name."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return import_module(name)


def record(name: str) -> Any:
    """What is committed of a measurement."""
    return json.loads((FOLDER / "results" / f"{name}.json").read_text(encoding="utf-8"))


def marked_table(page: str, name: str) -> str:
    """What a page has between the marks of a benchmark."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"<!-- benchmark: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    return str(found).strip()
