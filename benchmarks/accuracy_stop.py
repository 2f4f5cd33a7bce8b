"""How often does the stop rule `accuracy=A` decide, and how often wrongly?

Simulated runs start low and rise: at the four looks of a budget the model's true accuracy is
`final` less .25, .10, .04 and 0. A model is right on a row of the audit where its accuracy exceeds
the row's difficulty, which is the same at all looks but for a fifth of the rows, drawn anew at each
refit. Its probabilities are its accuracy on average, and higher on easier rows as far as noise
lets them; a run has 500 reference rows. At each look the functions
of the product judge the audit at the look's level; of `people` three answer, who err in 5% of
rows, three times as often where the model errs and in half of these with its answer, and the second
look is asked within the labels that a run keeps for it. A decision is false where the model of
that look is not as accurate as the mark.

`steady` runs stand just below the mark at all looks: the most false decisions that a model can get.

    python benchmarks/accuracy_stop.py --json benchmarks/results/accuracy_stop.json
    python benchmarks/accuracy_stop.py --from benchmarks/results/accuracy_stop.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.models.audit import powered
from stacksl.models.metrics import Powers, z_of_look
from stacksl.models.second_look import looked, next_rows, reserved, split
from stacksl.runs.finish.forecasting import NEAR

MARK, CLASSES, PEOPLE, BESIDE, ANEW = 0.9, 20, 3, 500, 0.2
RISE = (0.25, 0.10, 0.04, 0.0)  # below the final accuracy at each look
STEADY = (0.0, 0.0, 0.0, 0.0)
PATHS = {
    "steady": [(0.899, STEADY)],
    "rises": [(final, RISE) for final in (0.85, 0.899, 0.92, 0.94, 0.96, 0.98)],
}
SIZES = (50, 100, 200)
ERRORS = {"rate": 0.05, "times": 3.0, "along": 0.5}

Array = np.ndarray


def probabilities(rng: np.random.Generator, n: int, accuracy: float) -> Array:
    """What a model of this accuracy gives its own answers to `n` rows, on average the accuracy."""
    return rng.beta(6 * accuracy, 6 * (1 - accuracy), n)


def answered(rng: np.random.Generator, said: Array, share: float) -> Array:
    """What each person says of each row, whose right answer is 0, (n, people)."""
    wrong = said != 0
    low = ERRORS["rate"] / (1 - share + ERRORS["times"] * share)
    rate = np.where(wrong, low * ERRORS["times"], low)[:, None]
    shape = (len(said), PEOPLE)
    follows = wrong[:, None] & (rng.random(shape) < ERRORS["along"])
    slip = np.where(follows, said[:, None], rng.integers(1, CLASSES, shape))
    return np.where(rng.random(shape) < rate, slip, 0)


class Run:
    """One simulated run: its audit, the models of its looks, and what people say."""

    def __init__(self, rng: np.random.Generator, n: int, accuracies: list[float], people: bool):
        self.rng, self.n, self.people = rng, n, people
        self.rank = rng.random(n)  # difficulty
        self.slip = rng.integers(1, CLASSES, n)
        self.left = reserved(n, 10 * n)
        self.answers: dict[int, list[int]] = {}
        if people:
            predicted, _ = self.model(accuracies[-1])
            self.told = answered(rng, predicted, 1 - accuracies[-1]).tolist()
            self.answers = {row: [self.told[row][0]] for row in range(n)}

    def model(self, accuracy: float) -> tuple[Array, Powers]:
        """The answers of a model to the audit, where 0 is right, and its probabilities of them."""
        anew = self.rng.random(self.n) < ANEW
        rank = np.where(anew, self.rng.random(self.n), self.rank)
        sure = np.empty(self.n)  # the easier a row seems, the surer
        order = np.argsort(rank + self.rng.normal(0, 0.4, self.n))
        sure[order] = np.sort(probabilities(self.rng, self.n, accuracy))[::-1]
        beside = probabilities(self.rng, BESIDE, accuracy)
        return np.where(rank < accuracy, 0, self.slip), Powers(sure, beside)

    def bound(self, look: int, accuracy: float) -> float:
        """The lower bound of the accuracy at a look; 0 where nobody is asked again."""
        said, powers = self.model(accuracy)
        if not self.people:
            right = (said == 0).astype(float)
            return powered(right, np.ones(self.n, dtype=bool), powers, z_of_look(look))[1]
        predicted = dict(enumerate(said.tolist()))
        agreed = np.mean([self.answers[row][0] == said[row] for row in range(self.n)])
        if agreed < MARK - NEAR:
            return 0.0
        while True:
            rows = split(range(self.n), predicted, self.answers, ())
            free = {row: PEOPLE - len(given) for row, given in self.answers.items()}
            due = next_rows(rows, self.answers, free, self.left)
            if not due:
                break
            self.left -= len(due)
            for row in due:
                self.answers[row].append(self.told[row][len(self.answers[row])])
        return looked(rows, predicted, self.answers, powers, z_of_look(look)).accuracy[1]


def cell(path: list[float], n: int, *, people: bool, runs: int, seed: int) -> dict[str, Any]:
    """How many of so many runs decided, at which look, and how many of them falsely."""
    rng = np.random.default_rng(seed)
    decided, false = [0] * len(path), 0
    for _ in range(runs):
        run = Run(rng, n, path, people)
        for look, accuracy in enumerate(path, start=1):
            if run.bound(look, accuracy) >= MARK:
                decided[look - 1] += 1
                false += accuracy < MARK
                break
    return {"decided": decided, "false": false}


def measured(runs: int) -> list[dict[str, Any]]:
    """All cells."""
    rows = []
    for people in (False, True):
        for kind, cells in PATHS.items():
            for final, below in cells:
                path = [round(final - each, 3) for each in below]
                for n in SIZES:
                    counts = cell(path, n, people=people, runs=runs, seed=len(rows))
                    about = {"people": people, "path": kind, "final": final, "audit": n}
                    rows.append({**about, "runs": runs, **counts})
                    print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The page's table: a line for each path, decisions by size of the audit, and false ones."""
    wide = " | ".join(f"{n} items | false" for n in SIZES)
    lines = [f"| answers | accuracy at the looks | {wide} |", "|---|---|" + "---|" * 6]
    known = {(row["people"], row["path"], row["final"], row["audit"]): row for row in rows}
    for people, kind, final in dict.fromkeys(key[:3] for key in known):
        cells = [known[people, kind, final, n] for n in SIZES]
        shares = [
            f"{100 * sum(row['decided']) / row['runs']:.1f}%"
            f" | {100 * row['false'] / row['runs']:.1f}%"
            for row in cells
        ]
        who = "three people, 5% errors" if people else "right"
        way = f"{final:g} at all" if kind == "steady" else f"{final - RISE[0]:.3g} to {final:g}"
        lines.append(f"| {who} | {way} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and show; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the record is written")
    parser.add_argument("--from", dest="record", type=Path, help="show a record")
    parser.add_argument("--runs", type=int, default=1000)
    words = parser.parse_args()
    if words.record:
        print(table(json.loads(words.record.read_text())["rows"]))
        return
    rows = measured(words.runs)
    if words.json:
        words.json.write_text(json.dumps({"mark": MARK, "rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
