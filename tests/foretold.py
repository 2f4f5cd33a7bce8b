"""What a run draws from the operating system, the same in every test: a failure must come again."""

from __future__ import annotations

import secrets


def foretell() -> None:
    """Draw the seed 0 and one secret for every run of people of this process."""
    secrets.randbits = lambda k: 0 if k <= 32 else 1
