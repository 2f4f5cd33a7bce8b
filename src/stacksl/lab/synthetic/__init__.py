"""Synthetic streams, and playing them."""
