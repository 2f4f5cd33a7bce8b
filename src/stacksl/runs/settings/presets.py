"""The presets and the two aims: named layers of settings.

`docs/presets.md` has the table with the number that justifies every difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacksl.core.calibration import RECIPES

AIMS: Mapping[str, Mapping[str, Any]] = {
    "model": {"gate": "margin"},
    "regret": {"gate": "information"},
}

_PAPER: Mapping[str, Any] = {
    "objective": "stacksl",
    "scorer": "sgd",
    "action": "ucb",
    "track": "all",
    "radius_counts": "rounds",
    "clip": "literal",
    "clip_level": 5.0,
    "ridge": 1.0,
    "delta": 0.05,
    "noise": 1.0,
    "norm_bound": 1.0,
    "learning_rate": 0.1,
    "kl_weight": 0.5,
    "refit": False,
    "names": False,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper-stacksl": {**_PAPER, "gate": "always", "reference": "previous", "budget": "all"},
    "paper": {
        **_PAPER,
        "gate": "llf",
        "kappa": 1.0,
        "reference": "frozen",
        "kl_on_skips": True,
    },
    **{
        recipe.name: {
            "gate": "llf",
            "objective": "stacksl",
            "scorer": "sgd",
            "kappa": recipe.kappa,
            "kl_weight": recipe.kl_weight,
            "learning_rate": recipe.learning_rate,
        }
        for recipe in RECIPES
    },
}
