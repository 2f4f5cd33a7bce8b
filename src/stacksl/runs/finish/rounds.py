"""Report facts from the ledger: rounds, answers, and changes of the budget and the classes.

Rounds are columns, read in one pass: a decision as an object takes some kilobyte, as a row of
these columns 45 bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stacksl.ledger.accounts import DROPPED
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.queries import LedgerReader
from stacksl.models.metrics import agreement_of
from stacksl.report import facts as f
from stacksl.report.quality import Asking, Cost, RunChange
from stacksl.runs.items.sources import Sources
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game
from stacksl.runs.session.build_learner import width_scale
from stacksl.runs.spec import RunSpec

POINTS = 1500  # rounds shown in the figures
SHOWN = 8  # contested items listed
EXCERPT = 400  # characters of a prompt
HELD = -1  # the choice recorded with a label that was owned before the run


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """What the report needs of every round.

    Attributes:
        table: (rounds,) records in order, with the columns of `_RECORD`.
        released: purchases given back unanswered; outside: labels that were not presented.
        changes: of the run, in order.
    """

    table: NDArray[np.void]
    released: int
    outside: int
    changes: tuple[RunChange, ...] = ()

    @classmethod
    def read(cls, ledger: LedgerReader, place: Mapping[str, int]) -> Rounds:
        """The columns of a `ledger`; `place` maps an item's id to its row in the data."""
        narrow: dict[str, tuple[int, ...]] = {}  # what was presented, of items not shown whole
        changes: list[RunChange] = []
        before = (ledger.terms.budget, ledger.terms.money)
        released = outside = 0

        def records() -> Iterator[tuple[float, ...]]:
            nonlocal released, outside, before
            rounds = 0
            for row in ledger.rows():
                if row.event == "round":
                    rounds += 1
                    d = row.decision()
                    numbers = (d.statistic, d.threshold, d.gate_score)
                    yield (place[d.item], d.choice, *numbers, d.asked)
                    if d.asked and not isinstance(row.payload["presented"], int):
                        narrow[d.item] = d.presented
                elif row.event == "budget":
                    terms = (row.payload["budget"], row.payload["money"])
                    if terms != before:  # else items were added
                        changes.append(RunChange(rounds, "budget", *terms))
                    before = terms
                elif row.event == "released" and row.purpose == "train":
                    released += 1
                elif row.event == "learnt" and row.item in narrow:
                    outside += row.label().index not in narrow[row.item]
                for change in _changed(ledger, row, rounds):
                    if changes and change == replace(changes[-1], count=1):  # rows together
                        change = replace(change, count=changes.pop().count + 1)
                    changes.append(change)

        table = np.fromiter(records(), dtype=_RECORD)
        return cls(table, released, outside, tuple(changes))


def _changed(ledger: LedgerReader, row: Row, rounds: int) -> list[RunChange]:
    """The changes of a run that a row records, but for those of the budget."""
    said = row.payload
    if row.event == "settings":
        found = [RunChange(rounds, kind, said[kind]) for kind in ("pool", "owned") if kind in said]
        names = ledger.private.names
        who = {"labeler": [said["labeler"]] if "labeler" in said else []}
        who |= {"stop_when": [said["stop_when"]] if "stop_when" in said else []}
        who |= {kind: [names[c] for c in said.get(kind, ())] for kind in ("joined", "away", "back")}
        return found + [RunChange(rounds, kind, who=name) for kind in who for name in who[kind]]
    kind = {
        "class_added": "class",
        "set_aside": "set_aside",
        "kept": "kept",
        "forgotten": "forgotten",
        "corrected": "named" if "named" in said else "corrected",
        "reserved": "reopened" if "again" in said else "",
        "released": "dropped" if said.get("reason") == DROPPED else "",
    }.get(row.event)
    person = str(row.labeler) if row.event in ("set_aside", "kept") else ""
    return [RunChange(rounds, kind, said.get("size", 1), who=person)] if kind else []


_RECORD = np.dtype(
    [
        ("item", np.int64),  # its row in the data
        ("choice", np.int32),  # the candidate that was played
        ("statistic", np.float64),  # like the next two of the decision, in score units
        ("threshold", np.float64),
        ("gate_score", np.float64),
        ("asked", np.bool_),  # whether the label was reserved
    ]
)


