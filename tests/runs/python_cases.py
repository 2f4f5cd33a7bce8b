"""Texts in three classes, and runs of them from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

import stacksl

WORDS = {"beach": "sand wave shell tide", "forest": "moss fern pine root", "sky": "cloud sun star"}
TEXTS, LABELS = [], []
for n in range(90):
    topic = list(WORDS)[n % 3]
    words = WORDS[topic].split()
    TEXTS.append(f"{words[n % 3]} {words[n // 3 % 3]} {n}")
    LABELS.append(topic)
ROWS = np.eye(8)[np.arange(90) % 3] + 0.1 * np.random.default_rng(0).standard_normal((90, 8))


def run(items: Any, labels: Any = None, **settings: Any) -> stacksl.Run:
    return stacksl.run(items, labels, out="run", **{"budget": 20, "audit": "0", **settings})


def right(request: Any) -> str:
    return next(c for c in request.candidates if request.prompt.split()[0] in WORDS[c])
