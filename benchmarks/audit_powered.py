"""How much narrower the model's own probabilities make an audit's interval, and whether it holds.

Final models of 12 to 600 labels answer rows that were kept from them. An audit, and as many
reference rows as a run has, are drawn from these 1,000 times. Next to the product's interval stand
Wilson's, of the audit alone, and that of ppi-python (PPI++), where it is installed. `over` is the
share of redraws whose low end lies above the truth, `width` the mean width in Wilson's. Two sets
are changed so that accuracies from .5 to .99 are among them: the titles have names that say
nothing, and Snips has three classes.

The second table is about the exported one: the share of the pool's labels that is right, where
people gave those that were bought, and the model the others. It is estimated by the audited rows
that the run would not have bought (`WouldBuy`), which is the product's way, and by the accuracy of
the audit. `holds` is the share of redraws whose interval has the truth, `least` that of the worst
model, and `over` the share whose low end is above the truth.

    pip install ppi-python
    python benchmarks/audit_powered.py --data $STACKSL_DATA --json powered.json
    python benchmarks/audit_powered.py --from powered.json
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from _rows import read, words_of, write
from _variants import coded
from plan_scenarios import DEFAULT, Row, dataset, rows_of

from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.models.audit import WouldBuy, powered, right_in_table
from stacksl.models.metrics import Powers, wilson
from stacksl.runs.items.corpus import Role
from stacksl.runs.loop import choosers
from stacksl.runs.loop.game import play
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools import ours
from stacksl_lab.pools.split import make_split

CODED, THREE = "stackoverflow_titles, codes", "snips, three classes"
SETS = ("banking77", "snips", "stackoverflow_titles", "medquad", CODED, THREE)
LABELS = (12, 50, 150, 600)
SIZES = (20, 50, 100, 200)
BOUNDS = (0.0, 0.8, 0.95, 1.0)  # of the accuracies that the table has together
POOL, KEPT, REFERENCE = 1_400, 3_000, 500
REDRAWS, OF_PEER = 1_000, 200  # ppi-python takes longer

Batches = list[tuple[np.ndarray, float]]
"""What each batch thinks of the rows kept from it, and its share of the items left to buy."""


@dataclass(slots=True)
class Recorder(WouldBuy):
    """Keeps what batches think of audited rows, of which audits are drawn afterwards."""

    batches: Batches = field(default_factory=list)

    def note(self, audited: Sequence[int], statistics: np.ndarray, share: float) -> None:
        """Keep the arguments."""
        assert len(audited) == len(statistics)
        self.batches.append((statistics, share))

    def upto(self, labels: int, size: int) -> Batches:
        """Those of the first `labels` labels, in batches of `size`."""
        parts = [min(1.0, labels / size - n) for n in range(-(-labels // size))]
        return [(s, part * share) for (s, share), part in zip(self.batches, parts, strict=False)]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A final model of some labels.

    Attributes:
        right: which rows kept from it it has right, (n,).
        sure: its probability of its answers to them, (n,).
        batches: what those that bought its labels think of them.
        left: which of the pool's rows that were not bought it has right, (m,).
    """

    right: np.ndarray
    sure: np.ndarray
    batches: Batches
    left: np.ndarray


def rows_in(name: str, data: Path) -> list[Row]:
    """The rows of a set, changed as its name says."""
    rows = rows_of(name.split(",")[0], data)
    if name == CODED:
        return coded(rows)
    if name == THREE:
        return [(text, names[:3], label) for text, names, label in rows if label < 3]
    return rows


