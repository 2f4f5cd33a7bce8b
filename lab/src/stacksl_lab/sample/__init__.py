"""A small causal language model with its weights, and questions that it can be asked."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder of the model, as transformers loads it."""
