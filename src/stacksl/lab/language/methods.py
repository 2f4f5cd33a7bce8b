"""The methods of the paper's tables as settings, and choices that the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacksl.lab.language.paper import CLIP_LEVEL

FIXED: Mapping[str, Any] = {
    "adapt": "lora",
    "normalisation": "token_mean",
    "temperature": 1.0,
    "max_len_prompt": 2048,
    "max_len_choice": 128,
    "lora_rank": 16,
    "lora_alpha": 32.0,
    "lora_dropout": 0.0,
    "epochs": 3,
    "batch_size": 8,
    "warmup_share": 0.1,
    "learning_rate": 5e-5,
}
"""What the paper leaves open, fixed by name for every row (docs/studies says why)."""

LATE: Mapping[str, Any] = {"refit_at": "1"}
"""For gates whose purchases do not depend on the model: the adapter is fitted once, at the end."""

MLE: Mapping[str, Any] = {"gate": "always", **LATE}
"""Every label, one fit."""

BASELINES = ("random", "first", "margin", "contested", "adpo")
"""Gates compared with LLF-StackSL at equal labels."""

_BLIND = ("always", "first", "random", "uniform")


def stacksl(kl_weight: float = 0.7, k: int = 4, clip: str = "literal") -> dict[str, Any]:
    """The objective of StackSL: cross-entropy, kl_weight x KL to the frozen base, clipping at ρ."""
    level = {} if clip == "none" else {"clip_level": CLIP_LEVEL}
    return {
        "objective": "stacksl",
        "follower": "hard",
        "k": k,
        "kl_weight": kl_weight,
        "reference": "frozen",
        "clip": clip,
        **level,
    }


def gated(gate: str, **changed: Any) -> dict[str, Any]:
    """StackSL's objective on labels that `gate` buys."""
    return stacksl() | {"gate": gate} | (dict(LATE) if gate in _BLIND else {}) | changed


def llf(kl_weight: float = 0.7, k: int = 4) -> dict[str, Any]:
    """LLF-StackSL (Algorithm 2): the paper's gate, with its KL-only step on skipped rounds."""
    return stacksl(kl_weight, k) | {"gate": "llf", "kl_on_skips": True}


def objective(name: str) -> dict[str, Any]:
    """`sft`, `ce` or `ce-hard` on every label; `ce-hard` without weight decay.

    Clipping and the KL term belong to StackSL alone, as the table of objectives has it.
    """
    if name == "ce-hard":
        return {**MLE, "objective": name, "follower": "hard", "k": 4, "weight_decay": 0.0}
    return {**MLE, "objective": name}
