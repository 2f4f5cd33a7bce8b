"""The pages of the documentation, their parts, and the names that a page may give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stacksl.core import GATES, SCORERS
from stacksl.features import FEATURES
from stacksl.labelers.registry import LABELERS
from stacksl.lm.training.refit import OBJECTIVES
from stacksl.runs.settings.resolve import PRESETS
from stacksl_lab.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
REGISTRIES: dict[str, Any] = {
    "gate": GATES,
    "scorer": SCORERS,
    "labeler": LABELERS,
    "features": FEATURES,
    "preset": PRESETS,
    "objective": OBJECTIVES,
    "study": STUDIES,
}


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", text)


def spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in SPAN.findall(prose(text))]


def rows_under(text: str, header: str) -> list[list[str]]:
    """The cells of the rows of the table whose first header cell is `header`."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            next(lines)
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found
