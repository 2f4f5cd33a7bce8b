"""`stacksl size`: what a run with a language model would take, before it is started."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, facts

if TYPE_CHECKING:
    from stacksl.api import Plan
    from stacksl.lm.size import Size

_GIGA, _MEGA = 1e9, 1e6


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
    from stacksl.cli.verbs.run import setting_of
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
    print(as_json(_table(found, free)) if json else _shown(plan, found, free, len(due)))


def _table(found: Size, free: int) -> dict[str, Any]:
    scoring = {**asdict(found.scoring), "total": found.scoring.total}
    training = {**asdict(found.training), "total": found.training.total}
    disk = {**asdict(found.disk), "run": found.disk.run}
    whole = {"scoring": scoring, "training": training, "disk": disk}
    return {**asdict(found), **whole, "memory": found.memory, "free": free}


def _shown(plan: Plan, found: Size, free: int, refits: int) -> str:
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
