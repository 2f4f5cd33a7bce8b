"""Is a pool's default ever below class names alone, or below random labels?

Sets of fixed classes and variants of them are split and drawn as `stacksl-lab compare` does: a
fifth of the rows, drawn by seed 0, is tested on; each seed draws a pool of the others. The default
of `stacksl run` is compared with the same final model on random labels, with that model of class
names alone, without a label, and with the default on the encoder's vectors without n-grams. No test
file is read but those of MMLU, which has no other rows.

A floor is the accuracy of names alone less a point, and that of random labels less two points at 50
labels and less one from 100 on. A cell fails where the upper end of a one-sided 95% interval of its
mean difference lies below the floor; seeds and test rows are drawn again for it.

    python benchmarks/floors.py --data $STACKSL_DATA --json benchmarks/results/floors.json
    python benchmarks/floors.py --from benchmarks/results/floors.json
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from _rows import Row, go_on, read, words_of
from _variants import ROWS, WRONG, wrong_answers
from numpy.typing import NDArray
from plan_scenarios import DEFAULT, HASHING, MINILM, dataset, rows_of

from stacksl.core.gates.registry import COVERAGE
from stacksl.core.rng import generator
from stacksl.core.scorers import Head
from stacksl.runs.loop.head_fitting import Component, Kind, Source, make_final
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools import ours
from stacksl_lab.pools.split import Split, make_split

ARMS = ("default", "random", "vectors")
BUDGETS = (50, 100, 300, 1000)
SMALL = 1_500  # rows of a pool, or four fifths of those that are not tested on
DRAWS = 2_000  # of the bootstrap

Right = NDArray[np.bool_]


@dataclass(frozen=True)
class Case:
    """A set under some features, changed as its `variant` says, and the size of its pools."""

    source: str
    features: str
    variant: str = "plain"
    pool: int = SMALL


WIDE = ("banking77", "stackoverflow_titles", "snips", "medical_abstracts", "medquad")
CASES = [
    *(Case(each, DEFAULT, v) for each in WIDE for v in ("plain", *ROWS, *WRONG)),
    *(Case(each, DEFAULT, pool=4_000) for each in WIDE[:2]),
    Case("banking77", DEFAULT, pool=8_000),
    *(Case("sample", features) for features in (HASHING, DEFAULT)),
    *(Case(each, HASHING) for each in ("medquad", "exams")),
]


def split_of(case: Case, data: Path) -> Split:
    """The set as `stacksl-lab compare` would split it."""
    rows = ROWS.get(case.variant, list)(rows_of(case.source, data))
    whole = dataset(rows, np.arange(len(rows)), rows[0][1])
    size = min(case.pool, round(0.8 * 0.8 * len(rows)))
    settings = resolve({"features": case.features}).settings
    split = make_split(whole, None, settings, size, max(budgets_of(size)))[0]
    return replace(split, gold=wrong_answers(split.gold, len(rows[0][1]), case.variant))


def budgets_of(size: int) -> list[int]:
    """Those that leave a third of a pool unasked."""
    return [each for each in BUDGETS if each <= 2 * size / 3]


def judged(split: Split, head: Head) -> tuple[Right, float]:
    """Which test rows a model has right, and its log-loss."""
    probabilities = np.asarray(head.probabilities(split.test))
    own = np.maximum(probabilities[np.arange(len(probabilities)), split.test_gold], 1e-12)
    return np.argmax(probabilities, axis=1) == split.test_gold, float(-np.log(own).mean())


def names_alone(split: Split, seed: int, kind: Kind = "names") -> Head:
    """The final model without a label."""
    pool = split.pool(seed)
    none = np.zeros(0, dtype=np.int64)
    source = Source(pool.block, pool.names, frozenset(), seed)
    return make_final(source, none, none, (Component(kind),))[0]


def measured(case: Case, split: Split, plain: Split | None, seed: int) -> Iterator[Row]:
    """A row for names alone, and one for each arm and budget; `plain` has the vectors alone."""
    budgets = budgets_of(split.size)
    most, models = max(budgets), [("names", 0, split, names_alone(split, seed))]
    for arm, under in (("default", split), ("random", split), ("vectors", plain)):
        if under is None:
            continue
        pool = under.pool(seed)
        bought = pool.order[:most] if arm == "random" else ours.bought_rows(pool, COVERAGE, most)
        source = Source(pool.block, pool.names, frozenset(), seed)
        for budget in budgets:
            rows = np.array(bought[:budget])
            models.append((arm, budget, under, make_final(source, rows, pool.gold[rows])[0]))
    for arm, labels, under, head in models:
        right, loss = judged(under, head)
        yield {
            **{"set": case.source, "features": case.features, "variant": case.variant},
            **{"pool": split.size, "classes": split.about["classes"], "seed": seed, "arm": arm},
            **{"labels": labels, "n": len(right), "log_loss": round(loss, 4)},
            "right": base64.b64encode(np.packbits(right)).decode(),
        }


def right_of(row: Row) -> Right:
    """Which test rows were right."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(row["right"]), np.uint8))
    return bits[: row["n"]].astype(bool)


@dataclass(frozen=True)
class Difference:
    """The default's mean accuracy less another's, with the ends of one-sided 95% intervals."""

    mean: float
    low: float
    high: float


