"""Figures, in one style."""