def models(name: str, data: Path) -> Iterator[Model]:
    """The final models of a set, judged on at most 3,000 rows kept, and on the rows left."""
    rows = rows_in(name, data)
    order = generator(0, "powered").permutation(len(rows))
    cut = min(len(rows) // 2, KEPT)
    test, train = (
        dataset(rows, part, rows[0][1]) for part in (order[:cut], order[cut : cut + 1500])
    )
    settings = resolve({"features": DEFAULT}).settings
    split, _ = make_split(train, test, settings, min(POOL, len(train.items)), LABELS[-1])
    pool = split.pool(0)
    assert isinstance(pool.block, SharedBlock)
    assert isinstance(split.test, SharedBlock)
    recorder, size = Recorder(), len(pool.gold)
    wider = replace(
        pool,
        block=replace(pool.block, h=np.concatenate([pool.block.h, split.test.h])),
        gold=np.concatenate([pool.gold, split.test_gold]),
    )
    with tempfile.TemporaryDirectory() as folder:
        game = ours.game_of(wider, COVERAGE, LABELS[-1], Path(folder))
        game.corpus.assign(Role.AUDIT, range(size, len(wider.gold)))
        game.would_buy = recorder
        for _ in play(game, choosers.Pool(0, coverage=True)):
            pass
        game.ledger.close()
    bought = np.array([row for row, _, _ in game.examples.bought])
    source = Source(pool.block, pool.names, frozenset(), 0)
    for count in LABELS:
        head, _ = make_final(source, bought[:count], pool.gold[bought[:count]])
        left = np.setdiff1d(np.arange(size), bought[:count])
        policies = np.asarray(head.probabilities(split.test))
        of_left = np.asarray(head.probabilities(pool.block.take(left.tolist())))
        yield Model(
            (policies.argmax(axis=1) == split.test_gold).astype(float),
            policies.max(axis=1),
            recorder.upto(count, settings.open_questions),
            (of_left.argmax(axis=1) == pool.gold[left]).astype(float),
        )


def redrawn(model: Model, size: int) -> dict[str, float]:
    """Coverage, overstatement and width of each interval over redraws."""
    right, sure = model.right, model.sure
    rng, truth = generator(size, "powered/redraws"), float(right.mean())
    held: dict[str, list[tuple[bool, bool, float]]] = {"wilson": [], "powered": [], "peer": []}
    beside = min(REFERENCE, len(right) // 3)
    for number in range(REDRAWS):
        drawn = rng.integers(len(right), size=size + beside)
        audit, rest = drawn[:size], drawn[size:]
        ends = {"wilson": wilson(int(right[audit].sum()), size)}
        known = np.ones(size, dtype=bool)
        ends["powered"] = powered(right[audit], known, Powers(sure[audit], sure[rest]))[1:]
        if number < OF_PEER and find_spec("ppi_py"):
            from ppi_py import ppi_mean_ci

            low, high = ppi_mean_ci(right[audit], sure[audit], sure[rest], alpha=0.05)
            ends["peer"] = float(np.squeeze(low)), float(np.squeeze(high))
        for each, (low, high) in ends.items():
            held[each].append((low <= truth <= high, low > truth, high - low))
    return {
        f"{each} {what}": float(np.mean([row[at] for row in rows]))
        for each, rows in held.items()
        if rows
        for at, what in enumerate(("holds", "over", "width"))
    }


def of_table(model: Model, labels: int, size: int) -> dict[str, float]:
    """How near both estimates of the right labels in the table come over redraws of the audit."""
    right, rng, rows = model.right, generator(size, "powered/table"), len(model.left)
    truth = (labels + float(model.left.sum())) / (labels + rows)
    held: dict[str, list[tuple[float, bool, bool, float]]] = {"audit": [], "stand": []}
    for _ in range(REDRAWS):
        audit = rng.choice(len(right), size, replace=False)
        would_buy = WouldBuy()
        for statistics, share in model.batches:
            would_buy.note(audit.tolist(), statistics[audit], share)
        stand = np.setdiff1d(audit, would_buy.rows)
        for name, part in (("audit", audit), ("stand", stand)):
            hits = int(right[part].sum())
            estimate = hits / len(part), *wilson(hits, len(part))
            value, low, high = right_in_table(labels, rows, estimate, n=len(part))
            holds = low <= truth <= high + 1e-9  # where all are right, sums round below 1
            held[name].append((value - truth, holds, low > truth, high - low))
    names = ("bias", "holds", "over", "width")
    means = {
        f"{name} {what}": float(np.mean([row[at] for row in rows]))
        for name, rows in held.items()
        for at, what in enumerate(names)
    }
    errors = {
        f"{n} error": float(np.sqrt(np.mean([r[0] ** 2 for r in of]))) for n, of in held.items()
    }
    return {"right": truth, **means, **errors}


def run(data: Path) -> list[dict[str, Any]]:
    """A row for each model and size of audit."""
    rows = []
    with one_thread():
        pairs = [(name, model) for name in SETS for model in models(name, data)]
    for size in SIZES:
        for number, (name, model) in enumerate(pairs):
            labels = LABELS[number % len(LABELS)]
            about = {"audit": size, "set": name, "labels": labels}
            about |= {"accuracy": float(model.right.mean()), **redrawn(model, size)}
            rows.append({**about, "table": of_table(model, labels, size)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Lines for each size of audit: means over all models, and over those of similar accuracy."""
    lines = [
        "| audited items | accuracies | models | Wilson covers | over | this covers | least | over"
        " | width | PPI++ covers | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    bands = ((0.0, 1.0), *pairwise(BOUNDS))
    for size, (low, high) in product(SIZES, bands):
        cells = [r for r in rows if r["audit"] == size and low < r["accuracy"] <= high]

        def mean(name: str, cells: list[dict[str, Any]] = cells) -> float:
            return float(np.mean([cell.get(name, np.nan) for cell in cells]))

        shares = [cell["accuracy"] for cell in cells]
        widths = [mean(f"{each} width") / mean("wilson width") for each in ("powered", "peer")]
        shown = [mean("wilson holds"), mean("wilson over"), mean("powered holds")]
        shown += [min(cell["powered holds"] for cell in cells), mean("powered over"), widths[0]]
        shown += [mean("peer holds"), widths[1]]
        numbers = " | ".join(f"{each:.3f}" for each in shown)
        between = f"{min(shares):.2f} to {max(shares):.2f} | {len(cells)}"
        lines.append(f"| {size} | {between} | {numbers} |")
    return "\n".join(lines)


def table_of_labels(rows: list[dict[str, Any]]) -> str:
    """A line for each number of labels and size of audit, of the labels in the exported table."""
    lines = [
        "| labels of 1,400 | audited items | right in the table | audit: bias | error | holds"
        " | width | this: bias | error | holds | least | over | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for labels in LABELS:
        for size in SIZES[1:]:
            cells = [
                row["table"] for row in rows if (row["labels"], row["audit"]) == (labels, size)
            ]
            names = ("bias", "error", "holds", "width", "over")
            audit, stand = (
                [float(np.mean([cell[f"{which} {name}"] for cell in cells])) for name in names]
                for which in ("audit", "stand")
            )
            least = min(cell["stand holds"] for cell in cells)
            shares, (width, over) = [cell["right"] for cell in cells], stand[3:]
            numbers = (*audit[:4], *stand[:3], least, over, width)
            shown = " | ".join(f"{x:.3f}" for x in numbers)
            lines.append(
                f"| {labels} | {size} | {min(shares):.2f} to {max(shares):.2f} | {shown} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure or show; see the module's text."""
    words = words_of(__doc__, "--data", "--json", "--from")
    rows = read(words.source) if words.source else run(words.data)
    if words.json is not None:
        write(words.json, rows)
    print(table(rows), table_of_labels(rows), sep="\n\n")


if __name__ == "__main__":
    main()
