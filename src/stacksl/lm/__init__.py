"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing this loads neither torch nor transformers; using a model does (the extra `lm`).
"""

from __future__ import annotations

from .adapters import LoraSettings
from .choices import ModelChoices
from .crew import ALONE, Crew
from .likelihood import PATHS, Likelihood, Path, unfit
from .model import LanguageModel, Lesson
from .normalise import NORMALISATIONS, Normalisation, normalised
from .objectives import OBJECTIVES
from .packing import Packed, Packing, pack
from .prompts import PROTOCOLS, TEMPLATES, Prompt, PromptFormat, Protocol, template
from .tokens import Cuts, Limits, TokenItem, Tokenizing
from .training import Trained, TrainSettings

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
