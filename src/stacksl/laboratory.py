"""The laboratory, a package of its own: found by its entry points, never imported by name.

`stacksl-lab` holds the sample language model with its questions, and a command of its own for the
studies of the paper and the comparison of strategies. A release of `stacksl` works without it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from stacksl.errors import MissingExtra

GROUP = "stacksl.laboratory"
INSTALL = "install stacksl-lab, in a clone of the project with `pip install ./lab`"
OFFERED = {
    "model": "the sample language model",
    "questions": "the sample language model, which `--adapt` takes where no data are given,",
}
"""The names of the entry points, each with what its absence leaves out."""


def of_laboratory(name: str) -> Any:
    """The object that the laboratory offers as `name`, one of `OFFERED`.

    Raises:
        MissingExtra: the laboratory is not installed.
    """
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    raise MissingExtra(f"{OFFERED[name]} is in a package that is not installed: {INSTALL}")
