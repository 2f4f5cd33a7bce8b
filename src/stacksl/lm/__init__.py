"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, scores.

Importing this loads neither torch nor transformers; scoring does (the extra `lm`).
"""

from __future__ import annotations

from .likelihood import PATHS, Likelihood, Path, unfit
from .normalise import NORMALISATIONS, Normalisation, normalised
from .packing import Packed, Packing, pack
from .prompts import PROTOCOLS, TEMPLATES, Prompt, PromptFormat, Protocol, template
from .tokens import Cuts, Limits, TokenItem, Tokenizing

__all__ = [
    "NORMALISATIONS",
    "PATHS",
    "PROTOCOLS",
    "TEMPLATES",
    "Cuts",
    "Likelihood",
    "Limits",
    "Normalisation",
    "Packed",
    "Packing",
    "Path",
    "Prompt",
    "PromptFormat",
    "Protocol",
    "TokenItem",
    "Tokenizing",
    "normalised",
    "pack",
    "template",
    "unfit",
]
