"""What labels can teach a refit besides: options of other questions, weights of the premise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from _refits import Row, Task, model_of
from numpy.typing import NDArray


def with_negatives(task: Task, lessons: list[Any], count: int, seed: int) -> list[Any]:
    """The labels with `count` options of other questions more, all of them wrong.

    They are drawn from the questions to label that ask for the same kind, function or class, and
    are new for each label. A name that is the answer of another question is as likely among them as
    a wrong one.
    """
    from stacksl.core.rng import generator

    draw, names = generator(seed, "negatives"), dict[str, list[str]]()
    for item in task.items:
        names.setdefault(kind_of(item), []).extend(item.candidates)
    wider = []
    for each in lessons:
        own, others = each.item.candidates, sorted(set(names[kind_of(each.item)]))
        found = [str(name) for name in draw.permutation(others) if name not in own][:count]
        item = replace(each.item, candidates=(*own, *found))
        wider.append(replace(each, item=item, candidates=tuple(range(len(own) + count))))
        wider[-1] = replace(wider[-1], reference=())
    return wider


def kind_of(item: Any) -> str:
    """The last line of a prompt: `def` or `class`."""
    return str(item.prompt.splitlines()[-1])


def judged_stacked(
    task: Task, rows: NDArray[np.int64], lessons: list[Any], seed: int
) -> tuple[NDArray[np.bool_], Row]:
    """Which questions are answered rightly after a refit under weights fitted to the labels.

    With a / T and b / T from `stacked_scores.weighed`, scores are (log p - (b / a) log p(premise))
    in nats over T / a, in training and in judging.
    """
    from stacked_scores import weighed

    from stacksl.lm.training import refit

    model = model_of({}, seed)
    scores = model.scores([task.items[row] for row in rows])
    sums = np.array(scores["sum"])
    a, b, _ = weighed(sums, sums - np.array(scores["pmi"]), task.gold[rows])
    plain = refit.normalized

    def of_weights(sums: Any, items: Any, kind: Any, *, alone: Any, temperature: float) -> Any:
        return plain(sums, items, kind, alone=[b / a * x for x in alone], temperature=temperature)

    model.rescale(1 / a)
    own = [replace(each, reference=()) for each in lessons]
    with patch.object(refit, "normalized", of_weights):
        model.refit(own, len(rows), None)
    scores = model.scores(task.judged)
    sums = np.array(scores["sum"])
    found = sums - b / a * (sums - np.array(scores["pmi"]))
    chosen = {"weights": [round(a, 4), round(b, 4)]}
    return found.argmax(axis=1) == task.judged_gold, chosen
