"""The presets: named layers of settings.

`docs/presets.md` has the table with the number that justifies every difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAPER: Mapping[str, Any] = {
    "lm.objective": "stacksl",
    "scorer.name": "sgd",
    "scorer.action": "ucb",
    "scorer.covariance_rows": "all",
    "scorer.radius_counts": "rounds",
    "update.clip": "literal",
    "update.clip_level": 5.0,
    "scorer.ridge": 1.0,
    "scorer.delta": 0.05,
    "scorer.noise": 1.0,
    "scorer.norm_bound": 1.0,
    "update.learning_rate": 0.1,
    "update.kl_weight": 0.5,
    "refit": False,
    "class_names": False,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper-stacksl": {
        **_PAPER,
        "gate.name": "always",
        "update.reference": "previous",
        "budget": "all",
    },
    "paper": {
        **_PAPER,
        "gate.name": "llf",
        "gate.kappa": 1.0,
        "update.reference": "frozen",
        "update.kl_on_skips": True,
    },
}
