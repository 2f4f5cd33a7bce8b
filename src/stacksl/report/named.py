"""A name with a value: what the tables of a report list."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Named"]


@dataclass(frozen=True, slots=True)
class Named:
    """A name with a value (a version, a fingerprint, a count by reason)."""

    name: str
    value: str
