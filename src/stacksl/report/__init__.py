"""A run's `Facts` as one HTML page and as a model card."""

from stacksl.report.facts import Facts
from stacksl.report.html import card, render

__all__ = ["Facts", "card", "render"]
