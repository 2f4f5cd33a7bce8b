"""No telemetry: what the libraries that could send some are told before they are loaded."""

from __future__ import annotations

import os

_REFUSALS = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


def refuse_telemetry() -> None:
    """Tell huggingface_hub and those that build on it to report nothing about their use.

    They read the environment once, when they are imported, so this comes before. Whatever the
    environment said is overruled: a run sends nothing of itself.
    """
    os.environ.update(_REFUSALS)
