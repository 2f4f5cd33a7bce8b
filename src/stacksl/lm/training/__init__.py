"""Refits of an adapter: objectives, optimizer, steps and their checkpoint."""
