"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing this loads neither torch nor transformers; using a model does (the extra `lm`).
"""

from __future__ import annotations

from stacksl.lm.distributed import ALONE, Distributed
from stacksl.lm.model import LanguageModel, Lesson
from stacksl.lm.prompt.format import PROTOCOLS, TEMPLATES, Prompt, PromptFormat, Protocol, template
from stacksl.lm.prompt.tokens import Cuts, Limits, TokenItem, Tokenizing
from stacksl.lm.scoring.likelihood import PATHS, Likelihood, Path, unfit
from stacksl.lm.scoring.normalise import NORMALISATIONS, Normalisation, normalised
from stacksl.lm.scoring.packing import Packed, Packing, pack
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.lora import LoraSettings
from stacksl.lm.training.objectives import OBJECTIVES
from stacksl.lm.training.recipe import TrainSettings
from stacksl.lm.training.refit import Trained

__all__ = [
    "ALONE",
    "NORMALISATIONS",
    "OBJECTIVES",
    "PATHS",
    "PROTOCOLS",
    "TEMPLATES",
    "Cuts",
    "Distributed",
    "LanguageModel",
    "Lesson",
    "Likelihood",
    "Limits",
    "LoraSettings",
    "ModelChoices",
    "Normalisation",
    "Packed",
    "Packing",
    "Path",
    "Prompt",
    "PromptFormat",
    "Protocol",
    "TokenItem",
    "Tokenizing",
    "TrainSettings",
    "Trained",
    "normalised",
    "pack",
    "template",
    "unfit",
]