@lru_cache(maxsize=1)
def drawn_again(seeds: int, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weights of rows and of seeds in each draw, the same in every cell of a case."""
    rng = generator(0, "floors/bootstrap")
    weights = rng.multinomial(rows, np.full(rows, 1 / rows), DRAWS) / rows
    return weights, rng.multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS) / seeds


def difference(ours: Right, other: Right) -> Difference:
    """Of models by seed, (seeds, rows); seeds and test rows are drawn again, both paired."""
    each = ours.astype(np.float64) - other
    weights, drawn = drawn_again(*each.shape)
    means = np.einsum("ds,sd->d", drawn, each @ weights.T)
    low, high = np.quantile(means, (0.05, 0.95))
    return Difference(float(each.mean()), float(low), float(high))


@dataclass(frozen=True)
class Cell:
    """A case at a number of labels: mean accuracies, and whether it keeps its floors."""

    case: Case
    classes: int
    labels: int
    seeds: int
    accuracy: dict[str, float]
    over: dict[str, Difference]

    @property
    def fails(self) -> list[str]:
        """The floors that it is below."""
        floors = {"names": 0.01, "random": 0.02 if self.labels < 100 else 0.01}
        return [name for name, room in floors.items() if self.over[name].high < -room]


def cells_of(rows: list[Row]) -> list[Cell]:
    """Every case and budget that the rows hold."""
    cells = []
    for case in dict.fromkeys(_case(row) for row in rows):
        mine = [row for row in rows if _case(row) == case]
        for labels in sorted({row["labels"] for row in mine} - {0}):
            right = {
                arm: np.stack([right_of(r) for r in mine if (r["arm"], r["labels"]) == (arm, at)])
                for arm, at in (("names", 0), *((arm, labels) for arm in ARMS))
                if any((row["arm"], row["labels"]) == (arm, at) for row in mine)
            }
            others = set(right) - {"default"}
            over = {arm: difference(right["default"], right[arm]) for arm in others}
            accuracy = {arm: float(each.mean()) for arm, each in right.items()}
            seeds = len(right["default"])
            cells.append(Cell(case, mine[0]["classes"], labels, seeds, accuracy, over))
    return cells


def _case(row: Row) -> Case:
    return Case(row["set"], row["features"], row["variant"], row["pool"])


def table(rows: list[Row]) -> str:
    """A line for each case, what the cells come to, and those that are below a floor."""
    cells = cells_of(rows)
    lines = [
        "| items | pool | classes | names alone | labels | default | over random"
        " | over vectors alone | below |"
    ]
    lines.append(f"|{'---|' * 9}")
    for case in dict.fromkeys(cell.case for cell in cells):
        mine = [cell for cell in cells if cell.case == case]
        shown = (
            _name(case),
            f"{case.pool:,}",
            str(mine[0].classes),
            f"{mine[0].accuracy['names']:.3f}",
            " / ".join(f"{cell.labels:,}" for cell in mine),
            " / ".join(f"{cell.accuracy['default']:.3f}" for cell in mine),
            *(
                " / ".join(f"{cell.over[arm].mean:+.3f}" for cell in mine if arm in cell.over)
                for arm in ARMS[1:]
            ),
            str(sum(bool(cell.fails) for cell in mine) or ""),
        )
        lines.append(f"| {' | '.join(shown)} |")
    failing = [cell for cell in cells if cell.fails]
    names, other, vectors = (
        np.mean([cell.over[arm].mean for cell in cells if arm in cell.over])
        for arm in ("names", *ARMS[1:])
    )
    fewest, most = (of(cell.seeds for cell in cells) for of in (min, max))
    seeds = f"{most} seeds each" if fewest == most else f"{fewest} to {most} seeds each"
    lines += [
        "",
        f"Below a floor: {len(failing)} of {len(cells)} cells ({len(failing) / len(cells):.1%}),"
        f" {seeds}. The mean difference over all cells is {names:+.3f} to names alone and"
        f" {other:+.3f} to random labels, and {vectors:+.3f} to the vectors alone where n-grams are"
        " next to them.",
    ]
    for cell in failing:
        for arm in cell.fails:
            away = cell.over[arm]
            lines.append(
                f"- {_name(cell.case)}, {cell.labels:,} labels: {away.mean:+.3f} to {arm}"
                f" (at most {away.high:+.3f})."
            )
    return "\n".join(lines)


def _name(case: Case) -> str:
    what = case.source + (", hashing" if case.features == HASHING else "")
    return what if case.variant == "plain" else f"{what}, {case.variant}"


def run(data: Path, file: Path | None, seeds: int) -> list[Row]:
    """Measure what the file does not hold yet, a seed of every case before the next."""
    splits: dict[Case, Split] = {}
    for case in CASES:
        split = split_of(case, data)
        splits[replace(case, pool=split.size)] = split

    @cache
    def plain(case: Case) -> Split | None:
        return split_of(replace(case, features=MINILM), data) if case.features == DEFAULT else None

    return go_on(
        file,
        ((case, seed) for seed in range(seeds) for case in splits),
        lambda row: (_case(row), row["seed"]),
        lambda case, seed: measured(case, splits[case], plain(case), seed),
    )


def main() -> None:
    """Measure or show; see the module's text."""
    words = words_of(__doc__, "--data", "--seeds", "--json", "--from", goes_on=True)
    rows = read(words.source) if words.source else run(words.data, words.json, words.seeds)
    print(table(rows))


if __name__ == "__main__":
    main()
