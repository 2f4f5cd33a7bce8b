"""Accuracy of `stacksl` and of the loops that one would otherwise write, on four public sets.

Sets, variants and pools are those of `floors.py`: a fifth of the rows is tested on, each seed draws
a pool of the others, and wrong answers are among those that can be bought, never in the test part.
Everybody buys the same number of labels in the same batches. On the default features, which are
all-MiniLM-L6-v2 vectors with n-grams of tokens:

- `stacksl`: the default of `stacksl run --mode pool` and its final model;
- `random, stacksl`: random labels under the same final model;
- `loop, same features`: `loop` on these features;

and on the vectors alone:

- `stacksl, vectors`: `stacksl run --mode pool --features sentences:minilm`;
- `loop`: margin sampling by a logistic regression whose training rows are the bought labels and
  the names of the classes (`loop_bought`);
- `typiclust` and `margin`: strategies of scikit-activeml with its defaults;
- `random`: random labels.

Where the model is not that of `stacksl` it is this logistic regression, with the class names as
rows. Its C is the best of `STRENGTHS` on the test part, in each cell: more than a user could know.

    python benchmarks/other_loops.py --data $STACKSL_DATA --json benchmarks/results/other_loops.json
    python benchmarks/other_loops.py --from benchmarks/results/other_loops.json
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from _rows import Row, go_on, read, words_of
from floors import Case, split_of
from numpy.typing import NDArray
from plan_scenarios import DEFAULT, MINILM
from scipy.stats import t as student

from stacksl.core.gates.registry import COVERAGE
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl_lab.pools import ours
from stacksl_lab.pools.peers import PEERS, Peer
from stacksl_lab.pools.split import Pool, Split

BUDGETS = (100, 300, 1000)
STRENGTHS = (5.0, 20.0, 100.0)  # C of the logistic regression; the loop chooses by the second
CASES = [
    Case(source, DEFAULT, variant)
    for source in ("banking77", "stackoverflow_titles", "snips")
    for variant in ("plain", "rare", "5% wrong")
] + [Case("medical_abstracts", DEFAULT, "plain")]
SHOWN = {
    "stacksl": "`stacksl`",
    "random, stacksl": "random, same model",
    "loop, same features": "loop, same features",
    "stacksl, vectors": "`stacksl`, vectors alone",
    "loop": "15-line loop",
    "typiclust": "TypiClust",
    "margin": "margin",
    "random": "random",
}
ARMS = tuple(SHOWN)
MARGIN = Peer("scikit-activeml", "UncertaintySampling", "clf", {"method": "margin_sampling"})

Rows = NDArray[np.int64]


def fitted(pool: Pool, rows: Rows, strength: float) -> Any:
    """A logistic regression on bought rows and the names of the classes."""
    from sklearn.linear_model import LogisticRegression

    x = np.concatenate([pool.block.h[rows], pool.names])
    y = np.concatenate([pool.gold[rows], np.arange(len(pool.names))])
    return LogisticRegression(C=strength, max_iter=300).fit(x, y)


def loop_bought(pool: Pool, count: int) -> list[int]:
    """The rows in which the two best classes are closest, batch by batch."""
    chosen: list[int] = []
    while len(chosen) < count:
        model = fitted(pool, np.array(chosen, dtype=np.int64), STRENGTHS[1])
        best = np.sort(model.predict_proba(pool.block.h), axis=1)
        margin = best[:, -1] - best[:, -2]
        margin[chosen] = np.inf
        chosen += np.argsort(margin)[
            : min(pool.settings.open_questions, count - len(chosen))
        ].tolist()
    return chosen


def measured(case: Case, split: Split, plain: Split, seed: int) -> Iterator[Row]:
    """A row for each arm and number of labels; `plain` has the vectors alone."""
    pool, vectors, most = split.pool(seed), plain.pool(seed), max(BUDGETS)
    chosen = {
        "stacksl": ours.bought_rows(pool, COVERAGE, most),
        "random, stacksl": list(pool.order[:most]),
        "loop, same features": loop_bought(pool, most),
        "stacksl, vectors": ours.bought_rows(vectors, COVERAGE, most),
        "loop": loop_bought(vectors, most),
        "typiclust": PEERS["typiclust"].bought_rows(vectors, most),
        "margin": MARGIN.bought_rows(vectors, most),
        "random": list(vectors.order[:most]),
    }
    for arm, bought in chosen.items():
        under, of = (split, pool) if arm in ARMS[:3] else (plain, vectors)
        source = Source(of.block, of.names, frozenset(), seed)
        for labels in BUDGETS:
            rows = np.array(bought[:labels])
            if "stacksl" in arm:
                head = make_final(source, rows, of.gold[rows])[0]
                accuracies = [_accuracy(np.asarray(head.probabilities(under.test)), under)]
            else:
                models = [fitted(of, rows, strength) for strength in STRENGTHS]
                accuracies = [_accuracy(m.predict_proba(under.test.h), under) for m in models]
            yield {
                **{"set": case.source, "variant": case.variant, "pool": split.size},
                **{"n_test": len(split.test_gold), "seed": seed, "arm": arm, "labels": labels},
                "accuracy": [round(each, 5) for each in accuracies],
            }


def _accuracy(probabilities: NDArray[np.float64], split: Split) -> float:
    return float((np.argmax(probabilities, axis=1) == split.test_gold).mean())


def run(data: Path, file: Path | None, seeds: int) -> list[Row]:
    """Measure what the file does not hold yet, a seed of every case before the next."""
    split = cache(lambda case: split_of(case, data))
    return go_on(
        file,
        ((case, seed) for seed in range(seeds) for case in CASES),
        lambda row: (Case(row["set"], DEFAULT, row["variant"]), row["seed"]),
        lambda case, seed: measured(case, split(case), split(replace(case, features=MINILM)), seed),
    )


def by_seed(rows: list[Row], case: Case, arm: str, labels: int) -> NDArray[np.float64]:
    """The accuracies of an arm by seed, with the C that has the best mean."""
    accuracies = np.array(
        [
            row["accuracy"]
            for row in sorted(rows, key=lambda row: row["seed"])
            if (row["set"], row["variant"], row["arm"], row["labels"])
            == (case.source, case.variant, arm, labels)
        ]
    )
    return accuracies[:, accuracies.mean(axis=0).argmax()]


def table(rows: list[Row]) -> str:
    """A line for each case and number of labels, and a summary.

    `stacksl` is compared with the loop on the same features.
    """
    heads = [SHOWN[arm] for arm in ARMS]
    lines = [
        f"| set | labels | {' | '.join(heads)} | `stacksl` minus loop, same features |",
        f"|{'---|' * (3 + len(ARMS))}",
    ]
    gains: dict[int, list[tuple[float, float, float]]] = {labels: [] for labels in BUDGETS}
    for case in CASES:
        for labels in BUDGETS:
            accuracies = {arm: by_seed(rows, case, arm, labels) for arm in ARMS}
            over = accuracies["stacksl"] - accuracies["loop, same features"]
            half = student.ppf(0.975, len(over) - 1) * over.std(ddof=1) / np.sqrt(len(over))
            means = {arm: float(each.mean()) for arm, each in accuracies.items()}
            gains[labels].append((over.mean(), half, means["stacksl"] - means["random, stacksl"]))
            cells = [_name(case), f"{labels:,}", *(f"{mean:.3f}" for mean in means.values())]
            lines.append(f"| {' | '.join(cells)} | {over.mean():+.3f} ± {half:.3f} |")
    lines.append("")
    for labels, found in gains.items():
        over, halves, choice = np.array(found).T
        lines.append(
            f"- With {labels:,} labels `stacksl` has {100 * over.mean():.1f} points more than the"
            f" loop on the same features in the mean of the {len(over)} rows. The interval is above"
            f" zero in {np.sum(over > halves)} of them and below zero in"
            f" {np.sum(over < -halves)}. The choice alone gains {100 * choice.mean():.1f} points"
            " over random labels under the same model."
        )
    return "\n".join(lines)


def short_table(rows: list[Row]) -> str:
    """A line for each case: the means at all numbers of labels, the largest of each in bold."""
    arms = ["stacksl", "loop, same features", *ARMS[4:]]
    lines = [f"| set | {' | '.join(SHOWN[arm] for arm in arms)} |", f"|{'---|' * (1 + len(arms))}"]
    for case in CASES:
        means = np.array([[by_seed(rows, case, a, n).mean() for n in BUDGETS] for a in arms])
        best = means.round(3) == means.round(3).max(axis=0)
        cells = (
            " / ".join(f"**{m:.3f}**" if top else f"{m:.3f}" for m, top in zip(*arm, strict=True))
            for arm in zip(means, best, strict=True)
        )
        lines.append(f"| {' | '.join([_name(case), *cells])} |")
    return "\n".join(lines)


def _name(case: Case) -> str:
    name = case.source.replace("_", " ")
    return name if case.variant == "plain" else f"{name}, {case.variant}"


def main() -> None:
    """Measure or show; see the module's text."""
    words = words_of(__doc__, "--data", "--seeds", "--json", "--from", goes_on=True)
    rows = read(words.source) if words.source else run(words.data, words.json, words.seeds)
    print(table(rows))


if __name__ == "__main__":
    main()
