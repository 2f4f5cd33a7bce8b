"""A run's `Facts` as one HTML page and as a model card."""

from __future__ import annotations

from stacksl.report.facts import Facts

__all__ = ["Facts", "card", "render"]


def render(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The report: one self-contained HTML page; equal facts give equal bytes.

    Args:
        facts: what to show.
        text: False leaves out what the data's owner worded: prompts, candidates, ids, columns.
        class_names: True keeps the names of classes in a page without text.
    """
    from stacksl.report.html import page

    return page(facts, text=text, class_names=class_names)


def card(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The model card of the run, in Markdown: the README.md of the run's folder.

    Args:
        facts: what to show.
        text: False leaves out what the data's owner worded, class names included.
        class_names: True keeps those in a card without text.
    """
    from stacksl.report.html import model_card

    return model_card(facts, text=text, class_names=class_names)