# --- figures and lists -------------------------------------------------------------------------


def round_series(seen: Rounds) -> f.RoundSeries:
    """Statistic, threshold and spending, at most `POINTS` rounds of them."""
    total = len(seen.table)
    kept = list(range(total))
    if total > POINTS:  # evenly spaced, the last one among them
        kept = sorted({round(i * (total - 1) / (POINTS - 1)) for i in range(POINTS)})
    rows = seen.table[kept]
    return f.RoundSeries(
        round=tuple(i + 1 for i in kept),
        statistic=tuple(rows["statistic"].tolist()),
        threshold=tuple(rows["threshold"].tolist()),
        asked=tuple(rows["asked"].tolist()),
        spent=tuple(np.cumsum(seen.table["asked"])[kept].tolist()),
        total=total,
    )


def before_label(game: Game, labels: int | None = None) -> f.BeforeLabel | None:
    """Accuracy before each of the first `labels` was seen; owned ones are left out."""
    bought = game.examples.bought[:labels]
    right = [label == choice for _, label, choice in bought if choice != HELD]
    return f.BeforeLabel(n=len(right), correct=sum(right)) if right else None


def owned_labels(examples: Examples) -> int:
    """How many labels were owned before the run."""
    return sum(choice == HELD for _, _, choice in examples.bought)


def gate_score(spec: RunSpec, game: Game, seen: Rounds) -> f.GateScore | None:
    """The gate score summed over rounds; None where no round has one."""
    scores = seen.table["gate_score"]
    if not len(scores) or np.isnan(scores).all():
        return None
    costs = np.maximum(np.where(np.isfinite(scores), scores, 0.0), 0.0)
    return f.GateScore(
        total=float(costs.sum()),
        asked=float(costs[seen.table["asked"]].sum()),
        rounds=len(costs),
        width_scale=width_scale(spec.settings, game.examples.block.dim),
    )


def contested(sources: Sources, game: Game, seen: Rounds) -> tuple[f.Contested, ...]:
    """The rounds in a stream's second half with the largest gate score, or statistic without one.

    In the first half every width is large, so that being early would count as being hard.
    """
    labels = {row: label for row, label, _ in game.examples.bought}
    said = {row["item"]: row["said"] for row in game.ledger.export() if row["slot"] == 0}
    scores = np.where(
        np.isfinite(seen.table["gate_score"]), seen.table["gate_score"], seen.table["statistic"]
    )
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    half = len(seen.table) // 2
    order = half + np.argsort(-scores[half:], kind="stable")
    order = order[game.corpus.usable[seen.table["item"][order]]]
    found = []
    for at in order[:SHOWN]:
        row = int(seen.table["item"][at])
        item, label = sources.dataset.items[row], labels.get(row)
        found.append(
            f.Contested(
                item=item.id,
                prompt=item.prompt[:EXCERPT],
                choice=item.candidates[seen.table["choice"][at]],
                label=None if label is None else item.candidates[label],
                statistic=scores[at],  # None in the file where it is not finite
                round=int(at) + 1,
                asked=seen.table["asked"][at],
                said=None if said.get(item.id) is None else str(said[item.id]),
            )
        )
    return tuple(found)


# --- answers -----------------------------------------------------------------------------------


def asking_of(ledger: Ledger, changes: Iterable[RunChange] = (), *, priced: bool) -> Asking:
    """What annotators said, at what cost; money only where a price was given.

    The `changes` are as a `Rounds` has them.
    """
    said = ledger.said()
    return Asking(
        labels=said["label"],
        none_of_these=said["none"],
        ambiguous=said["ambiguous"],
        broken=said["broken"],
        disputes=len(ledger.disputes()),
        agreement=agreement_of([(one.word, other.word) for one, other in ledger.agreement()]),
        costs=_costs(ledger, priced),
        changes=tuple(changes),
    )


def _costs(ledger: Ledger, priced: bool) -> tuple[Cost, ...]:
    """The charged answers of each labeler."""
    paid: dict[str, list[int]] = defaultdict(list)
    for row in ledger.export():
        if row["state"] == "answered" and row["purpose"] != "owned":
            paid[str(row["labeler"])].append(int(str(row["price"])))
    return tuple(
        Cost(name, len(prices), sum(prices) if priced else None)
        for name, prices in sorted(paid.items())
    )
