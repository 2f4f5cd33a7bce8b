"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing this loads neither torch nor transformers; using a model does (the extra `lm`).
"""

from __future__ import annotations

from stacksl.lm.adapters import LoraSettings
from stacksl.lm.choices import ModelChoices
from stacksl.lm.crew import ALONE, Crew
from stacksl.lm.likelihood import PATHS, Likelihood, Path, unfit
from stacksl.lm.model import LanguageModel, Lesson
from stacksl.lm.normalise import NORMALISATIONS, Normalisation, normalised
from stacksl.lm.objectives import OBJECTIVES
from stacksl.lm.packing import Packed, Packing, pack
from stacksl.lm.prompts import PROTOCOLS, TEMPLATES, Prompt, PromptFormat, Protocol, template
from stacksl.lm.tokens import Cuts, Limits, TokenItem, Tokenizing
from stacksl.lm.training import Trained, TrainSettings

__all__ = [
    "ALONE",
    "NORMALISATIONS",
    "OBJECTIVES",
    "PATHS",
    "PROTOCOLS",
    "TEMPLATES",
    "Crew",
    "Cuts",
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
