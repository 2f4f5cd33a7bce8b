"""A language model between its refits: when one is due, what it learns from, what it renews (D12).

The adapter moves at numbered refits alone, each from the initial weights on all labels learnt so
far. Then the features of what can still be asked are renewed, the head is rebuilt from the bought
items, and a new epoch of certificates begins. Everything made on the way lies on disk before the
ledger's row that names it, so that a run cut off anywhere finds it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError, RunError
from stacksl.game.followers import loss_set
from stacksl.game.inputs import Array, PairBlock
from stacksl.game.scorers.newton import PairNewton
from stacksl.items import Label
from stacksl.labels.rows import Row
from stacksl.lm import Bought, LanguageModel
from stacksl.lm.crew import present_crew
from stacksl.runs.adapted import choices_of
from stacksl.runs.building import fresh_scorer, prime
from stacksl.runs.conflicts import refit_shares
from stacksl.runs.folder import write_atomic
from stacksl.runs.frozen import freeze, is_frozen, thaw
from stacksl.runs.job import Job
from stacksl.runs.progress import Progress, Report, throttled
from stacksl.runs.rounds import Table

__all__ = ["Adaptation", "Refitted", "adaptation_of", "changed_facts", "due_at", "language_model"]

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


@dataclass(frozen=True, slots=True)
class Refitted:
    """What one refit of the adapter was: its number, its labels, and how training went.

    `learnt` is a hash of the labels in their order: an adapter that was left by a run that was cut
    off is taken up again only where it was trained on the same ones.
    """

    number: int
    labels: int
    learnt: str
    fingerprint: str
    trained: Mapping[str, Any]


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
    """The refits of a run's language model.

    Args:
        job: the run.
        table: its players; `table.block` is the features of the present epoch.
        order: the rows in the order of the rounds.
        model: the language model; None for a replay, which trains nothing.
        report: told how far a refit is.

    Attributes:
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
        self.epoch, self.refits, self.trained_on = 0, 0, 0
        self._due = due_at(job.settings.refit_at, table.learner.budget)
        self._base = table.block  # of the initial adapter, whose scores are the reference
        self._tell = throttled(report)
        self._current = 0  # the refit whose weights the model has now

    # --- the run's three moments -------------------------------------------------------------

    def advance(self) -> bool:
        """Refit where it is due, then renew the features; whether anything changed.

        A run that was cut off between the two finds its refit done and the features still to renew.
        """
        learnt = len(self.table.bought)
        due = any(self.trained_on < count <= learnt for count in self._due)
        if due:
            self._refit()
        stale = self.epoch < self.refits and self.table.learner.round < self.table.learner.horizon
        if stale:
            self.take(self.refits)
            self._refresh()
        return due or stale

    def conclude(self) -> None:
        """The last refit, where labels were learnt since the one before; then its weights."""
        if len(self.table.bought) > self.trained_on:
            self._refit()
        self.take(self.refits)
        self._tidy()

    def take(self, number: int) -> None:
        """Give the model the weights of refit `number`; 0 is the initial adapter."""
        if self._current == number:
            return
        if number:
            self._model().take(self._folder(number))
        else:
            self._model().reset()
        self._current = number

    # --- what a ledger's rows do -------------------------------------------------------------

    def replay_refit(self, row: Row) -> None:
        """The effect of a `refit` row of the adapter: it is on disk, and counted."""
        self.refits, self.trained_on = int(row.payload["adapter"]), int(row.payload["labels"])

    def replay_refreshed(self, row: Row, behind: bool) -> None:
        """The effect of a `refreshed` row; without a rebuilt head where it is not `behind`."""
        self.epoch = int(row.payload["epoch"])
        self._renew(str(row.payload["features"]), rebuild=behind)

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, for a checkpoint."""
        return {KEY: np.array([self.epoch, self.refits, self.trained_on], dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """What `state` described; the features come back with the ledger's rows."""
        self.epoch, self.refits, self.trained_on = (int(n) for n in arrays[KEY])

    def history(self) -> list[Refitted]:
        """Every refit that is on disk, in order."""
        found = [self._read(number) for number in range(1, self.refits + 1)]
        return [each for each in found if each is not None]

    # --- a refit -----------------------------------------------------------------------------

    def _refit(self) -> None:
        number, bought = self.refits + 1, self.table.bought
        learnt = hashlib.blake2b(repr([b[:2] for b in bought]).encode(), digest_size=16)
        before = self._read(number)
        if before is None or before.learnt != learnt.hexdigest():
            before = self._train(number, learnt.hexdigest())
        else:
            self.take(number)
        detail = {"tune": False, "adapter": number, "weights": before.fingerprint}
        self.table.ledger.note_refit(len(bought), detail)
        self.refits, self.trained_on = number, len(bought)
        self._tidy()

    def _train(self, number: int, learnt: str) -> Refitted:
        model, labels = self._model(), len(self.table.bought)
        folder, part = self._folder(number), self._folder(number).with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        trained = model.refit(self._examples(), labels, part, self._told("refit"))
        fingerprint = model.save(folder)
        self._current = number
        record = Refitted(number, labels, learnt, fingerprint, asdict(trained))
        write_atomic(folder.with_suffix(".json"), json.dumps(asdict(record), indent=1))
        return record

    def _tidy(self) -> None:
        """Drop the training checkpoints of refits that are done, one cut off just then included."""
        for number in range(1, self.refits + 1):
            shutil.rmtree(self._folder(number).with_suffix(".part"), ignore_errors=True)

    def _examples(self) -> list[Bought]:
        table, items = self.table, self.job.dataset.items
        found = []
        for row, label, _ in table.bought:
            reference = self._reference(row)  # who is displaced must not depend on the moment
            candidates = self._loss_set(row, label, np.array(reference))
            found.append(Bought(items[row], label, candidates, reference))
        if self.job.settings.kl_on_skips:
            found += [
                Bought(items[row], None, self._all(row), self._reference(row))
                for row in self._skipped()
            ]
        return found

    def _skipped(self) -> list[int]:
        """The items whose label was not bought since the last refit, while one could have been."""
        rows: list[int] = []
        for row in self.table.ledger.rows():
            if row.event == "refit" and "adapter" in row.payload:
                rows.clear()
            elif row.event == "round":
                decision = row.decision()
                if decision.status == "skipped" and decision.reason != "spent":
                    rows.append(self.table.row[decision.item])
        return rows

    def _loss_set(self, row: int, label: int, scores: Array) -> tuple[int, ...]:
        """C_t ∪ {gold}; where the follower has it, the gold displaces the lowest by `scores`."""
        shown = self.table.shown.get(row, self._all(row))
        return loss_set(shown, label, scores if self.table.follower.displaces else None)

    def _all(self, row: int) -> tuple[int, ...]:
        return tuple(range(len(self.job.dataset.items[row].candidates)))

    def _reference(self, row: int) -> tuple[float, ...]:
        base = self._pairs(self._base)[row].offset
        return () if base is None else tuple(float(score) for score in base)

    # --- an epoch ----------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Renew the features and begin an epoch."""
        folder, model = self._features(self.epoch + 1), self._model()
        fingerprint = model.fingerprint
        if not self._is_of(folder, fingerprint):
            folder.mkdir(parents=True, exist_ok=True)
            freeze(folder, self._renewed(), fingerprint, self.table.ids)
        self.epoch += 1
        detail: dict[str, object] = {"epoch": self.epoch, "features": fingerprint}
        self.table.ledger.note_refreshed(len(self.table.bought), detail)
        self._renew(fingerprint, rebuild=True)

    def _renewed(self) -> PairBlock:
        """The features of all that can still be asked or learnt; rows of zeros for the rest."""
        table, before = self.table, self._pairs(self._base)
        known = {row for row, _, _ in table.bought}
        known |= {table.row[purchase.item] for purchase in table.ledger.open_purchases()}
        rows = [
            row for row, item in enumerate(table.ids) if row in known or not table.ledger.seen(item)
        ]
        items = [self.job.dataset.items[row] for row in rows]
        fresh = self._model().transform(items, self._told("features"))
        phi = np.zeros(before.phi.shape, dtype=np.float32)
        base = np.zeros(len(before.phi), dtype=np.float64)
        places = [np.arange(before.offsets[r], before.offsets[r + 1]) for r in rows]
        where = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        phi[where], base[where] = fresh.phi, fresh.base
        return PairBlock(phi, np.array(before.offsets), base)

    def _renew(self, fingerprint: str, *, rebuild: bool) -> None:
        """Play on with the features of this epoch; `rebuild` the head from the bought items."""
        table = self.table
        table.block = thaw(self._features(self.epoch), fingerprint, table.ids)
        if not rebuild:
            return
        scorer = table.learner.scorer
        assert isinstance(scorer, PairNewton)
        rounds = scorer.rounds
        scorer.restore(fresh_scorer(self.job.settings, table.block).state())
        for row, label, choice in table.bought:
            inputs = table.block[row]
            shown = self._loss_set(row, label, scorer.scores(inputs))
            scorer.step(inputs, shown, choice, Label(label))
        scorer.rounds = rounds
        if self.job.settings.mode == "stream":
            left = table.learner.budget - len(table.bought)
            prime(table.learner, table.block, self.order[table.learner.round :], left)

    # --- places ------------------------------------------------------------------------------

    def _folder(self, number: int) -> Path:
        return self.job.folder.path / "adapters" / f"{number:02d}"

    def _features(self, epoch: int) -> Path:
        return self.job.folder.features / f"epoch-{epoch:02d}"

    def _read(self, number: int) -> Refitted | None:
        path = self._folder(number).with_suffix(".json")
        if not path.is_file():
            return None
        try:
            return Refitted(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as fault:
            raise RunError(
                f"the record {path} of a refit cannot be read ({fault}): restore it, or delete it"
                " to train that adapter again"
            ) from fault

    def _is_of(self, folder: Path, fingerprint: str) -> bool:
        """Whether a run that was cut off left the whole features of these weights."""
        if not is_frozen(folder):
            return False
        try:
            thaw(folder, fingerprint, self.table.ids)
        except FeatureError:
            return False
        return True

    def _model(self) -> LanguageModel:
        if self.model is None:
            raise RunError("a replay trains no adapter: resume the run instead")
        return self.model

    def _told(self, phase: Any) -> Any:
        """What a phase tells, as `Progress`."""
        return lambda done, total: self._tell(Progress(phase, done, total), done == total)

    @staticmethod
    def _pairs(block: Any) -> PairBlock:
        assert isinstance(block, PairBlock)
        return block
