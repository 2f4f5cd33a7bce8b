"""The streams that all contenders play, and how a contender is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stacksl_lab.gradient import StudySettings

__all__ = ["SETTINGS", "Absent", "Case", "Contender", "Job"]

Job = Callable[[], float]
"""Plays its rounds once, from a fresh learner; gives seconds a round."""

# Algorithm 1 with every round labeled: UCB action, moving reference, literal clipping at 5 nats.
SETTINGS = StudySettings(
    action="ucb", reference="ema", ema_decay=0.99, clip="literal", clip_level=5.0
)


class Absent(Exception):
    """A peer that is not installed."""


@dataclass(frozen=True, eq=False)
class Case:
    """A stream of `rounds` items with K = `candidates` rows in d = `dim` dimensions."""

    dim: int
    candidates: int
    rounds: int

    @property
    def name(self) -> str:
        """(d, K)."""
        return f"({self.dim}, {self.candidates})"

    @cached_property
    def phi(self) -> np.ndarray[Any, Any]:
        """(T, K, d) rows of norm 1."""
        rows = np.random.default_rng(0).normal(size=(self.rounds, self.candidates, self.dim))
        return rows / np.linalg.norm(rows, axis=2, keepdims=True)

    @cached_property
    def labels(self) -> np.ndarray[Any, Any]:
        """(T,) the best candidate under a hidden θ* and some noise."""
        generator = np.random.default_rng(1)
        hidden = generator.normal(size=self.dim)
        return np.argmax(self.phi @ hidden + 0.3 * generator.normal(size=self.phi.shape[:2]), 1)


@dataclass(frozen=True)
class Contender:
    """An implementation: `make(case)` prepares a job, or raises `Absent`.

    `skip` names the cases whose single round takes so long that nothing is learned from waiting.
    """

    name: str
    what: str
    make: Callable[[Case], Job]
    skip: tuple[str, ...] = ()
