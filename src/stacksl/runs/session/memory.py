"""Whether a run with a language model fits into this machine, asked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stacksl.runs.settings.conflicts import due_at
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.language import choices_of
from stacksl.types import Item


def expect_room(settings: Settings, items: Sequence[Item], labels: int) -> None:
    """Hold the plan's memory against what is free on its device; no weight is loaded for it.

    Raises:
        SettingsError: on the CPU, it needs more than nine tenths of what is free (a warning on a
            GPU); the sentence says what to set, or the model cannot be had.
    """
    from stacksl.lm.distributed import current_processes
    from stacksl.lm.loading import place_of
    from stacksl.lm.memory.size import expect_fit, free_bytes

    processes, choices = current_processes(), choices_of(settings, {})
    device = processes.device if settings.device != "cpu" else None
    place = place_of(device or settings.device)
    free = free_bytes(place)
    if place == "cpu":
        free //= processes.size  # every process holds a whole model
    chosen = replace(choices, device=place)
    expect_fit(chosen, items, due_at(settings.refit_at, labels), free, processes.size)
