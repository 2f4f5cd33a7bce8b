"""What the labels of a model were worth to a run of people, in a sentence or two."""

from __future__ import annotations

import numpy as np

from stacksl.models.confusion import information
from stacksl.report.wording import money
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.spec import RunSpec


def worth_of(spec: RunSpec, trainer: LinearTrainer) -> str:
    """A sentence on what the labels of a model were worth, if the run has such."""
    if trainer.model_labels is None:
        return ""
    if (found := trainer.confusion()) is None:
        return " No label bought at random was compared with the model's, so they took no part."
    rate, low, high = (f"{100 * each:.0f}" for each in found.accuracy)
    compared = (
        f" On {found.count} items drawn at random the model's label was people's in an estimated"
        f" {rate} % (95 % interval {low} to {high})"
    )
    if not found.tells:
        return f"{compared}, which may be chance: its labels took no part."
    _, shares = found.soft(trainer.model_labels[trainer.model_labels >= 0])
    model, people = (
        float(information(shares[None], matrix)[0])
        for matrix in (found.matrix, np.eye(len(shares)))
    )
    price = spec.budget.price if spec.budget.money is not None else 0
    worth = f", as much as {money(int(round(price * model / people, -4)))} buys of people's"
    return (
        f"{compared}. Such a label says {model:.1f} of the {people:.1f} bits that a person's says"
        f" of an item's class{worth * bool(price)}."
    )
