"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing this loads neither torch nor transformers; using a model does (the extra `lm`).
"""

from __future__ import annotations

from stacksl.lm.model import LanguageModel
from stacksl.lm.prompt.format import TEMPLATES, Prompt, PromptFormat, template
from stacksl.lm.prompt.tokens import Cuts, Limits, TokenItem, Tokenizing
from stacksl.lm.scoring.likelihood import Likelihood, unfit
from stacksl.lm.scoring.normalise import NORMALISATIONS, normalised
from stacksl.lm.scoring.packing import Packing, pack
from stacksl.lm.settings import Lesson, ModelChoices
from stacksl.lm.training.lora import LoraSettings
from stacksl.lm.training.objectives import OBJECTIVES
from stacksl.lm.training.recipe import TrainSettings

__all__ = [
    "NORMALISATIONS",
    "OBJECTIVES",
    "TEMPLATES",
    "Cuts",
    "LanguageModel",
    "Lesson",
    "Likelihood",
    "Limits",
    "LoraSettings",
    "ModelChoices",
    "Packing",
    "Prompt",
    "PromptFormat",
    "TokenItem",
    "Tokenizing",
    "TrainSettings",
    "normalised",
    "pack",
    "template",
    "unfit",
]
