"""The learner's round: our engines, and the same round in NumPy, twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from stacksl.core.confidence import radius
from stacksl.core.gates.registry import LLF
from stacksl_lab.engines import run_stream

from .cases import SETTINGS, Case, Contender, Job

__all__ = ["OURS"]


def fused(case: Case) -> Job:
    def job() -> float:
        start = perf_counter()
        run_stream(
            "sgd",
            case.phi,
            labels=case.labels,
            gate=LLF(0.0),
            budget=case.rounds,
            settings=SETTINGS,
            certificates=False,
            engine="fused",
        )
        return (perf_counter() - start) / case.rounds

    return job


def shared(case: Case) -> Job:
    """Class heads: the first row of each item is its h, the candidates are K classes."""
    rounds = max(case.rounds, 2_000)
    features = np.resize(case.phi[:, 0], (rounds, case.dim))
    labels = np.resize(case.labels, rounds)

    def job() -> float:
        start = perf_counter()
        run_stream(
            "ridge",
            features,
            classes=case.candidates,
            labels=labels,
            gate=LLF(0.0),
            budget=rounds,
            settings=SETTINGS,
            certificates=False,
            engine="fused",
        )
        return (perf_counter() - start) / rounds

    return job


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


Widths = Callable[[np.ndarray[Any, Any]], tuple[np.ndarray[Any, Any], Any]]


def plain(case: Case, rounds: int, widths: Widths, update: Callable[..., None]) -> float:
    """The round in NumPy around two ways of keeping V."""
    settings = SETTINGS
    theta, reference = np.zeros(case.dim), np.zeros(case.dim)
    labels = case.labels.tolist()
    start = perf_counter()
    for t in range(rounds):
        rows, gold = case.phi[t], labels[t]
        scores, anchor_scores = rows @ theta, rows @ reference
        reach = radius(
            settings.noise, case.dim, t, settings.ridge, settings.delta, settings.norm_bound
        )
        norms, images = widths(rows)
        upper = scores + reach * norms
        best = int(upper.argmax())
        if upper.max() - (scores - reach * norms).min() > 0.0:
            policy, anchor = softmax(scores), softmax(anchor_scores)
            slope = policy.copy()
            slope[gold] -= 1.0
            if -math.log(policy[gold]) > settings.clip_level:
                slope[:] = 0.0
            ratio = np.log(policy / anchor)
            slope += settings.kl_weight * policy * (ratio - policy @ ratio)
            theta -= settings.learning_rate * (slope @ rows)
            reference *= settings.ema_decay
            reference += (1.0 - settings.ema_decay) * theta
            update(rows, best, images)
    return (perf_counter() - start) / rounds


def sherman_morrison(case: Case) -> Job:
    rounds = min(case.rounds, 3_000)

    def job() -> float:
        inverse = np.eye(case.dim) / SETTINGS.ridge

        def widths(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
            images = rows @ inverse
            return np.sqrt(np.einsum("ij,ij->i", rows, images)), images

        def update(rows: np.ndarray[Any, Any], best: int, images: Any) -> None:
            image = images[best]
            np.subtract(inverse, np.outer(image, image / (1.0 + rows[best] @ image)), out=inverse)

        return plain(case, rounds, widths, update)

    return job


def inverting(case: Case) -> Job:
    rounds = min(case.rounds, 1_000 if case.dim < 100 else 6)

    def job() -> float:
        gram = SETTINGS.ridge * np.eye(case.dim)

        def widths(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
            inverse = np.linalg.inv(gram)
            return np.array([math.sqrt(row @ inverse @ row) for row in rows]), None

        def update(rows: np.ndarray[Any, Any], best: int, images: Any) -> None:
            np.add(gram, np.outer(rows[best], rows[best]), out=gram)

        return plain(case, rounds, widths, update)

    return job


OURS = [
    Contender("fused", "our engine on pair features", fused),
    Contender("shared", "our engine for class heads: one matrix for K classes", shared),
    Contender("numpy", "the same round in NumPy, Sherman-Morrison", sherman_morrison),
    Contender("naive", "the same round in NumPy, V inverted every round", inverting),
]
