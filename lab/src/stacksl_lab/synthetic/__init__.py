"""Synthetic streams, and runs over them."""
