"""Causal language models as scorers of options: prompts, token rows, log-likelihoods, refits.

Importing these modules loads neither torch nor transformers; using a model does (the extra `lm`).
"""
