"""Numbers to pictures and pages: a run's `Facts` as one HTML page and as a model card."""

from __future__ import annotations

from stacksl.report.facts import Facts

__all__ = ["Facts", "card", "render"]


def render(facts: Facts, *, text: bool = True) -> str:
    """The report: one self-contained HTML page; equal facts give equal bytes.

    Args:
        facts: what to show.
        text: False leaves every excerpt of a prompt or candidate out.
    """
    from stacksl.report.html import page

    return page(facts, text=text)


def card(facts: Facts, *, text: bool = True) -> str:
    """The model card of the run, in Markdown: the README.md of the run's folder.

    Args:
        facts: what to show.
        text: False leaves every class name out, since those are candidates.
    """
    from stacksl.report.markdown import model_card

    return model_card(facts, text=text)
