"""`stacksl data check`, `stacksl plan` and `stacksl size`: what is known before a run begins."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, dollars, facts, rejected, share, table, visible
from stacksl.cli.verbs.run import setting_of
from stacksl.report.wording import count

if TYPE_CHECKING:
    from stacksl.api import Plan
    from stacksl.data import Dataset
    from stacksl.lm.size import Size

_GIGA, _MEGA = 1e9, 1e6

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
    print(as_json(_check_facts(dataset, sentences)) if json else visible("\n".join(sentences)))
    if classes is not None:
        classes.expect_apart(dataset.items, "the data")
        classes.expect_apart(() if other is None else other.items, "the other file")
    if dataset.rejected:
        read(file, **reading, strict=chosen.strict)  # refuses where a run would, with its sentence


def _check_facts(dataset: Dataset, sentences: list[str]) -> dict[str, Any]:
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


@options.takes("features", "price", "classes", *options.READING)
def plan(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA|RUN",
            show_default=False,
            help="A file of items, or a run's folder; without one, the built-in sample.",
        ),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The accuracy to expect at 100, 200, 500 and 1,000 labels, with 90 % intervals, and its price.

    For a file it rests on runs on public sets, for a run on its training labels. The audit is
    never read.
    """
    from stacksl.api.forecasting import plan as planned
    from stacksl.runs.settings.resolve import resolve

    found = planned(source, resolve({"budget": "all", **context.obj}))
    print(as_json(found) if json else _shown_plan(found))


def _shown_plan(found: dict[str, Any]) -> str:
    lines = []
    if found["expected"]:
        header = ["Labels", "To buy", "Accuracy", "90 % interval"]
        priced = found["expected"][0]["cost"] is not None
        rows = [
            [count(row["labels"]), count(row["more"]), share(row["accuracy"]), _between(row)]
            + ([dollars(round(row["cost"] * 1_000_000))] if priced else [])
            for row in found["expected"]
        ]
        lines.append(table(header + (["Cost"] if priced else []), rows))
    now = found["now"]
    about: list[tuple[str, object]] = [
        ("Labels learnt", count(found["labels"]) if found["labels"] else None),
        ("Accuracy now", now and f"{share(now['accuracy'])} ({_between(now)})"),
        ("Rests on", found["rests_on"] or None),
        ("Not estimated", found["reason"] or None),
    ]
    return "\n\n".join(each for each in (*lines, facts(about)) if each)


def _between(row: dict[str, Any]) -> str:
    return f"{row['low']:.2f} to {row['high']:.2f}"


@options.takes(
    "model",
    "budget",
    "adapt",
    "dtype",
    "batch_tokens",
    "checkpointing",
    "lora_rank",
    *options.READING,
)
def size(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="A file of items; without one, the questions of the sample model.",
        ),
    ] = None,
    set_: options.Set = None,
    no_time: Annotated[
        bool, typer.Option("--no-time", help="Read no weights and leave the times out.")
    ] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say how much memory, disk and time a run with a language model would take.

    Memory is estimated without reading a weight. The times come from trying out a few batches on
    this device, for ten seconds at most once the weights are read.
    """
    from stacksl.api import prepare
    from stacksl.labelers.oracle import OracleLabeler
    from stacksl.lm.loading import place_of
    from stacksl.lm.size import CALIBRATION, forecast, free_bytes
    from stacksl.runs.settings.conflicts import due_at
    from stacksl.runs.settings.language import choices_of
    from stacksl.runs.settings.resolve import resolve

    pairs = dict(setting_of(pair) for pair in set_ or [])
    resolved = resolve({"adapt": "lora", **pairs, **context.obj})
    plan = prepare(data, settings=resolved, labeler=OracleLabeler({}, {}))  # nothing is asked
    labels = plan.labels + len(plan.spec.sources.owned)
    due = sorted({*due_at(plan.settings.refit_at, labels), labels})  # the end has one
    choices = choices_of(plan.settings, {})
    found = forecast(choices, plan.dataset.items, due, None if no_time else CALIBRATION)
    free = free_bytes(place_of(choices.device))
    print(as_json(_size_facts(found, free)) if json else _shown_size(plan, found, free, len(due)))


def _size_facts(found: Size, free: int) -> dict[str, Any]:
    scoring = {**asdict(found.scoring), "total": found.scoring.total}
    training = {**asdict(found.training), "total": found.training.total}
    disk = {**asdict(found.disk), "run": found.disk.run}
    whole = {"scoring": scoring, "training": training, "disk": disk}
    return {**asdict(found), **whole, "memory": found.memory, "free": free}


def _shown_size(plan: Plan, found: Size, free: int, refits: int) -> str:
    parts = {name: n for name, n in asdict(found.training).items() if n}
    rows: list[tuple[str, object]] = [
        ("Model", f"{plan.settings.model}, {count(found.parameters)} parameters, {found.dtype}"),
        ("Trained", f"{count(found.moving)} parameters (a LoRA adapter)"),
        ("Items", f"{count(found.items)}, {count(found.tokens)} tokens a pass ({found.path})"),
        ("Labels", f"{count(found.labels)}, {refits} refits"),
        ("Memory to score", _bytes(found.scoring.total)),
        ("Memory to train", _bytes(found.training.total)),
        ("  of which", ", ".join(f"{name} {_bytes(n)}" for name, n in parts.items())),
        ("Free memory", _bytes(free)),
        ("Disk, weights", _bytes(found.disk.weights)),
        ("Disk, run", _bytes(found.disk.run)),
        ("Time to score", _time(found.scoring_seconds, "one pass over the items")),
        ("Time to train", _time(found.training_seconds, "all refits together")),
    ]
    return facts(rows)


def _bytes(number: int) -> str:
    return f"{number / _GIGA:.2f} GB" if number >= _GIGA else f"{number / _MEGA:.1f} MB"


def _time(seconds: float | None, what: str) -> str | None:
    """A length of time to two digits, as the calibration is no more precise.

    >>> _time(5400.0, "all of it")
    'about 1.5 hours (all of it)'
    """
    if seconds is None:
        return None
    for unit, length in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= length:
            return f"about {seconds / length:.2g} {unit} ({what})"
    return f"about {seconds:.2g} seconds ({what})"
