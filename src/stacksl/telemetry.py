"""Switches off the telemetry of other libraries before they are loaded."""

from __future__ import annotations

import os

_REFUSALS = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def refuse_telemetry() -> None:
    """Set the environment so that huggingface_hub, its dependents and Ray send no telemetry.

    They read the environment once, when they are imported, so this must be called before. Any
    other value in the environment is overridden.
    """
    os.environ.update(_REFUSALS)
