"""A refit under weights of log p and of the premise that are fitted to its labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from _refits import Row, Task, model_of
from numpy.typing import NDArray


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
