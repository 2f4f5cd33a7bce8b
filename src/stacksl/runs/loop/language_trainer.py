"""The trainer of a language model: refits of its adapter, and renewed features (D12).

The adapter changes at numbered refits alone, each from the initial weights on all labels learned so
far. After a refit the features of items that can still be asked are renewed, the online scorer is
rebuilt from the bought items, and a new epoch of decisions begins. Where a pool's first labels
choose normalization and premise, an epoch begins before any refit. Each result is on disk before
the ledger's row that names it, so that an interrupted run continues anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from operator import call
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import PairBlock
from stacksl.core.heads.linear import PairHead
from stacksl.core.heads.logistic import Strength
from stacksl.core.learner import Learner, loss_set
from stacksl.core.scorers.newton import PairNewton
from stacksl.errors import RunError
from stacksl.features.store import Epochs
from stacksl.files.atomic import make_private
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.queries import LedgerReader
from stacksl.lm.model import LanguageModel
from stacksl.lm.scoring.normalize import fitted_temperature
from stacksl.lm.settings import Lesson
from stacksl.lm.training.adapters import fingerprint_of
from stacksl.runs.loop.batch_selection import NearDuplicates
from stacksl.runs.loop.game import ATTENDED, BEGINS, Background, Examples, Progress, Report
from stacksl.runs.session.build_learner import fresh_scorer, prime
from stacksl.runs.session.language import CHOOSE_BY, choices_of
from stacksl.runs.settings.budget import due_at
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Label

KEY = "adaptation"  # of the saved array
ADAPTERS = "adapters"  # in the run's folder: one for each refit


class LanguageTrainer:
    """Refits a run's language model, and begins the epochs of its features; see `Trainer`.

    Args:
        learner: with the online scorer, which is rebuilt in each epoch.
        model: the language model; None for a replay, which trains nothing.

    Attributes:
        head: ranks a pool by the model's own scores, those of the last refit; None in a stream.
        background: computes adapters and features on the way.
        attended: whether answers can be entered meanwhile.
        adapters: those of the refits, on disk.
        near_duplicates: compares the items of a pool.
        epoch: how often the features were renewed.
        refits: how often the adapter was refitted, and `trained_on` how many labels the last time.
    """

    covering = doubt = model_labels = None

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
        self.background: Background = call  # at once, as nobody attends
        self.attended = False
        self.adapters = Adapters(spec.folder, model, ledger)
        self.epoch, self.refits, self.trained_on = 0, 0, 0
        block = examples.block
        assert isinstance(block, PairBlock)
        head = PairHead(np.zeros(block.dim), Strength(1.0))
        self.head = head if spec.settings.mode == "pool" else None
        self._base = block  # features of the initial adapter, whose scores are the reference
        self._order = tuple(examples.corpus.order)  # of the rounds; rows of added items follow
        ids = tuple(examples.corpus.ids)
        self._epochs = Epochs(spec.folder.features, ids, spec.sources.features, block)
        classes = spec.dataset.classes is not None
        self.near_duplicates = NearDuplicates(examples.corpus.items, classes=classes)
        self._report = report
        self._begun: Examples | None = None  # the examples when a refit was begun

    # --- refits ------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a choice or a refit is to be made, or the features are of an older adapter."""
        return self._chooses if self.draws else self._owed or self._stale

    @property
    def draws(self) -> int:
        """How many labels are drawn at random, to choose by them; 0 once a choice was made."""
        if self.model is None:
            choices = choices_of(self.spec.settings, self.spec.folder.resolved())
        else:
            choices = self.model.choices
        chosen = self.adapters.way is not None or choices.normalization != "auto"
        return 0 if chosen else min(CHOOSE_BY, self.learner.budget)

    @property
    def _chooses(self) -> bool:
        """Whether normalization and premise are to be chosen now."""
        if not self.draws or self.ledger.accounts.asked < self.draws or not self.examples.bought:
            return False
        return all(purchase.purpose != "train" for purchase in self.ledger.open_purchases())

    @property
    def _owed(self) -> bool:
        if self._begun is not None:
            return True
        trained_labels, learned_labels = self.trained_on, len(self.examples.bought)
        if learned_labels <= trained_labels:
            return False
        owned = sum(choice < 0 for _, _, choice in self.examples.bought)
        label_limit = self.learner.budget + owned  # it may change
        due_counts = due_at(self.spec.settings.lm.refit_at, label_limit)
        return any(trained_labels < n <= learned_labels for n in due_counts)

    @property
    def _stale(self) -> bool:
        """Whether features are of an older adapter while labels can still be bought or arrive."""
        chosen = self.adapters.way is not None  # how the model scores, which began an epoch
        if self.epoch - chosen >= self.refits or self.learner.round >= self.learner.horizon:
            return False
        return self.ledger.accounts.left > 0 or bool(self.ledger.open_purchases())

    def refit(self) -> bool:
        """Refit the adapter if due, then renew the features.

        Before the first, make the choice if due. A run that was interrupted in between continues.
        True if it took long enough for its arrays to be saved.
        """
        if chosen := self._chooses:
            self._choose()
        owed = self._owed and not (self._begun is None and self._stale)  # labels arrived meanwhile
        if owed:
            self._refit_adapter()
        stale = self._stale
        if stale:
            self._refresh()
        return chosen or owed or stale

    def finish(self) -> None:
        """Make the last refit, if labels differ from those of the one before, and load it."""
        self.background, self.attended = call, False  # the last refit learns every label
        if self.draws and self.examples.bought:  # the run ended before as many were answered
            self._choose()
        elif self.draws:  # there is nothing to choose by
            self.adapters.model.adopt(self.adapters.model.way)
        learned_hash = labels_hash(self.examples)
        changed = not self.refits or refits_of(self.ledger)[-1]["learned"] != learned_hash
        if self.examples.bought and changed:
            self._refit_adapter()
        self.adapters.take(self.refits)

    def repeat(self, row: Row) -> None:
        """Make again the step that `row` records; what it made is on disk."""
        if "normalization" in row.payload:
            self._choose()
        elif row.event == "refreshed":
            self._refresh()
        elif BEGINS in row.payload:
            self._begin_refit()
        else:
            self._refit_adapter()

    def make_missing(self) -> list[str]:
        """Train again the adapters that are missing, on the labels of their refits.

        With erased items these labels are not known any more, and an adapter that is missing cannot
        be loaded.
        """
        sentences = []
        for refit in refits_of(self.ledger) if not self.spec.sources.erased else ():
            number, count = int(refit["adapter"]), int(refit["labels"])
            if self.adapters.has(number):
                continue
            examples = replace(self.examples, bought=self.examples.bought[:count])
            trained = self._train(number, examples, self._scale(examples))
            suffix = "" if trained["weights"] == refit["weights"] else ", with other weights"
            sentences.append(
                f"the adapter of refit {number} was missing and was trained again{suffix}"
            )
        return sentences

    # --- saved arrays ------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, as an array to be saved; the last is of the labels of a refit under way."""
        labels = -1 if self._begun is None else len(self._begun.bought)
        return {KEY: np.array([self.epoch, self.refits, self.trained_on, labels], dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned, and load the features of the epochs in use."""
        self.epoch, self.refits, self.trained_on, labels = (int(n) for n in arrays[KEY])
        if labels >= 0:
            self._begun = replace(self.examples, bought=self.examples.bought[:labels])
        for row in self.ledger.rows(only=("refreshed",)):
            self._renew(int(row.payload["epoch"]), str(row.payload["features"]))

    # --- a refit, and the epoch after it -----------------------------------------------------

    def _refit_adapter(self) -> None:
        """Train the next adapter, and write its row into the ledger.

        It learns the labels that were learned when its refit began; others may have arrived since.
        """
        number, examples = self.refits + 1, self._begun or self._begin_refit()
        payload, scale = self._made_before(), self._scale(examples)
        detail: dict[str, object] = {"tune": False, "adapter": number}
        detail |= {"temperature": scale * self.adapters.initial, "learned": labels_hash(examples)}
        if payload is None:
            detail |= self._train(number, examples, scale)
        else:
            detail |= {name: payload[name] for name in ("weights", "trained")}
        self.refits, self.trained_on, self._begun = number, len(examples.bought), None
        self.ledger.note_refit(self.trained_on, detail)

    def _scale(self, examples: Examples) -> float:
        """The temperature of a refit on the labels of `examples`, a multiple of that in the scores.

        The base model's scores decide, since an adapter was trained on these labels.
        """
        if self.spec.settings.lm.temperature is not None:
            return 1.0
        scores = [np.array(self._base[row].offset) for row, _, _ in examples.bought]
        return fitted_temperature(scores, [label for _, label, _ in examples.bought], 1.0)

    def _train(self, number: int, examples: Examples, scale: float) -> dict[str, object]:
        """Train the adapter of refit `number`; what the ledger is to have of it."""
        labels, temperature = len(examples.bought), scale * self.adapters.initial
        lessons, report = self._lessons(examples, scale), self._reporting("refit")
        return self.background(
            lambda: self.adapters.refit(number, labels, lessons, temperature, report)
        )

    def _begin_refit(self) -> Examples:
        """The labels learned by now, on which the refit is made; those learned later are not in it.

        A row says where it began, if answers can be entered before it has ended.
        """
        self._begun = replace(self.examples, bought=list(self.examples.bought))
        if self.attended:
            detail: dict[str, object] = {"tune": False, BEGINS: self.refits + 1}
            self.ledger.note_refit(len(self._begun.bought), detail)
        return self._begun

    def _choose(self) -> None:
        """Choose normalization and premise by the labels so far, and begin an epoch under them."""
        if (payload := self._made_before()) is not None:
            way = {name: payload[name] for name in ("normalization", "pmi_context", "temperature")}
            self.adapters.adopt(way)
            self._begin(str(payload["features"]), way, last=not self._owed)
            return
        model, rows = self.adapters.model, self._renewable()
        position = {row: n for n, row in enumerate(rows)}
        items, block = [self.spec.dataset.items[row] for row in rows], self._base.take(rows)
        gold = {position[row]: label for row, label, _ in self.examples.bought}
        scored_block = self.background(lambda: model.choose_among(items, block, gold))
        fingerprint = model.fingerprint
        if not self._epochs.has(1, fingerprint):
            self._epochs.save(1, self._epochs.filled(rows, scored_block), fingerprint)
        self.adapters.way = model.way
        self._begin(fingerprint, model.way, last=not self._owed)

    def _refresh(self) -> None:
        if (payload := self._made_before()) is not None:
            self._begin(str(payload["features"]), {})
            return
        self.adapters.take(self.refits)
        fingerprint = self.adapters.model.fingerprint
        if not self._epochs.has(self.epoch + 1, fingerprint):
            rows = self._renewable()
            items, report = [self.spec.dataset.items[r] for r in rows], self._reporting("features")
            model = self.adapters.model
            features = self.background(
                lambda: self._epochs.filled(rows, model.transform(items, report) if items else None)
            )
            self._epochs.save(self.epoch + 1, features, fingerprint)
        self._begin(fingerprint, {})

    def _made_before(self) -> Mapping[str, Any] | None:
        """What the ledger recorded of the refit or epoch that is made, if it was made before."""
        recorded = self.ledger.recorded
        row = None if recorded is None else recorded.next
        return None if row is None else row.payload

    def _begin(self, fingerprint: str, way: Mapping[str, object], *, last: bool = True) -> None:
        """Begin an epoch, maybe one of a `way` just chosen; the `last` step before a purchase."""
        self.epoch += 1
        asked = self.ledger.accounts.asked
        detail: dict[str, object] = {"epoch": self.epoch, "features": fingerprint, "asked": asked}
        if last and self.attended:
            detail[ATTENDED] = True
        self.ledger.note_refreshed(len(self.examples.bought), {**detail, **way})
        self._renew(self.epoch, fingerprint)
        self._rebuild(asked)

    def _renew(self, epoch: int, fingerprint: str) -> None:
        """Load the features of an epoch in use: the last one, or that of the reference's scores."""
        reference = epoch == 1 and self.adapters.way is not None
        if epoch != self.epoch and not reference:
            return
        self._complete(epoch)
        block = self._epochs.load(epoch, fingerprint)
        if epoch == self.epoch:
            self.examples.block = block
        if reference:
            assert isinstance(block, PairBlock)
            self._base = block

    def _complete(self, epoch: int) -> None:
        """Compute the features of items that were added since an epoch began."""
        missing = {} if self.model is None else self._epochs.missing(epoch)
        for name, span in missing.items():
            self.adapters.take(adapter_of(epoch, self.ledger))
            items, model = self.spec.dataset.items[span], self.adapters.model
            block = model.transform(items, self._reporting("features"))
            self._epochs.save(epoch, block, model.fingerprint, added=name)

    def _rebuild(self, labels_asked: int) -> None:
        """Rebuild the scorer from the bought items; `labels_asked` labels were bought before."""
        examples, learner = self.examples, self.learner
        scorer = learner.scorer
        assert isinstance(scorer, PairNewton)
        rounds = scorer.rounds
        scorer.restore(fresh_scorer(self.spec.settings, examples.block).state())
        for bought_row, label, choice in examples.bought:
            inputs = examples.block[bought_row]
            scorer.step(inputs, tuple(range(inputs.size)), choice, Label(label))
        scorer.rounds = rounds
        if self.spec.settings.mode == "stream":
            row = examples.corpus.row
            audit_rows = {row[item] for item in self.ledger.bought("audit")}  # they have no rounds
            order = [row for row in self._order if row not in audit_rows]
            coming_rows = order[learner.round : learner.horizon]
            prime(learner, examples.block, coming_rows, learner.budget - labels_asked)

    def _reporting(self, phase: Literal["refit", "features"]) -> Callable[[int, int], None]:
        return lambda done, total: self._report(Progress(phase, done, total))

    def _lessons(self, examples: Examples, scale: float) -> list[Lesson]:
        """The bought labels in the order in which they were learned, then skipped items, if wanted.

        The reference are the offsets of epoch 0, of whose temperature that of a refit is a multiple
        (`scale`).
        """
        pairs: list[tuple[int, int | None]] = [(row, label) for row, label, _ in examples.bought]
        if self.spec.settings.update.kl_on_skips:
            pairs += [(row, None) for row in self._skipped()]
        lessons = []
        for row, label in pairs:
            item, offset = self.spec.dataset.items[row], self._base[row].offset
            candidates = all_candidates = tuple(range(len(item.candidates)))
            if label is not None:
                shown_candidates = examples.shown.get(row, all_candidates)
                candidates = loss_set(shown_candidates, label, len(all_candidates))
            reference = () if offset is None else tuple(float(score) / scale for score in offset)
            lessons.append(Lesson(item, label, candidates, reference))
        return lessons

    def _skipped(self) -> list[int]:
        """The usable rows skipped since the last refit while labels were left."""
        rows, corpus, usable = list[int](), self.examples.corpus, self.examples.corpus.usable
        for row in self.ledger.rows():
            if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
                rows.clear()
            elif row.event == "round":
                decision = row.decision()
                if decision.status == "skipped" and decision.reason != "spent":
                    rows.append(corpus.row[decision.item])
        return [row for row in rows if usable[row]]

    def _renewable(self) -> list[int]:
        """The rows of all items that can still be asked or learned."""
        corpus = self.examples.corpus
        paid_rows = {row for row, _, _ in self.examples.bought}
        paid_rows |= {corpus.row[purchase.item] for purchase in self.ledger.open_purchases()}
        streamed = self.spec.settings.mode == "stream"  # a seen item is not asked any more
        stream_items = enumerate(corpus.ids if streamed else ())
        unavailable = {row for row, item in stream_items if self.ledger.has_decision(item)}
        unavailable |= self.spec.sources.erased
        return [row for row in range(len(corpus.ids)) if row in paid_rows or row not in unavailable]


def labels_hash(examples: Examples) -> str:
    """A hash of the labels bought, in their order; a corrected one changes it."""
    text = repr([(row, label) for row, label, _ in examples.bought])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# The adapters on disk ----------------------------------------------------------------------------
#
# There is one for each refit: `adapters/NN`. The row of a refit in the ledger has the digest of its
# weights, what it was trained on and how. A refit that was interrupted before that row is made
# again from its start.


class Adapters:
    """The adapters in `folder`, and which of them the model has.

    Args:
        model: None for a replay, which neither trains nor loads one.
        ledger: of the run, with the temperature of each refit.

    Attributes:
        way: normalization, premise and first temperature that labels of the run chose, if any.
    """

    def __init__(self, run: RunFolder, model: LanguageModel | None, ledger: LedgerReader) -> None:
        self.folder = run.path / ADAPTERS
        self._run, self._model, self._ledger = run, model, ledger
        self._current = 0  # the initial adapter
        self._made: dict[int, str] = {}  # the weights that were trained now
        self.way: Mapping[str, Any] | None = None
        if (way := way_chosen(ledger)) is not None:
            self.adopt(way)

    def adopt(self, way: Mapping[str, Any]) -> None:
        """Score in a `way` that labels chose."""
        self.way = way
        if self._model is not None:
            self._model.adopt(way)

    @property
    def initial(self) -> float:
        """The temperature before any refit."""
        if self.way is not None:
            return float(self.way["temperature"])
        return float(self._run.resolved()["lm_temperature"])

    @property
    def model(self) -> LanguageModel:
        """The language model; a replay has none."""
        assert self._model is not None
        return self._model

    def has(self, number: int) -> bool:
        """Whether the adapter of refit `number` is on disk."""
        return _place(self.folder, number).is_dir()

    def take(self, number: int) -> None:
        """Load the adapter of refit `number`, with its temperature; 0 is the initial one."""
        if self._current == number:
            return
        self._current = -1  # none, until the adapter is verified
        if number:
            path, refit = _place(self.folder, number), refits_of(self._ledger)[number - 1]
            if self.model.take(path) != self._made.get(number, refit["weights"]):
                raise _other(path)
            self.model.rescale(float(refit["temperature"]))
        else:
            self.model.reset()
            self.model.rescale(None)
        self._current = number

    def refit(
        self,
        number: int,
        labels: int,
        examples: Sequence[Lesson],
        temperature: float,
        on_progress: Callable[[int, int], None],
    ) -> dict[str, object]:
        """Train refit `number`; its weights and statistics of its training."""
        self.model.rescale(temperature)
        path = _place(self.folder, number)
        make_private(self.folder)
        self._current = -1  # none, until training has finished
        trained = self.model.refit(examples, labels, on_progress)
        self._made[number] = self.model.save(path)
        self._current = number
        return {"weights": self._made[number], "trained": asdict(trained)}


def refits_of(ledger: LedgerReader) -> list[Mapping[str, Any]]:
    """What the ledger has of each refit that ended, in order."""
    rows = ledger.rows(only=("refit",))
    return [row.payload for row in rows if "adapter" in row.payload]


def expect_adapters(run: RunFolder, ledger: LedgerReader) -> None:
    """Compare the adapters on disk with the rows of their refits; `resume` makes one that is not.

    Raises:
        RunError: one cannot be read, or has other weights.
    """
    for refit in refits_of(ledger):
        path = _place(run.path / ADAPTERS, int(refit["adapter"]))
        if path.is_dir() and fingerprint_of(path) != refit["weights"]:
            raise _other(path)


def _other(path: Path) -> RunError:
    return RunError(
        f"the adapter in {path} has other weights than its refit left: restore the folder from a"
        " copy, or delete it and `stacksl resume` makes it again"
    )


def adapter_of(epoch: int, ledger: LedgerReader) -> int:
    """The refit whose adapter made the features of an epoch: the last one before it began."""
    number = 0
    for row in ledger.rows():
        if row.event == "refit" and "adapter" in row.payload:  # not where one only begins
            number = int(row.payload["adapter"])
        elif row.event == "refreshed" and int(row.payload["epoch"]) == epoch:
            break
    return number


def way_chosen(ledger: LedgerReader) -> Mapping[str, Any] | None:
    """The way of scoring that labels bought in the run chose, as the ledger has it."""
    rows = (row for row in ledger.rows() if row.event == "refreshed")
    return next((row.payload for row in rows if "normalization" in row.payload), None)


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:02d}"
