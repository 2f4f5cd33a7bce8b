"""What every part of a report's facts is, and a name with a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict


class _Config(TypedDict):
    """How pydantic reads a fact (a part of its `ConfigDict`, which is slow to import)."""

    extra: Literal["forbid"]
    strict: bool


class Fact:
    """A frozen dataclass that is read from JSON with every field checked."""

    __slots__ = ()
    __pydantic_config__: ClassVar[_Config] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True)
class Named(Fact):
    """A name with a value (a version, a fingerprint, a count by reason)."""

    name: str
    value: str
