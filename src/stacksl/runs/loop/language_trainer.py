"""The trainer of a language model: refits of its adapter, and renewed features (D12).

The adapter changes at numbered refits alone, each from the initial weights on all labels learnt so
far. After a refit the features of items that can still be asked are renewed, the head is rebuilt
from the bought items, and a new epoch of certificates begins. Each result is on disk before the
ledger's row that names it, so that an interrupted run continues anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import PairBlock
from stacksl.core.heads.linear import PairHead
from stacksl.core.heads.logistic import Strength
from stacksl.core.scorers import Head
from stacksl.core.scorers.newton import PairNewton
from stacksl.errors import RunError
from stacksl.features.store import Epochs
from stacksl.ledger.events import MEASURING, Row
from stacksl.ledger.queries import LedgerReader
from stacksl.lm import LanguageModel
from stacksl.lm.distributed import current_processes
from stacksl.lm.scoring.normalise import fitted_temperature
from stacksl.runs.loop.adapters import Adapters, read_record
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.loop.progress import Progress, Report, throttled
from stacksl.runs.loop.trainer import BEGINS, Beside, at_once
from stacksl.runs.loop.training_examples import labels_hash, training_examples
from stacksl.runs.session.build_learner import fresh_scorer, prime
from stacksl.runs.settings.conflicts import refit_shares
from stacksl.runs.settings.language import choices_of
from stacksl.runs.spec import RunSpec
from stacksl.types import Label

KEY = "adaptation"  # of the checkpoint's array
COMPUTED = {
    "lm_device": "the device",
    "lm_dtype": "the dtype",
    "lm_path": "the scoring path",
    "lm_threads": "torch's threads at",
    "lm_processes": "the number of processes at",
}
"""Recorded facts that results depend on bit for bit, with their names in messages."""


def due_at(refit_at: str, budget: int) -> tuple[int, ...]:
    """The numbers of labels learnt at which a refit is due.

    >>> due_at("0.05,0.1,0.25,0.5,1", 40)
    (2, 4, 10, 20, 40)
    """
    shares = refit_shares(refit_at) or (1.0,)
    return tuple(sorted({max(1, math.ceil(round(share * budget, 9))) for share in shares}))


def language_model(spec: RunSpec) -> LanguageModel:
    """The language model of a run, by its settings and its recorded facts."""
    recorded = spec.folder.resolved()
    choices = choices_of(spec.settings, recorded)
    return LanguageModel(choices, seed=spec.settings.seed, processes=current_processes())


def changed_facts(spec: RunSpec, model: LanguageModel) -> list[str]:
    """A warning for each fact of `model` that differs from the recorded one."""
    table = spec.folder.resolved()
    return [
        f"this run began with {what} {table[name]} and continues with {now}: its numbers may differ"
        " from an undisturbed run's"
        for name, now in model.facts().items()
        if (what := COMPUTED.get(name)) is not None and table.get(name, now) != now
    ]


class LanguageTrainer:
    """Refits a run's language model and begins the epochs of its features; see `Trainer`.

    Args:
        spec: the run.
        head: refits the linear head on top, by which a pool is ranked.
        model: the language model; None for a replay, which trains nothing.
        report: called with the progress of a refit.

    Attributes:
        adapters: those of the refits, on disk.
        epoch: how often the features were renewed.
        refits: how often the adapter was refitted, and `trained_on` how many labels the last time.
    """

    def __init__(
        self, spec: RunSpec, head: LinearTrainer, model: LanguageModel | None, report: Report
    ) -> None:
        self.spec, self.model = spec, model
        self.examples, self.learner, self.ledger = head.examples, head.learner, head.ledger
        self.adapters = Adapters(spec.folder.adapters, model, self._temperature_of)
        self.epoch, self.refits, self.trained_on = 0, 0, 0
        block = self.examples.block
        assert isinstance(block, PairBlock)
        self._head = head
        self._base = block  # of the initial adapter, whose scores are the reference
        # rows in the order of the rounds; added items follow
        self._order = tuple(self.examples.corpus.order)
        ids, parts = tuple(self.examples.corpus.ids), spec.sources.features
        self._epochs = Epochs(spec.folder.features, ids, parts, block)
        self._throttled = throttled(report)
        self._begun: Examples | None = None  # as they were when a refit was begun

    @property
    def beside(self) -> Beside:
        """Computes adapters, features and heads on the way."""
        return self._head.beside

    @beside.setter
    def beside(self, beside: Beside) -> None:
        self._head.beside = beside

    @property
    def head(self) -> Head | None:
        """The linear head, by which a pool is ranked: before any label the base model's scores."""
        if self.spec.settings.mode == "pool" and not self.examples.bought:
            return PairHead(np.zeros(self._base.dim), Strength(1.0))
        return self._head.head

    # --- refits ------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a share of the labels was reached, or the features are of an older adapter."""
        return self._owed or self._stale or self._head.due

    @property
    def _owed(self) -> bool:
        learnt = len(self.examples.bought)
        counts = due_at(self.spec.settings.refit_at, self.learner.budget)  # it may change
        return self._begun is not None or any(self.trained_on < n <= learnt for n in counts)

    @property
    def _stale(self) -> bool:
        """Whether features are of an older adapter while labels can still be bought or arrive."""
        left = self.ledger.left > 0 or bool(self.ledger.open_purchases())
        return self.epoch < self.refits and self.learner.round < self.learner.horizon and left

    def refit(self) -> bool:
        """Refit the adapter if due, then renew the features, then refit the head that ranks.

        A run that was interrupted between the steps continues with the next one.
        """
        owed = self._owed
        if owed:
            self._refit()
        stale = self._stale
        if stale:
            self.adapters.take(self.refits)
            self._refresh()
        if self._head.due:
            self._head.refit()
        return owed or stale

    def repeat(self) -> None:
        """Make the last refit of the head again, and discard it: most purchases take no other."""
        self._head.repeat()

    def finish(self) -> None:
        """Make the last refit, if labels differ from those of the one before, and load it."""
        self.beside = at_once  # what is learnt from here on is learnt by it
        last = read_record(self.adapters.folder, self.refits) if self.refits else None
        if self.examples.bought and (
            last is None or last.labels_hash != labels_hash(self.examples)
        ):
            self._refit()
        self.adapters.take(self.refits)
        self.adapters.tidy(self.refits)

    def ready(self) -> None:
        """Compute the features of items that were added during the ledger's last epoch."""
        epoch = self.ledger.epoch
        missing = self._epochs.missing(epoch)
        if not missing:
            return
        number = _adapter_of(epoch, self.ledger)
        self.adapters.take(number)
        fingerprint = self.adapters.model.fingerprint
        for name, part in missing.items():
            items = self.spec.dataset.items[part]
            block = self.adapters.model.transform(items, self._reporting("features"))
            self._epochs.add(epoch, name, block, fingerprint)

    def widen(self, size: int) -> None:
        """Refuse: the features of a language model are of the options that the run began with.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"the run {self.ledger.run} trains a language model, to which no class can be added:"
            " start a new run with all classes"
        )

    # --- replay and checkpoints --------------------------------------------------------------

    def replay(self, row: Row, after: int) -> None:
        """Note a refit of the adapter, which is on disk, or load the features of an epoch.

        A `refreshed` row up to number `after` loads the features alone, since the checkpoint
        has the head.
        """
        if row.event == "refreshed":
            self.epoch = int(row.payload["epoch"])
            self._renew(str(row.payload["features"]))
            if row.seq > after:
                self._rebuild(int(row.payload["asked"]), row.seq)
        elif BEGINS in row.payload:
            self._begun = self._as_now()
        elif "adapter" not in row.payload:
            self._head.replay(row, after)
        else:
            self._expect_temperature(row)
            self._begun = None
            if row.seq <= after:
                return
            self.refits, self.trained_on = int(row.payload["adapter"]), int(row.payload["labels"])

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts and the head, for a checkpoint."""
        counts = np.array([self.epoch, self.refits, self.trained_on], dtype=np.int64)
        return {**self._head.state(), KEY: counts}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; the replay of `refreshed` rows loads the features."""
        self._head.restore(arrays)
        self.epoch, self.refits, self.trained_on = (int(n) for n in arrays[KEY])

    # --- a refit, and the epoch after it -----------------------------------------------------

    def _refit(self) -> None:
        """Train the adapter on the labels so far, or on those of the refit that was begun."""
        number = self.refits + 1
        if self._begun is None:
            self._begun = self._as_now()
            if self.beside is not at_once:
                begins: dict[str, object] = {"tune": False, BEGINS: number}
                self.ledger.note_refit(len(self._begun.bought), begins)
        examples, labels = self._begun, len(self._begun.bought)
        lessons = training_examples(self.spec, examples, self.ledger, self._base)
        scale = self._scale(examples)
        temperature = scale * self._initial
        scaled = [replace(e, reference=tuple(s / scale for s in e.reference)) for e in lessons]
        learnt, report = labels_hash(examples), self._reporting("refit")
        made = self.beside(
            lambda: self.adapters.refit(number, labels, learnt, scaled, temperature, report)
        )
        self._begun = None
        detail: dict[str, object] = {"tune": False, "adapter": number}
        detail |= {"weights": made.fingerprint, "temperature": temperature}
        self.ledger.note_refit(labels, detail)
        self.refits, self.trained_on = number, labels
        self.adapters.tidy(number)

    def _as_now(self) -> Examples:
        """The labels learnt by now; those learnt later are not added to it."""
        return replace(self.examples, bought=list(self.examples.bought))

    def _scale(self, examples: Examples) -> float:
        """The temperature fitted on the labels learnt, as a multiple of the initial one.

        The base model's scores decide, since an adapter was trained on these labels.
        """
        if self.spec.settings.temperature is not None:
            return 1.0
        bought = examples.bought
        scores = [np.array(self._base[row].offset) for row, _, _ in bought]
        return fitted_temperature(scores, [label for _, label, _ in bought], 1.0)

    @property
    def _initial(self) -> float:
        """The temperature before any label."""
        return float(self.spec.folder.read_toml("resolved.toml")["lm_temperature"])

    def _temperature_of(self, number: int) -> float | None:
        """The temperature of refit `number`, as the ledger has it."""
        for row in self.ledger.rows():
            if row.event == "refit" and row.payload.get("adapter") == number:
                return float(row.payload["temperature"])
        return None

    def _expect_temperature(self, row: Row) -> None:
        """Compare the temperature in a row with that of the labels before it.

        Raises:
            RunError: they differ.
        """
        if self.spec.sources.forgotten or "temperature" not in row.payload:
            return
        recorded, again = float(row.payload["temperature"]), self._initial
        again *= self._scale(self._begun or self.examples)
        if not math.isclose(recorded, again, rel_tol=1e-4):
            raise RunError(
                f"row {row.seq} of the ledger has the temperature {recorded!r}, but the labels"
                f" before it give {again!r}: the run was made by other versions or on another"
                " machine (see resolved.toml)"
            )

    def _refresh(self) -> None:
        """Renew the features and begin an epoch."""
        fingerprint = self.adapters.model.fingerprint
        if not self._epochs.has(self.epoch + 1, fingerprint):
            rows, report = self._renewable(), self._reporting("features")
            fresh = self.beside(lambda: self._renewed(rows, report))
            self._epochs.save(self.epoch + 1, fresh, fingerprint)
        self.epoch += 1
        asked = self.ledger.asked
        detail: dict[str, object] = {"epoch": self.epoch, "features": fingerprint, "asked": asked}
        self.ledger.note_refreshed(len(self.examples.bought), detail)
        self._renew(fingerprint)
        self._rebuild(asked)

    def _renewable(self) -> list[int]:
        """The rows of all items that can still be asked or learnt."""
        corpus = self.examples.corpus
        known = {row for row, _, _ in self.examples.bought}
        known |= {corpus.row[purchase.item] for purchase in self.ledger.open_purchases()}
        gone = {row for row, item in enumerate(corpus.ids) if self._passed(item)}
        gone |= self.spec.sources.forgotten
        return [row for row in range(len(corpus.ids)) if row in known or row not in gone]

    def _renewed(self, rows: list[int], report: Callable[[int, int], None]) -> PairBlock:
        """The features of the items in `rows`; zeros for the others."""
        before = self._base
        items = [self.spec.dataset.items[row] for row in rows]
        fresh = self.adapters.model.transform(items, report)
        phi = np.zeros(before.phi.shape, dtype=np.float32)
        base = np.zeros(len(before.phi), dtype=np.float64)
        places = [np.arange(before.offsets[r], before.offsets[r + 1]) for r in rows]
        where = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        phi[where], base[where] = fresh.phi[:], fresh.base
        return PairBlock(phi, np.array(before.offsets), base)

    def _passed(self, item: str) -> bool:
        """Whether an item cannot be asked any more, as a seen item of a stream."""
        return self.spec.settings.mode == "stream" and self.ledger.seen(item)

    def _renew(self, fingerprint: str) -> None:
        """Load the features of this epoch."""
        self.examples.block = self._epochs.load(self.epoch, fingerprint)

    def _rebuild(self, asked: int, seq: int | None = None) -> None:
        """Rebuild the head from the bought items; `asked` labels were bought when the epoch began.

        `seq` is the ledger's row that began the epoch; None if it begins now.
        """
        examples, learner = self.examples, self.learner
        scorer = learner.scorer
        assert isinstance(scorer, PairNewton)
        rounds = scorer.rounds
        scorer.restore(fresh_scorer(self.spec.settings, examples.block).state())
        for row, label, choice in examples.bought:
            inputs = examples.block[row]
            scorer.step(inputs, tuple(range(inputs.size)), choice, Label(label))
        scorer.rounds = rounds
        if self.spec.settings.mode == "stream":
            measuring = self._measuring(seq)  # they have no rounds
            order = [row for row in self._order if row not in measuring]
            rest = order[learner.round : learner.horizon]
            prime(learner, examples.block, rest, learner.budget - asked)

    def _measuring(self, seq: int | None) -> set[int]:
        """The rows that measure, reserved before row `seq` of the ledger, or all of them."""
        found = set()
        for row in self.ledger.rows():
            if seq is not None and row.seq >= seq:
                break
            if row.event == "reserved" and row.purpose in MEASURING:
                found.add(self.examples.corpus.row[str(row.item)])
        return found

    def _reporting(self, phase: Literal["refit", "features"]) -> Callable[[int, int], None]:
        """A callback that reports the progress of a phase."""
        return lambda done, total: self._throttled(Progress(phase, done, total), done == total)


def _adapter_of(epoch: int, ledger: LedgerReader) -> int:
    """The refit whose adapter made the features of an epoch: the last one before it began."""
    number = 0
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # refits of a pool's head have none
            number = int(row.payload["adapter"])
        elif row.event == "refreshed" and int(row.payload["epoch"]) == epoch:
            return number
    raise RunError(
        f"the ledger of the run {ledger.run} has no row of epoch {epoch}: restore the folder"
        " from a copy"
    )
