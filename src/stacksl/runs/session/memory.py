"""Whether a run with a language model fits into this machine, asked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl.runs.loop.language_trainer import due_at
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.language import choices_of
from stacksl.types import Item


def expect_room(settings: Settings, items: Sequence[Item], labels: int) -> None:
    """Hold the plan's memory on the CPU against what is free; no weight is loaded for it.

    Raises:
        SettingsError: it needs more than nine tenths of what is free; the sentence says what to
            set, or the model cannot be had.
    """
    from stacksl.lm.distributed import current_processes
    from stacksl.lm.memory.size import expect_fit, free_bytes
    from stacksl.lm.scoring.paths import load_torch

    if settings.device == "auto" and load_torch().cuda.is_available():
        return
    if settings.device not in ("auto", "cpu"):
        return
    free = free_bytes() // current_processes().size  # every process holds a whole model
    expect_fit(choices_of(settings, {}), items, due_at(settings.refit_at, labels), free)
