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

_RECIPE: Mapping[str, Any] = {
    "gate.name": "llf",
    "lm.objective": "stacksl",
    "scorer.name": "sgd",
}
"""What the paper's recipes for budgets of up to a tenth, three tenths and all labels share.

The paper gives directions, the numbers are ours: κ spans its range, the middle KL weight and the
largest learning rate are those of the preset `paper`. Measured against them: in the linear softmax
game SGD's best learning rate *rises* as the budget falls (0.1 at 400 labels, 0.03 at 2,000, 0.01 at
20,000), and at a ridge of 1 κ under the cap changes nothing.
"""


def _recipe(kappa: float, kl_weight: float, learning_rate: float) -> Mapping[str, Any]:
    return {
        **_RECIPE,
        "gate.kappa": kappa,
        "update.kl_weight": kl_weight,
        "update.learning_rate": learning_rate,
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
    "small": _recipe(1.5, 1.0, 0.03),
    "medium": _recipe(1.0, 0.5, 0.06),
    "large": _recipe(0.5, 0.1, 0.1),
}
