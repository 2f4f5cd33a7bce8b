"""Adapt a language model with a fixed label budget.

The public names below are loaded when first used, so that `import stacksl` stays instant.

>>> import stacksl
>>> stacksl.Item("q1", "Which vitamin is made in the skin?", ("C", "D")).candidates
('C', 'D')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stacksl.version import __version__

if TYPE_CHECKING:
    from stacksl.api import Run, list_runs, prepare, run
    from stacksl.errors import StackslError
    from stacksl.labelers.registry import ABSTAIN
    from stacksl.models.portable.folder import load
    from stacksl.runs.settings.fields import Settings
    from stacksl.types import Item, Label

__all__ = [
    "ABSTAIN",
    "Item",
    "Label",
    "Run",
    "Settings",
    "StackslError",
    "__version__",
    "list_runs",
    "load",
    "prepare",
    "run",
]

_HOME = {
    "ABSTAIN": "stacksl.labelers.registry",
    "Item": "stacksl.types",
    "Label": "stacksl.types",
    "Run": "stacksl.api",
    "Settings": "stacksl.runs.settings.fields",
    "StackslError": "stacksl.errors",
    "list_runs": "stacksl.api",
    "load": "stacksl.models.portable.folder",
    "prepare": "stacksl.api",
    "run": "stacksl.api",
}


def __getattr__(name: str) -> Any:
    """The public object called `name`, imported from its home on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'stacksl' has no attribute '{name}'")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
