"""A language model between its refits: when one is due, what it learns from, what it renews (D12).

The adapter moves at numbered refits alone, each from the initial weights on all labels learnt so
far. Then the features of what can still be asked are renewed, the head is rebuilt from the bought
items, and a new epoch of certificates begins. Everything made on the way lies on disk before the
ledger's row that names it, so that a run cut off anywhere finds it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import RunError
from stacksl.game.inputs import PairBlock
from stacksl.game.scorers.newton import PairNewton
from stacksl.items import Label
from stacksl.labels.rows import Row
from stacksl.lm import LanguageModel
from stacksl.lm.crew import present_crew
from stacksl.runs.adapted import choices_of
from stacksl.runs.building import fresh_scorer, prime
from stacksl.runs.conflicts import refit_shares
from stacksl.runs.epochs import Epochs
from stacksl.runs.job import Job
from stacksl.runs.lessons import labels_hash, lessons, loss_set_of
from stacksl.runs.progress import Progress, Report, throttled
from stacksl.runs.refitting import Adapters, read_record
from stacksl.runs.rounds import Table

__all__ = ["Adaptation", "adaptation_of", "changed_facts", "due_at", "language_model"]

KEY = "adaptation"  # of the checkpoint's array
COMPUTED = {
    "lm_device": "the device",
    "lm_dtype": "the dtype",
    "lm_path": "the scoring path",
    "lm_threads": "torch's threads at",
    "lm_processes": "the number of processes at",
}
"""Recorded facts that decide bits, as a sentence names them."""


def due_at(refit_at: str, budget: int) -> tuple[int, ...]:
    """The numbers of labels learnt at which a refit is due.

    >>> due_at("0.05,0.1,0.25,0.5,1", 40)
    (2, 4, 10, 20, 40)
    """
    shares = refit_shares(refit_at) or (1.0,)
    return tuple(sorted({max(1, math.ceil(round(share * budget, 9))) for share in shares}))


def language_model(job: Job) -> LanguageModel:
    """The language model of a run, as its settings and what it recorded of itself have it."""
    recorded = job.folder.read_toml("resolved.toml")
    choices = choices_of(job.settings, recorded)
    return LanguageModel(choices, seed=job.settings.seed, crew=present_crew())


def changed_facts(job: Job, model: LanguageModel) -> list[str]:
    """A sentence for each thing that `model` computes otherwise than the run recorded of itself."""
    table = job.folder.read_toml("resolved.toml")
    return [
        f"this run began with {what} {table[name]} and goes on with {now}: its numbers may differ"
        " from an undisturbed run's"
        for name, now in model.facts().items()
        if (what := COMPUTED.get(name)) is not None and table.get(name, now) != now
    ]


def adaptation_of(
    job: Job, table: Table, order: Sequence[int], features: object, report: Report
) -> Adaptation | None:
    """The refits of a run that adapts a language model, None for a run that does not."""
    if not job.settings.adapts:
        return None
    model = features if isinstance(features, LanguageModel) else None
    return Adaptation(job, table, order, model, report)


class Adaptation:
    """The refits of a run's language model, and the epochs that they begin.

    Args:
        job: the run.
        table: its players; `table.block` is the features of the present epoch.
        order: the rows in the order of the rounds, those that came later behind the others.
        model: the language model; None for a replay, which trains nothing.
        report: told how far a refit is.

    Attributes:
        adapters: what the refits left on disk.
        epoch: how often the features were renewed.
        refits: how often the adapter was refitted, and `trained_on` how many labels the last time.
    """

    def __init__(
        self,
        job: Job,
        table: Table,
        order: Sequence[int],
        model: LanguageModel | None,
        report: Report,
    ) -> None:
        self.job, self.table, self.order, self.model = job, table, order, model
        self.adapters = Adapters(job.folder.adapters, model)
        self.epoch, self.refits, self.trained_on = 0, 0, 0
        assert isinstance(table.block, PairBlock)
        self._base = table.block  # of the initial adapter, whose scores are the reference
        ids, parts = tuple(table.ids), job.stock.features
        self._epochs = Epochs(job.folder.features, ids, parts, table.block)
        self._tell = throttled(report)

    # --- the run's two moments ---------------------------------------------------------------

    def advance(self) -> bool:
        """Refit where it is due, then renew the features; whether anything changed.

        A run that was cut off between the two finds its refit done and the features still to renew.
        """
        learnt = len(self.table.bought)
        counts = due_at(self.job.settings.refit_at, self.table.learner.budget)  # it may change
        due = any(self.trained_on < count <= learnt for count in counts)
        if due:
            self._refit()
        stale = self.epoch < self.refits and self._goes_on()
        if stale:
            self.adapters.take(self.refits)
            self._refresh()
        return due or stale

    def widen(self) -> None:
        """Make the features of items that came in the middle of the ledger's last epoch.

        To be called before its rows are played again: they may learn from those items.
        """
        epoch = self.table.ledger.epoch
        missing = self._epochs.missing(epoch)
        if not missing:
            return
        number = _adapter_of(epoch, self.table)
        self.adapters.take(number)
        fingerprint = self.adapters.model.fingerprint
        for name, part in missing.items():
            items = self.job.dataset.items[part]
            block = self.adapters.model.transform(items, self._told("features"))
            self._epochs.add(epoch, name, block, fingerprint)

    def conclude(self) -> None:
        """The last refit, where labels differ from those of the one before; then its weights."""
        table = self.table
        last = read_record(self.adapters.folder, self.refits) if self.refits else None
        if table.bought and (last is None or last.labels_hash != labels_hash(table)):
            self._refit()
        self.adapters.take(self.refits)
        self.adapters.tidy(self.refits)

    def _goes_on(self) -> bool:
        """Whether the renewed features of an item could still matter to a label."""
        learner, ledger = self.table.learner, self.table.ledger
        rounds = learner.round < learner.horizon
        return rounds and (ledger.left > 0 or bool(ledger.open_purchases()))

    # --- what a ledger's rows do -------------------------------------------------------------

    def replay_refit(self, row: Row) -> None:
        """The effect of a `refit` row of the adapter: it is on disk, and counted."""
        self.refits, self.trained_on = int(row.payload["adapter"]), int(row.payload["labels"])

    def replay_refreshed(self, row: Row, behind: bool) -> None:
        """The effect of a `refreshed` row; without a rebuilt head where it is not `behind`."""
        self.epoch = int(row.payload["epoch"])
        self._renew(str(row.payload["features"]))
        if behind:
            self._rebuild(int(row.payload["asked"]), row.seq)

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, for a checkpoint."""
        return {KEY: np.array([self.epoch, self.refits, self.trained_on], dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """What `state` described; the features come back with the ledger's rows."""
        self.epoch, self.refits, self.trained_on = (int(n) for n in arrays[KEY])

    # --- a refit, and the epoch after it -----------------------------------------------------

    def _refit(self) -> None:
        table, number, labels = self.table, self.refits + 1, len(self.table.bought)
        made = self.adapters.refit(
            number,
            labels,
            labels_hash(table),
            lessons(self.job, table, self._base),
            self._told("refit"),
        )
        detail = {"tune": False, "adapter": number, "weights": made.fingerprint}
        table.ledger.note_refit(labels, detail)
        self.refits, self.trained_on = number, labels
        self.adapters.tidy(number)

    def _refresh(self) -> None:
        """Renew the features and begin an epoch."""
        table, fingerprint = self.table, self.adapters.model.fingerprint
        if not self._epochs.has(self.epoch + 1, fingerprint):
            self._epochs.save(self.epoch + 1, self._renewed(), fingerprint)
        self.epoch += 1
        asked = table.ledger.asked
        detail: dict[str, object] = {"epoch": self.epoch, "features": fingerprint, "asked": asked}
        table.ledger.note_refreshed(len(table.bought), detail)
        self._renew(fingerprint)
        self._rebuild(asked)

    def _renewed(self) -> PairBlock:
        """The features of all that can still be asked or learnt; rows of zeros for the rest."""
        table, before = self.table, self._base
        known = {row for row, _, _ in table.bought}
        known |= {table.row[purchase.item] for purchase in table.ledger.open_purchases()}
        gone = {row for row, item in enumerate(table.ids) if self._passed(item)}
        gone |= self.job.stock.gone
        rows = [row for row in range(len(table.ids)) if row in known or row not in gone]
        items = [self.job.dataset.items[row] for row in rows]
        fresh = self.adapters.model.transform(items, self._told("features"))
        phi = np.zeros(before.phi.shape, dtype=np.float32)
        base = np.zeros(len(before.phi), dtype=np.float64)
        places = [np.arange(before.offsets[r], before.offsets[r + 1]) for r in rows]
        where = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        phi[where], base[where] = fresh.phi, fresh.base
        return PairBlock(phi, np.array(before.offsets), base)

    def _passed(self, item: str) -> bool:
        """Whether an item cannot be asked any more: a pool may come back to what it passed over."""
        return self.job.settings.mode == "stream" and self.table.ledger.seen(item)

    def _renew(self, fingerprint: str) -> None:
        """Play on with the features of this epoch."""
        self.table.block = self._epochs.load(self.epoch, fingerprint)

    def _rebuild(self, asked: int, seq: int | None = None) -> None:
        """Build the head anew from the bought items; `asked` labels were when row `seq` began it.

        Without one the epoch begins now.
        """
        table, learner = self.table, self.table.learner
        scorer = learner.scorer
        assert isinstance(scorer, PairNewton)
        rounds = scorer.rounds
        scorer.restore(fresh_scorer(self.job.settings, table.block).state())
        for row, label, choice in table.bought:
            inputs = table.block[row]
            candidates = loss_set_of(table, row, label, scorer.scores(inputs))
            scorer.step(inputs, candidates, choice, Label(label))
        scorer.rounds = rounds
        if self.job.settings.mode == "stream":
            measuring = _measuring(table, seq)  # no rounds of theirs come
            order = [row for row in self.order if row not in measuring]
            rest = order[learner.round : learner.horizon]
            prime(learner, table.block, rest, learner.budget - asked)

    def _told(self, phase: Literal["refit", "features"]) -> Callable[[int, int], None]:
        """What a phase tells, as `Progress`."""
        return lambda done, total: self._tell(Progress(phase, done, total), done == total)


def _measuring(table: Table, seq: int | None) -> set[int]:
    """The items of the audits there were before row `seq` of the ledger, or are now."""
    found = set()
    for row in table.ledger.rows():
        if seq is not None and row.seq >= seq:
            break
        if row.event == "reserved" and row.purpose == "audit":
            found.add(table.row[str(row.item)])
    return found


def _adapter_of(epoch: int, table: Table) -> int:
    """The refit whose adapter made the features of an epoch: the last one before it began."""
    number = 0
    for row in table.ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # a pool's head is refitted, too
            number = int(row.payload["adapter"])
        elif row.event == "refreshed" and int(row.payload["epoch"]) == epoch:
            return number
    raise RunError(
        f"the ledger of the run {table.ledger.run} has no row of epoch {epoch}: restore the folder"
        " from a copy"
    )
