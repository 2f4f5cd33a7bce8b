"""What labels can teach a refit besides: options of other questions, weights of the premise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from _refits import Row, Task, model_of
from numpy.typing import NDArray


def with_negatives(lessons: list[Any], count: int, seed: int) -> list[Any]:
    """The labels with up to `count` options of the other labels' questions each, all of them wrong.

    They are drawn without the question's own options. A name that is the answer of another question
    is as likely among them as a wrong one: a model that learned to know answers by themselves would
    gain nothing.
    """
    from stacksl.core.rng import generator

    draw = generator(seed, "negatives")
    names = sorted({name for lesson in lessons for name in lesson.item.candidates})
    wider = []
    for lesson in lessons:
        own = lesson.item.candidates
        drawn = draw.choice(len(names), min(len(names), count + len(own)), replace=False)
        others = [names[n] for n in drawn if names[n] not in own][:count]
        item = replace(lesson.item, candidates=(*own, *others))
        every = (*lesson.candidates, *range(len(own), len(item.candidates)))
        wider.append(replace(lesson, item=item, candidates=every, reference=()))
    return wider


def judged_stacked(
    task: Task, rows: NDArray[np.int64], lessons: list[Any], seed: int
) -> tuple[NDArray[np.bool_], Row]:
    """Which questions are answered rightly after a refit under weights fitted to the labels.

    With a / T and b / T from `stacked_scores.weighed`, scores are (log p - (b / a) log p(premise))
    in nats over T / a, in training and in judging.
    """
    from stacked_scores import weighed

    from stacksl.lm.scoring.normalize import normalized
    from stacksl.lm.training import refit

    model = model_of({}, seed)
    asked = [task.items[row] for row in rows]
    sums, gains = np.array(model.scores(asked, "sum")), np.array(model.scores(asked, "pmi"))
    a, b, _ = weighed(sums, sums - gains, task.gold[rows])

    def of_weights(sums: Any, items: Any, kind: Any, *, alone: Any, temperature: float) -> Any:
        return normalized(
            sums, items, kind, alone=[b / a * x for x in alone], temperature=temperature
        )

    model.rescale(1 / a)
    own = [replace(each, reference=()) for each in lessons]
    with patch.object(refit, "normalized", of_weights):
        model.refit(own, len(rows), None)
    sums = np.array(model.scores(task.judged, "sum"))
    scores = sums - b / a * (sums - np.array(model.scores(task.judged, "pmi")))
    chosen = {"weights": [round(a, 4), round(b, 4)]}
    return scores.argmax(axis=1) == task.judged_gold, chosen
