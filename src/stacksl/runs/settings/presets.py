"""The presets and the two aims: named layers of settings.

`docs/presets.md` has the table with the number that justifies every difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

_RECIPE: Mapping[str, Any] = {"gate": "llf", "objective": "stacksl", "scorer": "sgd"}
"""What the paper's recipes for budgets of up to a tenth, three tenths and all labels share.

The paper gives directions, the numbers are ours: κ spans its range, the middle KL weight and the
largest learning rate are those of the preset `paper`. Measured against them: in the linear softmax
game SGD's best learning rate *rises* as the budget falls (0.1 at 400 labels, 0.03 at 2,000, 0.01 at
20,000), and at a ridge of 1 κ under the cap changes nothing.
"""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper-stacksl": {**_PAPER, "gate": "always", "reference": "previous", "budget": "all"},
    "paper": {
        **_PAPER,
        "gate": "llf",
        "kappa": 1.0,
        "reference": "frozen",
        "kl_on_skips": True,
    },
    "small": {**_RECIPE, "kappa": 1.5, "kl_weight": 1.0, "learning_rate": 0.03},
    "medium": {**_RECIPE, "kappa": 1.0, "kl_weight": 0.5, "learning_rate": 0.06},
    "large": {**_RECIPE, "kappa": 0.5, "kl_weight": 0.1, "learning_rate": 0.1},
}
