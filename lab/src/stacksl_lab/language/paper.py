"""The paper's numbers, cell by cell, the sizes of its sets, and its inconsistent cells.

Source: paper, section "Experiments", the tables label_efficiency, kl_sweep, hardneg_sweep,
qwen4b_results, mc_results, subject_results and clipping.

The methods of its tables are settings, with choices that it leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUDGETS = (1.0, 0.5, 0.25, 0.1)
"""β of the table of label efficiency; 0.5 is that of every other row of Algorithm 2."""

KL_WEIGHTS = (0.3, 0.5, 0.7, 0.9)
NEGATIVES = (1, 2, 3, 4)
STREAM = 1000
"""N of the two grids over kl_weight and k."""

CLIP_LEVEL = 5.0
"""ρ, in nats."""

SUBJECTS: Mapping[str, str] = {
    "Medical Genetics": "medical_genetics",
    "Clinical": "clinical_knowledge",
    "College Biology": "college_biology",
}
"""MMLU's subjects as the table names them, and as their files do."""

SIZES: Mapping[str, tuple[int, int]] = {
    "MedQA": (10_178, 1_273),
    "Clinical": (29, 265),
    "College Biology": (16, 144),
    "Medical Genetics": (11, 100),
}
"""Questions to train on and to test on."""

_Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]

NUMBERS: _Numbers = {
    "label-efficiency": {
        "Full StackSL": {"accuracy": 0.5918, "used_fraction": 1.0, "percent_of_full": 100.0},
        "LLF-StackSL, β = 0.5": {
            "accuracy": 0.5826,
            "used_fraction": 0.5,
            "percent_of_full": 98.45,
        },
        "LLF-StackSL, β = 0.25": {
            "accuracy": 0.5721,
            "used_fraction": 0.25,
            "percent_of_full": 96.68,
        },
        "LLF-StackSL, β = 0.1": {
            "accuracy": 0.5585,
            "used_fraction": 0.1,
            "percent_of_full": 94.38,
        },
    },
    "kl": {
        "λ_KL = 0.3": {"accuracy": 0.2836},
        "λ_KL = 0.5": {"accuracy": 0.3009},
        "λ_KL = 0.7": {"accuracy": 0.3166},
        "λ_KL = 0.9": {"accuracy": 0.3134},
    },
    "hard-negatives": {
        "k = 1": {"accuracy": 0.2765},
        "k = 2": {"accuracy": 0.2687},
        "k = 3": {"accuracy": 0.3126},
        "k = 4": {"accuracy": 0.3166},
    },
    "objectives": {
        "SFT": {"accuracy": 0.5981, "macro_f1": 0.5940, "accuracy_sd": 0.0023},
        "Supervised (CE)": {"accuracy": 0.6012, "macro_f1": 0.5972, "accuracy_sd": 0.0088},
        "Supervised (CE, no reg.)": {"accuracy": 0.5871, "macro_f1": 0.5829, "accuracy_sd": 0.0069},
        "StackSL (Full)": {"accuracy": 0.5962, "macro_f1": 0.5922, "accuracy_sd": 0.0045},
    },
    "medqa": {
        "Base, 0-shot": {"accuracy": 0.2521},
        "MC-Ranker": {"accuracy": 0.3676},
        "StackSL": {"accuracy": 0.3810},
        "LLF-StackSL": {"accuracy": 0.3480},
    },
    "mmlu": {
        "Medical Genetics: Base, 0-shot": {"accuracy": 0.3600},
        "Medical Genetics: Base + FT": {"accuracy": 0.3700},
        "Medical Genetics: StackSL": {"accuracy": 0.4000},
        "Medical Genetics: LLF-StackSL": {"accuracy": 0.3509},
        "Clinical: Base, 0-shot": {"accuracy": 0.3245},
        "Clinical: Base + FT": {"accuracy": 0.3283},
        "Clinical: StackSL": {"accuracy": 0.3547},
        "Clinical: LLF-StackSL": {"accuracy": 0.3660},
        "College Biology: Base, 0-shot": {"accuracy": 0.4306},
        "College Biology: Base + FT": {"accuracy": 0.4514},
        "College Biology: StackSL": {"accuracy": 0.4583},
        "College Biology: LLF-StackSL": {"accuracy": 0.4375},
    },
    "clipping-lm": {
        "challenging candidates (no ρ)": {"mean_loss": 1.37, "max_loss": 23.5},
        "StackSL (Full)": {"mean_loss": 1.36, "max_loss": 5.0},
    },
}

INCONSISTENCIES: Mapping[str, tuple[str, ...]] = {
    "label-efficiency": (
        "No number of right answers to 1,273 test questions gives 0.5918, 0.5826 or 0.5721 (753"
        " right answers are 0.5915, and 754 are 0.5923). So these are means of several runs,"
        " whose number and spread the paper does not give. 0.5585 is 711 of 1,273.",
        "The last column is not the ratio of the column before: 0.5721 / 0.5918 is 96.67% and"
        " is printed as 96.68, and 0.5585 / 0.5918 is 94.37% and is printed as 94.38.",
        "Full StackSL is 0.5918 here, 0.5962 in the table of objectives (one of that table's"
        " standard deviations higher), and 0.3810 in the table of MedQA. The last one must have"
        " another protocol, which neither table names.",
    ),
    "kl": (
        "The best of four test accuracies, each with a standard error of 0.013, was used for the"
        " other tables. The largest and the smallest differ by 1.8 standard errors of a difference"
        " of independent samples, and the choice was made on the same questions on which it is"
        " reported.",
    ),
    "hard-negatives": (
        "MedQA with four options has three negatives, so k = 4 and k = 3 are the same run."
        " Their accuracies 0.3126 and 0.3166 differ by five questions of 1,273, so this"
        " difference is the noise of a run. With the five options that the section on MC-Ranker"
        " mentions, the base model's 0.2521 would not be chance.",
    ),
    "objectives": (
        "0.5962 is bold as the best accuracy and 0.5922 as the best F1; Supervised (CE) has 0.6012"
        " and 0.5972, SFT 0.5981 and 0.5940.",
        "With four options the hard set of k = 4 is the whole set, so the rows CE and CE, no reg."
        " can differ by weight decay and clipping alone.",
    ),
    "medqa": (
        "Four of the numbers are shares of 1,273 up to rounding (321, 468, 485 and 443 right"
        " answers), each from one run. The paper gives no spread. The 17 questions between"
        " MC-Ranker and StackSL are 0.7 standard errors of a difference of independent samples.",
        "0.2521 is 321/1,273 = 0.25216, cut off and not rounded.",
    ),
    "mmlu": (
        "0.3509 cannot be the accuracy on 100 questions of medical genetics.",
        "With 29, 16 and 11 questions to train on and 265, 144 and 100 to test on, one standard"
        " error is 0.029, 0.041 and 0.048. So no two cells of a row differ by more than 1.1"
        " standard errors of a difference of independent samples.",
    ),
    "clipping-lm": (
        "The largest loss without ρ is 23.5 in the table and 24.5 in the text.",
        "A mean loss of 1.37 is the loss of a uniform guess among four (ln 4 = 1.386), so clipping"
        " was examined on a model that had learned almost nothing.",
    ),
}
"""Sentences on the cells of a study that contradict each other or what they are of (D18)."""


FIXED: Mapping[str, Any] = {
    "adapt": "lora",
    "normalization": "token_mean",
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

STREAMED: Mapping[str, Any] = {"mode": "stream", "refit_at": "0.05,0.1,0.25,0.5,1"}
"""How the paper's algorithms are played, whatever the default of a run is."""

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
