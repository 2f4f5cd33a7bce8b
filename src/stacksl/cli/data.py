"""`stacksl data`: what a file holds, before any label is bought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, facts

if TYPE_CHECKING:
    from stacksl.data import Dataset

__all__ = ["check"]

Against = Annotated[
    str | None,
    typer.Option("--against", metavar="TEST", help="A test file that should share no item."),
]


def check(
    file: options.File,
    against: Against = None,
    format: options.Format = None,
    prompt_column: options.PromptColumn = None,
    label_column: options.LabelColumn = None,
    max_candidates: options.MaxCandidates = None,
    strict: options.Strict = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what was understood of a file, and every fault with its row.

    Rows that a run would set aside are listed with their reason. The exit code is 2 where a run
    would refuse the file.
    """
    from stacksl.data import check as faults_of
    from stacksl.data import read

    named = {"prompt": prompt_column, "label": label_column}
    columns = {role: name for role, name in named.items() if name is not None}
    reading: dict[str, Any] = {"format": format, "columns": columns or None}
    if max_candidates is not None:
        reading["max_candidates"] = max_candidates
    dataset = read(file, **reading, strict=bool(strict), lenient=not strict)
    other = read(against, **reading, lenient=True) if against is not None else None
    warnings = faults_of(dataset, other)
    result = _facts(dataset, warnings)
    print(as_json(result) if json else _shown(result))


def _facts(dataset: Dataset, warnings: list[str]) -> dict[str, Any]:
    sizes = [len(item.candidates) for item in dataset.items]
    return {
        "name": dataset.name,
        "format": dataset.format,
        "columns": dict(dataset.columns),
        "items": len(dataset.items),
        "answers": len(dataset.answers),
        "classes": None if dataset.classes is None else len(dataset.classes),
        "candidates": [min(sizes), max(sizes)] if sizes else [0, 0],
        "rejected": [{"row": r.row, "id": r.id, "reason": r.reason} for r in dataset.rejected],
        "warnings": warnings,
    }


def _shown(result: dict[str, Any]) -> str:
    low, high = result["candidates"]
    span = count(low) if low == high else f"{count(low)} to {count(high)}"
    fixed = "the same classes for every item" if result["classes"] is not None else "its own"
    columns = ", ".join(f"{role} from '{name}'" for role, name in result["columns"].items())
    top = facts(
        [
            ("File", result["name"]),
            ("Format", result["format"]),
            ("Columns", columns or None),
            ("Items", count(result["items"])),
            ("With an answer", count(result["answers"])),
            ("Candidates", f"{span}, {fixed}"),
            ("Set aside", count(len(result["rejected"]))),
        ]
    )
    faults = [f"  row {each['row']}: {each['reason']}" for each in result["rejected"]]
    warned = [f"  warning: {sentence}" for sentence in result["warnings"]]
    return "\n".join([top, *faults, *warned])
