"""What three example texts a class gain in a pool, at 0, 75 and 150 labels.

Training rows of Banking77, split by each seed into 3,003 judged ones, a pool of 3,000 and the rest,
of which three a class become its examples; none has the text of a row of the other two. With and
without them the default of `stacksl run` is played, on the same pool. The test file is not read.

Without a label the final model is `names`; `names and graph` has neighbors as well. The examples
are customers' questions like the judged rows: texts made up by a person may help less. Seeds share
rows, which the intervals do not know.

    python benchmarks/class_examples.py --data $STACKSL_DATA
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from _rows import interval
from floors import judged, names_alone
from plan_scenarios import MINILM, Row, dataset, rows_of
from stream_or_pool import HELD_OUT

from stacksl.core.gates.registry import COVERAGE
from stacksl.core.threads import one_thread
from stacksl.data.values import normal
from stacksl.features import make_features
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.loop.head_fitting import Kind
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools.split import Split, make_split
from stacksl_lab.pools.strategies import PRODUCT, measure

SEEDS = (3000, 3001, 3002, 3003)
POOL, EXAMPLES = 3_000, 3
BUDGETS = (75, 150)
ALONE: tuple[Kind, ...] = ("names", "names and graph")


def splits(rows: list[Row], seed: int) -> Iterator[Split]:
    """One split: the classes known by their names, then by names and examples."""
    order, held = np.random.default_rng(seed).permutation(len(rows)), HELD_OUT["banking77"]
    judged, drawn, rest = np.split(order, [held, held + POOL])
    classes = rows[0][1]
    pool, test = (dataset(rows, part, classes) for part in (drawn, judged))
    split, _ = make_split(pool, test, resolve({"features": MINILM}).settings, POOL, BUDGETS[-1])
    yield split
    taken = {normal(item.prompt) for item in (*pool.items, *test.items)}
    examples: list[list[str]] = [[] for _ in classes]
    for text, _, answer in (rows[n] for n in rest):
        if len(examples[answer]) < EXAMPLES and normal(text) not in taken:
            examples[answer].append(text)
    assert all(len(some) == EXAMPLES for some in examples)
    features = make_features(MINILM, classes=classes)
    features.fit(pool.items)
    yield replace(split, names=name_rows(features, name_texts(classes), None, examples))


def accuracies(split: Split, seed: int) -> list[float]:
    """In points: without a label, by names and with neighbors, then at each budget."""
    with one_thread():
        alone = [judged(split, names_alone(split, seed, kind))[0].mean() for kind in ALONE]
        (found,) = measure(split, COVERAGE, seed, BUDGETS)
    return [100 * each for each in (*alone, *(found[f"{PRODUCT}@{n}"] for n in BUDGETS))]


def main() -> None:
    """Measure and show; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets")
    rows = rows_of("banking77", parser.parse_args().data)
    results = np.array([[accuracies(each, seed) for each in splits(rows, seed)] for seed in SEEDS])
    print("| labels | names | names and examples | gain, paired |\n|---|---|---|---|")
    for n, labels in enumerate((*(f"0, {kind}" for kind in ALONE), *BUDGETS)):
        names, both = results[:, :, n].T
        cells = ("{:.1f} ± {:.1f}".format(*interval(x)) for x in (names, both, both - names))
        print(f"| {labels} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
