"""`stacksl data`: what a file holds, before any label is bought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, rejected, visible

if TYPE_CHECKING:
    from stacksl.data import Dataset

Against = Annotated[
    str | None,
    typer.Option("--against", metavar="TEST", help="A test file that should share no item."),
]


@options.takes(*options.READING, "classes", "max_candidates", "strict")
def check(
    context: typer.Context,
    file: options.File,
    against: Against = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what was understood of a file, and every fault with its row.

    Rows that a run would set aside are listed with their reason. The exit code is 2 where a run
    would refuse the file.
    """
    from stacksl.data import check as described
    from stacksl.data import read, read_classes
    from stacksl.runs.items.reading import as_before, named_columns
    from stacksl.runs.settings.resolve import resolve

    chosen = resolve(context.obj).settings
    named = named_columns(chosen)
    reading: dict[str, Any] = {
        "format": chosen.format,
        "columns": named,
        "max_candidates": chosen.max_candidates,
    }
    classes = None if chosen.classes is None else read_classes(chosen.classes)
    if classes is not None:
        reading["classes"] = classes.names
    dataset = read(file, **reading, lenient=True)
    other = None if against is None else read(against, **reading | as_before(named), lenient=True)
    sentences = described(dataset, other)
    print(as_json(_facts(dataset, sentences)) if json else visible("\n".join(sentences)))
    if classes is not None:
        classes.expect_apart(dataset.items, "the data")
        classes.expect_apart(() if other is None else other.items, "the other file")
    if dataset.rejected:
        read(file, **reading, strict=chosen.strict)  # refuses where a run would, with its sentence


def _facts(dataset: Dataset, sentences: list[str]) -> dict[str, Any]:
    sizes = [len(item.candidates) for item in dataset.items]
    return {
        "name": dataset.name,
        "format": dataset.format,
        "columns": dict(dataset.columns),
        "unused": list(dataset.unused),
        "items": len(dataset.items),
        "answers": len(dataset.answers),
        "classes": None if dataset.classes is None else len(dataset.classes),
        "candidates": [min(sizes), max(sizes)] if sizes else [0, 0],
        "rejected": rejected(dataset),
        "warnings": list(dataset.warnings),
        "sentences": sentences,
    }
