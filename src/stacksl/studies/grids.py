"""The rows that every table has beside the paper's own: base models, baselines, controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stacksl.studies.language import Setting
from stacksl.studies.methods import BASELINES, gated
from stacksl.studies.paper import NUMBERS
from stacksl.studies.tasks import Setup

SHOTS = (0, 5)


def named(study: str, row: str, settings: Mapping[str, Any], **rest: Any) -> Setting:
    """The setting of `row`, with the paper's numbers for it."""
    return Setting(row, settings, paper=NUMBERS[study].get(row, {}), **rest)


def bases(study: str, protocol: str, task: str | None = None) -> list[Setting]:
    """The base model at 0 labels, 0-shot and 5-shot, in the table's own protocol."""
    before = "" if task is None else f"{task}: "
    return [
        named(
            study, f"{before}Base, {shots}-shot", {"protocol": protocol},
            budget_fraction=0.0, task=task, shots=shots,
            marks=(f"{shots} labelled examples in the prompt",) if shots else (),
        )
        for shots in SHOTS
    ]  # fmt: skip


def baselines(study: str, settings: Mapping[str, Any], llf: Setting) -> list[Setting]:
    """The other gates on as many labels as the row `llf` has, with its learner.

    Their skipped rounds take no KL-only step, which `llf` has none of either before its labels
    are spent; `first` is `llf`'s twin.
    """
    words = llf.row.partition("LLF-StackSL")
    if not words[1]:
        words = ("", "", ", " + llf.row)
    return [
        named(
            study, f"{words[0]}{gate}{words[2]}", {**gated(gate), **settings},
            budget_fraction=llf.budget_fraction, items=llf.items, task=llf.task,
            chosen=llf.chosen, twin=llf if gate == "first" else None,
        )
        for gate in BASELINES
    ]  # fmt: skip


def permutation(setup: Setup, protocol: str, *settings: Setting) -> list[Setting]:
    """Controls: the same rows with the options of every item in an order drawn anew.

    Only where the order is seen: in protocol `letter`. By options alone no score depends on it.
    """
    if setup.settings.get("protocol", protocol) != "letter":
        return []
    return [
        replace(each, row=f"{each.row}, options permuted", permuted=True, paper={})
        for each in settings
    ]
