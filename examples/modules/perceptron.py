"""A scorer of your own, played by

PYTHONPATH=examples/modules stacksl run --scorer perceptron --set plugins=perceptron
"""

import numpy as np

from stacksl.core import SCORERS, Scorer
from stacksl.core.losses import softmax
from stacksl.core.scorers.gradient import Blocks
from stacksl.core.scorers.rows import add_rows, pick


class Perceptron(Scorer):
    """θ ← θ + φ(z, gold) − φ(z, best) whenever another presented candidate scores best."""

    name = "perceptron"

    def __init__(self, dim, classes, settings):
        super().__init__((dim,) if classes is None else (classes, dim), settings)
        self.tracker = Blocks(dim, settings.ridge, by_class=classes is not None)
        self.learned = 0

    @property
    def volume(self):
        return self.tracker.volume

    def _view(self, inputs, presented, scores):
        return softmax(scores), *self.tracker.widths(inputs, presented), None

    def _learn(self, inputs, presented, choice, label):
        best = presented[int(np.argmax(pick(self.scores(inputs), presented)))]
        if best != label.index:
            add_rows(self.theta, inputs, (label.index, best), np.array([1.0, -1.0]))
        self._track(inputs, presented, choice)
        self.learned += 1

    def _track(self, inputs, presented, choice):
        self.tracker.add(inputs, choice)

    def state(self):
        counts = np.array([self.learned, self.rounds], dtype=np.int64)
        return {"theta": self.theta.copy(), "counts": counts, **self.tracker.state()}

    def restore(self, state):
        self.theta = np.array(state["theta"])
        self.learned, self.rounds = (int(count) for count in state["counts"])
        self.tracker.restore(state)


SCORERS["perceptron"] = Perceptron
