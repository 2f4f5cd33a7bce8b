"""Other libraries, loaded with their telemetry switched off."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from stacksl.errors import MissingExtra

_REFUSALS = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_REFUSALS |= {"FASTAPI_OTEL_AUTO_CONFIGURE": "false"}  # else requests go to an OTLP endpoint


def refuse_telemetry() -> None:
    """Set the environment so that huggingface_hub, its dependents, Ray and FastAPI send nothing.

    They read the environment once, when they are imported or an application is made, so this must
    be called before. Any other value in the environment is overridden.
    """
    os.environ.update(_REFUSALS)


def load_library(name: str, what: str, extra: str, missing: str = "") -> Any:
    """A library of an extra, which `what` needs; for `missing` see `MissingExtra.of`.

    Raises:
        MissingExtra: it cannot be imported.
    """
    refuse_telemetry()
    try:
        return import_module(name)
    except ImportError as fault:
        raise MissingExtra.of(what, extra, missing) from fault
