"""A scorer of your own, played by

PYTHONPATH=examples/modules stacksl run --scorer perceptron --set plugins=perceptron
"""

import numpy as np

from stacksl.core import SCORERS
from stacksl.core.losses import softmax
from stacksl.core.scorers.bounds import assemble
from stacksl.core.scorers.gradient import ClassBlocks, OneMatrix
from stacksl.core.scorers.rows import add_rows, all_scores, gold_position, pick, restored


class Perceptron:
    """θ ← θ + φ(z, gold) − φ(z, best) whenever another presented candidate scores best."""

    name = "perceptron"

    def __init__(self, dim, classes, settings):
        self.dim, self.settings, self.learned, self.rounds = dim, settings, 0, 0
        self.theta = np.zeros(dim if classes is None else (classes, dim))
        make = OneMatrix if classes is None else ClassBlocks
        self.tracker = make(dim, settings.ridge)

    @property
    def volume(self):
        return self.tracker.volume

    def scores(self, inputs):
        return all_scores(self.theta, inputs)

    def bounds(self, inputs, presented, scores=None):
        found = pick(self.scores(inputs) if scores is None else scores, presented)
        widths, against = self.tracker.widths(inputs, presented)
        return assemble(self, presented, found, softmax(found), widths, against, self.theta.size)

    def step(self, inputs, presented, choice, feedback):
        if feedback is None:
            return
        gold = presented[gold_position(presented, feedback, self.name)]
        best = presented[int(np.argmax(pick(self.scores(inputs), presented)))]
        if best != gold:
            add_rows(self.theta, inputs, (gold, best), np.array([1.0, -1.0]))
        self.tracker.add(inputs, choice)
        self.learned += 1
        self.rounds += 1

    def skip(self, inputs, presented, choice):
        self.rounds += 1

    def state(self):
        counts = np.array([self.learned, self.rounds], dtype=np.int64)
        return {"theta": self.theta.copy(), "counts": counts, **self.tracker.state()}

    def restore(self, state):
        self.theta = restored(state, "theta", self.theta)
        self.learned, self.rounds = (int(count) for count in state["counts"])
        self.tracker.restore(state)


SCORERS["perceptron"] = Perceptron
