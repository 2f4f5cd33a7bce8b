"""What a setting says of itself beside its type: its option, and what it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

SPEND = "Labels and money"
DATA = "Reading files"
LEARN = "How it learns"
MODEL = "A language model"


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting's own option on the command line; without one, a setting is given by `--set`.

    Args:
        panel: the group of the help that lists it.
        metavar: names the value in the help; none for a switch.
        common: whether the short `--help` lists it, or `--help-all` alone.
    """

    panel: str
    metavar: str | None = None
    common: bool = False


@dataclass(frozen=True, slots=True)
class Only:
    """What a setting is for: `people`, `server`, `model`, a scorer or a gate.

    Elsewhere it is a mistake.
    """

    of: str


def marked(field: FieldInfo, kind: type[Any]) -> Any:
    """What a field of the settings says of itself under `kind` (`Flag` or `Only`), else None."""
    return next((each for each in field.metadata if isinstance(each, kind)), None)
