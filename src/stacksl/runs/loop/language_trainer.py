"""The trainer of a language model: refits of its adapter, and renewed features (D12).

The adapter changes at numbered refits alone, each from the initial weights on all labels learnt so
far. After a refit the features of items that can still be asked are renewed, the online scorer is
rebuilt from the bought items, and a new epoch of certificates begins. Where a pool's first labels
choose normalisation and premise, an epoch begins before any refit. Each result is on disk before
the ledger's row that names it, so that an interrupted run continues anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import PairBlock
from stacksl.core.heads.linear import PairHead
from stacksl.core.heads.logistic import Strength
from stacksl.core.learner import Learner
from stacksl.errors import RunError
from stacksl.features.store import Epochs
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.lm import LanguageModel
from stacksl.runs.loop.adapters import (
    Adapters,
    adapter_of,
    expect_temperature,
    read_record,
)
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.progress import Progress, Report, throttled
from stacksl.runs.loop.trainer import BEGINS, BESIDE, Beside, at_once
from stacksl.runs.loop.training_examples import (
    labels_hash,
    measured_before,
    relearn,
    renewable,
    scale_of,
    training_examples,
)
from stacksl.runs.session.build_learner import prime
from stacksl.runs.session.language import CHOOSE_BY
from stacksl.runs.settings.conflicts import due_at
from stacksl.runs.spec import RunSpec

KEY = "adaptation"  # of the saved array


class LanguageTrainer:
    """Refits a run's language model and begins the epochs of its features; see `Trainer`.

    Args:
        spec: the run.
        examples: the features of the items, and the labels learnt so far.
        learner: with the online scorer, which is rebuilt in each epoch.
        ledger: has a row of each refit and of each epoch.
        model: the language model; None for a replay, which trains nothing.
        report: called with the progress of a refit.

    Attributes:
        head: ranks a pool by the model's own scores, those of the last refit; None in a stream.
        beside: computes adapters and features on the way.
        adapters: those of the refits, on disk.
        epoch: how often the features were renewed.
        refits: how often the adapter was refitted, and `trained_on` how many labels the last time.
    """

    def __init__(
        self,
        spec: RunSpec,
        examples: Examples,
        learner: Learner,
        ledger: Ledger,
        model: LanguageModel | None,
        report: Report,
    ) -> None:
        self.spec, self.model = spec, model
        self.examples, self.learner, self.ledger = examples, learner, ledger
        self.beside: Beside = at_once
        self.adapters = Adapters(spec.folder, model, ledger)
        self.epoch, self.refits, self.trained_on = 0, 0, 0
        block = examples.block
        assert isinstance(block, PairBlock)
        own = PairHead(np.zeros(block.dim), Strength(1.0))
        self.head = own if spec.settings.mode == "pool" else None
        self._base = block  # of the initial adapter, whose scores are the reference
        self._order = tuple(examples.corpus.order)  # of the rounds; rows of added items follow
        ids, parts = tuple(examples.corpus.ids), spec.sources.features
        self._epochs = Epochs(spec.folder.features, ids, parts, block)
        self._throttled = throttled(report)
        self._begun: Examples | None = None  # as they were when a refit was begun

    # --- refits ------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a choice or a refit is to be made, or the features are of an older adapter."""
        return self._chooses if self.draws else self._owed or self._stale

    @property
    def draws(self) -> int:
        """How many labels are drawn at random, to choose by them; 0 once a choice was made."""
        chosen = self.adapters.model.choices.normalisation != "auto"
        return 0 if chosen else min(CHOOSE_BY, self.learner.budget)

    @property
    def _chooses(self) -> bool:
        """Whether normalisation and premise are to be chosen now."""
        if not self.draws or self.ledger.asked < self.draws or not self.examples.bought:
            return False
        return all(purchase.purpose != "train" for purchase in self.ledger.open_purchases())

    @property
    def _owed(self) -> bool:
        if self._begun is not None:
            return True
        before, now = self.trained_on, len(self.examples.bought)
        if now <= before:
            return False
        owned = sum(choice < 0 for _, _, choice in self.examples.bought)
        most = self.learner.budget + owned  # it may change
        counts = due_at(self.spec.settings.refit_at, most)
        return any(before < n <= now for n in counts)

    @property
    def _news(self) -> bool:
        """Whether labels differ from those of the last refit of the adapter."""
        if not self.refits:
            return bool(self.examples.bought)
        last = read_record(self.adapters.folder, self.refits)
        return last is None or last.labels_hash != labels_hash(self.examples)

    @property
    def _stale(self) -> bool:
        """Whether features are of an older adapter while labels can still be bought or arrive."""
        behind = self.epoch - (self.adapters.way is not None) < self.refits
        if not behind or self.learner.round >= self.learner.horizon:
            return False
        return self.ledger.left > 0 or bool(self.ledger.open_purchases())

    def refit(self) -> bool:
        """Refit the adapter if due, then renew the features.

        Before the first, make the choice if due. A run that was interrupted in between continues.
        """
        if chosen := self._chooses:
            self._choose()
        owed = self._owed and not (self._begun is None and self._stale)  # labels arrived meanwhile
        if owed:
            self._refit()
        stale = self._stale
        if stale:
            self.adapters.take(self.refits)
            self._refresh()
        return chosen or owed or stale

    def finish(self) -> None:
        """Make the last refit, if labels differ from those of the one before, and load it."""
        self.beside = at_once  # what is learnt from here on is learnt by it
        if self.draws and self.examples.bought:  # the run ended before as many were answered
            self._choose()
        elif self.draws:  # there is nothing to choose by
            self.adapters.model.adopt(self.adapters.model.way)
        if self.examples.bought and self._news:
            self._refit()
        self.adapters.take(self.refits)

    def ready(self) -> None:
        """Compute the features of items that were added since, of the epochs that are in use."""
        chosen = {1} if self.adapters.way is not None else set()
        for epoch in sorted({self.ledger.epoch} | chosen):
            for name, part in self._epochs.missing(epoch).items():
                self.adapters.take(adapter_of(epoch, self.ledger))
                items, model = self.spec.dataset.items[part], self.adapters.model
                block = model.transform(items, self._reporting("features"))
                self._epochs.add(epoch, name, block, model.fingerprint)

    def widen(self, size: int) -> None:
        """Refuse: the features of a language model are of the options that the run began with.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"the run {self.ledger.run} trains a language model, to which no class can be added:"
            " start a new run with all classes"
        )

    # --- replay and saved arrays -------------------------------------------------------------

    def replay(self, row: Row, after: int) -> None:
        """Note a refit of the adapter, which is on disk, or load the features of an epoch.

        A `refreshed` row up to number `after` loads the features alone, since the saved
        arrays have the online scorer.
        """
        if row.event == "refreshed":
            self.epoch = int(row.payload["epoch"])
            self._renew(str(row.payload["features"]))
            if row.seq > after:
                self._rebuild(int(row.payload["asked"]), row.seq)
        elif BEGINS in row.payload:
            self._begun = self._as_now()
        elif "adapter" in row.payload:
            self._expect_temperature(row)
            self._begun = None
            if row.seq <= after:
                return
            self.refits, self.trained_on = int(row.payload["adapter"]), int(row.payload["labels"])

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, as an array to be saved."""
        return {KEY: np.array([self.epoch, self.refits, self.trained_on], dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; the replay of `refreshed` rows loads the features."""
        self.epoch, self.refits, self.trained_on = (int(n) for n in arrays[KEY])

    # --- a refit, and the epoch after it -----------------------------------------------------

    def _refit(self) -> None:
        """Train the adapter on the labels so far, or on those of the refit that was begun."""
        number = self.refits + 1
        if self._begun is None:
            self._begun = self._as_now()
            if self.beside is not at_once:
                self.ledger.note_refit(len(self._begun.bought), {"tune": False, BEGINS: number})
        examples, labels = self._begun, len(self._begun.bought)
        scale = self._scale(examples)
        temperature = scale * self.adapters.initial
        scaled = training_examples(self.spec, examples, self.ledger, self._base, scale)
        learnt, report = labels_hash(examples), self._reporting("refit")
        made = self.beside(
            lambda: self.adapters.refit(number, labels, learnt, scaled, temperature, report)
        )
        self._begun = None
        detail: dict[str, object] = {"tune": False, "adapter": number}
        detail |= {"weights": made.fingerprint, "temperature": temperature}
        self.ledger.note_refit(labels, detail)
        self.refits, self.trained_on = number, labels

    def _as_now(self) -> Examples:
        """The labels learnt by now; those learnt later are not added to it."""
        return replace(self.examples, bought=list(self.examples.bought))

    def _scale(self, examples: Examples) -> float:
        """The temperature fitted on the labels learnt, as a multiple of the initial one.

        The base model's scores decide, since an adapter was trained on these labels.
        """
        fixed = self.spec.settings.temperature is not None
        return 1.0 if fixed else scale_of(examples, self._base)

    def _expect_temperature(self, row: Row) -> None:
        """Compare the temperature in a row with that of the labels before it."""
        if not self.spec.sources.forgotten and "temperature" in row.payload:
            expect_temperature(
                row, self.adapters.initial * self._scale(self._begun or self.examples)
            )

    def _choose(self) -> None:
        """Choose normalisation and premise by the labels so far, and begin an epoch under them."""
        model, rows = self.adapters.model, renewable(self.spec, self.examples, self.ledger)
        place = {row: n for n, row in enumerate(rows)}
        items, block = [self.spec.dataset.items[row] for row in rows], self._base.take(rows)
        gold = {place[row]: label for row, label, _ in self.examples.bought}
        found = self.beside(lambda: model.choose_among(items, block, gold))
        fingerprint = model.fingerprint
        if not self._epochs.has(1, fingerprint):
            self._epochs.save(1, self._epochs.filled(rows, found), fingerprint)
        self.adapters.way = model.way
        self._begin(fingerprint, model.way, last=not self._owed)

    def _refresh(self) -> None:
        """Renew the features and begin an epoch."""
        fingerprint = self.adapters.model.fingerprint
        if not self._epochs.has(self.epoch + 1, fingerprint):
            rows = renewable(self.spec, self.examples, self.ledger)
            fresh = self.beside(lambda: self._renewed(rows))
            self._epochs.save(self.epoch + 1, fresh, fingerprint)
        self._begin(fingerprint, {})

    def _begin(self, fingerprint: str, way: Mapping[str, object], *, last: bool = True) -> None:
        """Begin an epoch, maybe one of a `way` just chosen; the `last` step before a purchase."""
        self.epoch += 1
        asked = self.ledger.asked
        detail: dict[str, object] = {"epoch": self.epoch, "features": fingerprint, "asked": asked}
        if last and self.beside is not at_once:
            detail[BESIDE] = True
        self.ledger.note_refreshed(len(self.examples.bought), {**detail, **way})
        self._renew(fingerprint)
        self._rebuild(asked)

    def _renewed(self, rows: list[int]) -> PairBlock:
        """The features of the items in `rows`; zeros for the others."""
        items, report = [self.spec.dataset.items[row] for row in rows], self._reporting("features")
        found = self.adapters.model.transform(items, report) if items else None
        return self._epochs.filled(rows, found)

    def _renew(self, fingerprint: str) -> None:
        """Load the features of this epoch; the reference's scores too, if these were chosen."""
        self.examples.block = block = self._epochs.load(self.epoch, fingerprint)
        if self.epoch == 1 and self.adapters.way is not None:
            assert isinstance(block, PairBlock)
            self._base = block

    def _rebuild(self, asked: int, seq: int | None = None) -> None:
        """Rebuild the scorer from the bought items.

        `asked` labels were bought when the epoch began. `seq` is the ledger's row that began the
        epoch; None if it begins now.
        """
        examples, learner = self.examples, self.learner
        relearn(self.spec, examples, learner)
        if self.spec.settings.mode == "stream":
            measuring = measured_before(seq, self.ledger, examples.corpus)  # they have no rounds
            order = [row for row in self._order if row not in measuring]
            rest = order[learner.round : learner.horizon]
            prime(learner, examples.block, rest, learner.budget - asked)

    def _reporting(self, phase: Literal["refit", "features"]) -> Callable[[int, int], None]:
        """A callback that reports the progress of a phase."""
        return lambda done, total: self._throttled(Progress(phase, done, total), done == total)
