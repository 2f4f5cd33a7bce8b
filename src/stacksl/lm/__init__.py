"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing this loads neither torch nor transformers; using a model does (the extra `lm`).
"""

from __future__ import annotations

from stacksl.lm.model import LanguageModel
from stacksl.lm.prompt.format import TEMPLATES, Prompt, PromptFormat, template
from stacksl.lm.prompt.tokens import Limits, TokenItem, Tokenizing
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalize import NORMALIZATIONS, normalized
from stacksl.lm.settings import Lesson, LoraSettings, ModelChoices, TrainSettings
from stacksl.lm.training.refit import OBJECTIVES

__all__ = [
    "NORMALIZATIONS",
    "OBJECTIVES",
    "TEMPLATES",
    "LanguageModel",
    "Lesson",
    "Likelihood",
    "Limits",
    "LoraSettings",
    "ModelChoices",
    "Prompt",
    "PromptFormat",
    "TokenItem",
    "Tokenizing",
    "TrainSettings",
    "normalized",
    "template",
]
