"""Adapt a language model with a fixed label budget."""
__version__ = "0.1.0"
