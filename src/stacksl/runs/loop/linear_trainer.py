"""The trainer of a linear model: refits of its head on all labels learned so far (D15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import call
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.heads.linear import ClassHead, refit
from stacksl.core.heads.logistic import Fit, together
from stacksl.core.learner import Learner
from stacksl.core.rng import generator
from stacksl.core.scorers import Head, Scorer, restore_head, widened
from stacksl.data.values import normal
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import settled
from stacksl.ledger.queries import LedgerReader
from stacksl.models.confusion import Confusion, confusion_of
from stacksl.models.promise import Doubled, Stage, calibrated_wrong, step_of
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.covering import EVERY, SHARE, StreamCoverage
from stacksl.runs.loop.game import ATTENDED, Background, Examples, Game, Progress, Report, silent
from stacksl.runs.loop.head_fitting import (
    FEWEST,
    KINDS,
    Component,
    Doubt,
    Mixture,
    Rows,
    Source,
    column_strength,
    doubt_of,
    fitted_on,
    held_out,
    held_out_answers,
    lower_loss,
    make_final,
    represented,
    soft_names,
)

Bought = Sequence[tuple[int, int, int]]

PREFIX, DOUBT = "head.", "doubt."
COUNT = "refits"
STAGES = "refits.stages"  # a row each: labels, rows expected wrong
MIXTURE = "refits.mixture"  # a row each: number of the kind, and the numbers of a `Component`
ON_THE_WAY = 1e-4  # tolerance of refits that only rank


@dataclass(slots=True, eq=False)
class LinearTrainer:
    """Refits the head of a linear model; see `loop.game.Trainer`.

    Attributes:
        learner: with the online scorer, which makes the head.
        names: rows of the class names, (K, d), as soft examples; None where they take no part.
            Those of classes added later follow.
        seed: draws the folds.
        on_the_way: whether learned labels make a refit due, as the ranking of a pool needs.
        covering: the statistics of a stream that asks by doubt and coverage, which needs them too.
        at_end: whether the final model is a refitted head or the last online state.
        report: called with the progress of the last refit.
        graph_file: of the graph of neighbors; None if it is not kept.
        model_labels: the class that a model gave each item, (n,), −1 for none; None without them.
        column: the labels of a column that people judge, likewise, which train where nobody
            answered, and the `doubt` about them.
        head: the current head, after `count` refits, the last of them on `labels` labels, when
            `relabeled` labels had been replaced or withdrawn.
        final: whether the last refit gave the final model.
        mixture: what that model is a mixture of; empty where it is of labels alone.
        background: computes the refits on the way.
        attended: whether answers can be entered meanwhile.
        by_final: whether a pool is ranked by a model made as the final one is, again after
            `step_of` labels, as the doubt about a column is: a promise on the table rests on it.
        erring: whether the labels are of people who err, by whom a promise on the table counts.
        stages: those models, in order.
    """

    examples: Examples
    learner: Learner
    ledger: Ledger
    names: NDArray[Any] | None = None
    seed: int = 0
    on_the_way: bool = True
    covering: StreamCoverage | None = None
    at_end: bool = True
    report: Report = silent
    graph_file: Path | None = None
    model_labels: NDArray[np.int64] | None = None
    column: NDArray[np.int64] | None = None
    doubt: Doubt | None = None
    head: Head | None = None
    count: int = 0
    labels: int = 0
    relabeled: int = 0
    final: bool = False
    mixture: Mixture = ()
    background: Background = call
    attended: bool = False
    by_final: bool = False
    erring: bool = False
    stages: list[Stage] = field(default_factory=list)
    _source: Source | None = None
    draws: ClassVar[int] = 0

    @property
    def due(self) -> bool:
        """Whether a pool is to be ranked by labels or names that the head was not fitted on.

        A stream, which has no batches, waits for a number of labels, and the doubt about a column
        for as many as it was fitted with: most of what it learns was there before.
        """
        if self.column is not None and self.labels >= 0:
            outdated = self.doubt is None or len(self.doubt.sure) < len(self.column)
            step = step_of(len(self.column)) if self.by_final else max(EVERY, self.labels)
            return outdated or len(self.examples.bought) - self.labels >= step
        if self.covering is None or self.count == 0 or self.labels < 0:
            return self.on_the_way and self._lags
        changes = len(self.examples.bought) - self.labels + self.examples.relabeled - self.relabeled
        return changes >= max(EVERY, round(SHARE * self.labels))

    @property
    def _lags(self) -> bool:
        names_unfitted = self.names is not None and self.count == 0
        revised = self.relabeled != self.examples.relabeled
        return self.labels < len(self.examples.bought) or revised or names_unfitted

    def refit(self) -> bool:
        """Refit the head on the labels so far."""
        detail: dict[str, object] = {"tune": False}
        if self.attended:
            detail[ATTENDED] = True
        self.ledger.note_refit(len(self.examples.bought), detail)  # labels may come meanwhile
        self._fit(tune=False)
        return False

    def finish(self) -> None:
        """Refit the head on all labels, its strength and its mixture chosen by folds."""
        if self.at_end and (self._lags or not self.final):
            self.report(Progress("refit", 0, 1))
            self._refit()

    def repeat(self, row: Row) -> None:
        """Make again the refit that `row` records."""
        if row.payload["tune"]:
            self._refit()
        else:
            self.refit()

    def make_missing(self) -> list[str]:
        """Nothing: a head is in the saved arrays."""
        return []

    def widen(self, size: int) -> None:
        """Extend block and scorer to `size` classes; the head has to be refitted."""
        block = self.examples.block
        assert isinstance(block, SharedBlock)
        self.examples.block = replace(block, classes=size)
        self.learner.scorer = widened(self.learner.scorer, size)
        self.labels, self.final = -1, False

    def _refit(self) -> None:
        """Make the last refit, and write a row into the ledger."""
        detail: dict[str, object] = {"tune": True}
        self._fit(tune=True)
        if self.mixture:
            detail["mixture"] = {part.kind: part.weight for part in self.mixture}
        self.ledger.note_refit(len(self.examples.bought), detail)

    def _fit(self, *, tune: bool) -> None:
        scorer, bought = self.learner.scorer, self.examples.bought
        label_counts = len(bought), self.examples.relabeled
        self.mixture = ()
        if self.column is not None:
            labels, unasked, errors = self._of_column(bought), self._unasked(), self._errors()
            self.doubt, self.head = self.background(
                lambda: self._doubted(labels, unasked, errors, tune=tune)
            )
        elif not tune:
            self.head = self.background(self._as_final() if self.by_final else self._on_the_way)
        elif self.names is None:
            self.head = self._fitted(scorer, bought, tune)
        else:
            self.head, self.mixture = make_final(self._final_source(), *_split(bought))
        self.count += 1
        self.labels, self.relabeled = label_counts
        self.final = tune

    def as_if(self, labels: int, untouched: Scorer) -> Head | None:
        """The final model fitted on the first `labels` labels, as the last one was.

        `untouched` is a scorer in its initial state: the online one has classes that were bought
        later.
        """
        bought = self.examples.bought[:labels]
        if self.column is not None:
            assert isinstance(self.head, ClassHead)
            labels_then = self._of_column(bought)
            return fitted_on(self.examples.block, labels_then, self.seed, self.head.strength)
        if self.names is None or not bought:
            return self._fitted(untouched, bought, tune=True)
        return make_final(self._final_source(), *_split(bought), self.mixture)[0]

    def _of_column(self, bought: Bought) -> NDArray[np.int64]:
        """People's labels, the column's where nobody answered, (n,); −1 where none is learned."""
        assert self.column is not None
        labels, corpus = self.column.copy(), self.examples.corpus
        audited = {corpus.row[item] for item in self.ledger.bought("audit")}  # of now
        labels[list((corpus.outside_pool() | audited | self.unnamed()) - corpus.looked_at)] = -1
        for row, label, _ in bought:
            labels[row] = label
        return labels

    def _unasked(self) -> Sequence[int]:
        return self.examples.corpus.unbought(self.ledger.bought())

    def _errors(self) -> float:
        """People's rate of errors; 0 where they do not count."""
        return doubled_of(self.ledger).rate if self.erring else 0.0

    def _doubted(
        self, labels: Rows, unasked: Sequence[int], errors: float, *, tune: bool
    ) -> tuple[Doubt, Head | None]:
        """The doubt about the column, and at the end the final model.

        On the way, where a promise rests on it, with how many labels `unasked` may be wrong.
        """
        assert self.column is not None
        prompts = [normal(item.prompt) for item in self.examples.corpus.items]
        texts = np.unique(prompts, return_inverse=True)[1]
        policies = held_out(self.examples.block, texts, labels, self.seed)
        head = None
        if tune:
            strength = column_strength(self.examples.block, texts, labels, self.seed, policies)
            head = fitted_on(self.examples.block, labels, self.seed, strength)
        doubt = doubt_of(policies, texts, self.column, labels)
        if self.by_final and not tune and len(self.examples.bought) >= FEWEST:
            # held-out policies of the rows asked say how far the doubt is to be taken
            block = self.examples.block
            assert isinstance(block, SharedBlock)
            rows, gold = _split(self.examples.bought)
            confidence = policies[rows, doubt.label[rows]].astype(np.float64)
            correct = (doubt.label[rows] == gold).astype(np.float64)
            weight = represented(block, np.arange(len(block)), rows, self.seed)
            flagged, sure = int(doubt.flagged[unasked].sum()), doubt.sure[unasked]
            self._note_stage(confidence, correct, weight, sure, errors, flagged)
        return doubt, head

    def _note_stage(self, *answers: Any) -> None:
        """Note a model on the way; for its `answers` see `calibrated_wrong`."""
        expected = calibrated_wrong(*answers)
        self.stages.append(Stage(len(self.examples.bought), expected))

    def over_names(self, labels: int) -> tuple[float, float] | None:
        """`lower_loss` of the first `labels` labels; None where class names take no part."""
        if self.names is None:
            return None
        return lower_loss(self._final_source(), *_split(self.examples.bought[:labels]))

    def state(self) -> dict[str, NDArray[Any]]:
        """The counts, the mixture of the last model and the arrays of the head, to be saved."""
        head_arrays = {} if self.head is None else self.head.state()
        mixture = [(KINDS.index(kind), *numbers) for kind, *numbers in self.mixture]
        stages = np.array(self.stages, dtype=np.float64).reshape(-1, 2)
        return {
            **({STAGES: stages} if self.by_final else {}),
            COUNT: np.array([self.count, self.labels, self.final, self.relabeled]),
            MIXTURE: np.array(mixture, dtype=np.float64).reshape(-1, 6),
            **{PREFIX + k: v for k, v in head_arrays.items()},
            **{DOUBT + k: v for k, v in (self.doubt._asdict() if self.doubt else {}).items()},
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.count, self.labels, final, self.relabeled = map(int, arrays[COUNT])
        self.final = bool(final)
        self.stages = [Stage(int(n), wrong) for n, wrong in arrays.get(STAGES, np.zeros((0, 2)))]
        table = arrays[MIXTURE].tolist()
        self.mixture = tuple(Component(KINDS[int(kind)], *numbers) for kind, *numbers in table)
        head_arrays = {k.removeprefix(PREFIX): v for k, v in arrays.items() if k.startswith(PREFIX)}
        self.head = restore_head(head_arrays) if head_arrays else None
        fields = {name: arrays[DOUBT + name] for name in Doubt._fields if DOUBT + name in arrays}
        self.doubt = Doubt(**fields) if fields else None

    def _as_final(self) -> Callable[[], Head | None]:
        """Makes a model as the final one is made, where one is due, which is a new stage.

        What the ledger says is read now: answers may be entered while the model is made.
        """
        examples, unasked, errors = self.examples, self._unasked(), self._errors()
        stage_labels = self.stages[-1].labels if self.stages else 0
        labels, current = len(examples.bought), self.head is not None and self.labels >= 0
        if labels < FEWEST or (labels - stage_labels < step_of(labels + len(unasked)) and current):
            return (lambda: self.head) if self.stages and current else self._on_the_way
        source, (rows, gold) = self._final_source(), _split(examples.bought)

        def make() -> Head:
            # where people err, a head is too sure of items that it was fitted on, and heads of
            # folds, which learned two thirds of the labels, err more often: the mean is taken
            other_rows = np.array(unasked if errors else (), dtype=np.int64)
            mixture, answers = held_out_answers(source, rows, gold, other_rows)
            head = make_final(source, rows, gold, mixture)[0]
            other_confidence = surest(head, examples.block, unasked)
            if errors:
                other_confidence = np.stack([answers.others, other_confidence])
            self._note_stage(answers.sure, answers.right, answers.weight, other_confidence, errors)
            return head

        return make

    def _fitted(self, scorer: Scorer, bought: Bought, tune: bool) -> Head | None:
        """The model of these labels, without names."""
        if not bought:
            return None
        rows, gold = _split(bought)
        return refit(self.examples.block.take(rows.tolist()), gold, scorer.theta, self.seed, tune)

    def _on_the_way(self) -> Head | None:
        """The head that ranks items, fitted on labels, and on names if they take part.

        A pool is ranked with the names of the final model. A stream is not: they are moved to the
        mean of all items, and it has not seen them.
        """
        scorer, bought = self.learner.scorer, self.examples.bought
        if self.names is None:
            return self._fitted(scorer, bought, tune=False)
        names = self._named(self.names)
        rows, gold = _split(bought)
        head, start = self.head, None
        if isinstance(head, ClassHead) and head.coefficients.shape == names.shape:
            start = head.coefficients, head.intercepts
        soft = soft_names(names)
        if self.covering is None:
            source = self.source()
            soft = source.named(gold)
            if bought and source.model is not None:
                inside = np.isin(rows, source.graph()[1])  # another graph would take long
                soft = together(soft, source.spread_labels(rows[inside], gold[inside], final=False))
        fit = Fit(soft=soft, start=start, tolerance=ON_THE_WAY)
        return refit(
            self.examples.block.take(rows.tolist()), gold, scorer.theta, self.seed, fit=fit
        )

    def _named(self, names: NDArray[Any]) -> NDArray[Any]:
        assert isinstance(self.examples.block, SharedBlock)
        return names[: self.examples.block.classes]

    def unnamed(self) -> frozenset[int]:
        """Rows of items answered with no candidate: no label is spread to them."""
        row, answers = self.examples.corpus.row, self.ledger.accepted()
        items = (str(answer["item"]) for answer in answers if answer["kind"] != "label")
        return frozenset(row[item] for item in items)

    def _final_source(self) -> Source:
        return self.source(self.unnamed())

    def source(self, unnamed: frozenset[int] = frozenset()) -> Source:
        """The items of the pool as a graph; it is reused while they are the same.

        The rows `unnamed` are left out as well.
        """
        examples = self.examples
        bought_rows = {row for row, _, _ in examples.bought}
        apart = (examples.corpus.outside_pool() | unnamed) - bought_rows - examples.corpus.looked_at
        source = self._source
        if source is None or source.block is not examples.block or source.apart != apart:
            assert isinstance(examples.block, SharedBlock)
            names = None if self.names is None else self._named(self.names)
            source = self._source = Source(examples.block, names, apart, self.seed, self.graph_file)
        source.model = None
        if (
            self.model_labels is not None
            and (confusion := self.confusion()) is not None
            and confusion.tells
        ):
            source.model = self.model_labels, confusion
        return source

    def confusion(self) -> Confusion | None:
        """The confusion of the model's labels; None without such labels, or one to compare with.

        They are compared with people's on the first rows of a random order of the pool, up to the
        last one that was bought at random. Those among them that were bought by rank count as well.
        """
        labels, examples = self.model_labels, self.examples
        if labels is None or not examples.drawn:
            return None
        keys = draw_keys(self.seed, len(labels))
        last_key = keys[list(examples.drawn)].max()
        pairs = [(r, label) for r, label, choice in examples.bought if choice >= 0]
        compared = [pair for pair in pairs if keys[pair[0]] <= last_key and labels[pair[0]] >= 0]
        if not compared:
            return None
        rows, gold = np.array(compared, dtype=np.int64).T
        assert isinstance(examples.block, SharedBlock)
        return confusion_of(labels[rows], gold, examples.block.classes)


def draw_keys(seed: int, count: int) -> Array:
    """The random order of items: the rows with the smallest keys, (count,), are drawn first."""
    return generator(seed, "pool/random").random(count)


def doubled_of(ledger: LedgerReader) -> Doubled:
    """Answers to train on whose row has a second one, and the first answers of an audit.

    Of two that differ one is wrong. Others were asked about audited rows where people and model
    differ, and about a part of the rest, so that the rate is rather too low. The rows of a look at
    a table do not count: they are those that the model is to label.
    """
    pairs = [(first.word, second.word) for first, second in ledger.agreement() if second.slot == 1]
    look_counts = [row.payload.get("look", [0])[0] for row in ledger.rows(only=("settings",))]
    answers, audited = ledger.audited_by_all(), ledger.bought("audit")
    look_items = audited[len(audited) - sum(look_counts) :]
    words = [[answer.word for answer in answers[item]] for item in answers.keys() - set(look_items)]
    settled_pairs = [(settled(group), group[0]) for group in words if len(group) > 1]
    error_count = sum(0.5 if common is None else common != first for common, first in settled_pairs)
    error_count += sum(first != second for first, second in pairs)
    return Doubled(error_count, 2 * len(pairs) + (len(words) if settled_pairs else 0))


def linear_trainer(game: Game) -> LinearTrainer:
    """The trainer of a game whose model is linear."""
    assert isinstance(game.trainer, LinearTrainer)
    return game.trainer


def _split(bought: Bought) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    table = np.array([(row, label) for row, label, _ in bought], dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
