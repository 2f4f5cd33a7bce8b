"""The end of a run with a linear model: its test, its curve, and its answers to the run's items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from stacksl.core.blocks import Array, Block
from stacksl.core.heads.linear import MixedHead
from stacksl.core.scorers import Head
from stacksl.features import FeatureMap
from stacksl.models.audit import Audit, Audited, judge_audit, stand_for_left
from stacksl.models.evaluation import Evaluation, Tested, judge, point
from stacksl.models.linear import Model
from stacksl.models.metrics import largest
from stacksl.report.facts import Facts, Refit
from stacksl.report.quality import CurvePoint, Named
from stacksl.report.wording import plural
from stacksl.runs.finish.answers import table_answers
from stacksl.runs.items.corpus import Role
from stacksl.runs.items.roles import reference_of
from stacksl.runs.loop.game import Game, Progress, Report
from stacksl.runs.loop.linear_trainer import LinearTrainer, linear_trainer
from stacksl.runs.session.build_learner import fresh_scorer, scorer_settings
from stacksl.runs.spec import RunSpec

CURVE = (0.1, 0.25, 0.5)  # shares of the labels at which the curve is drawn, besides all of them
HELD_OUT = 20  # items that a curve is measured on at least


@dataclass(frozen=True, slots=True, eq=False)
class HeadEnding:
    """The end of a run whose model is a head, or without a refit the last online state.

    The methods are those of `AdapterEnding`.
    """

    spec: RunSpec
    game: Game
    features: FeatureMap
    report: Report

    def test(self) -> Tested:
        """The final model and models of fewer labels on the test file, if there is one."""
        trainer, test = linear_trainer(self.game), self.spec.test
        self.report(Progress("refit", 1, 1))
        if test is None:
            return Tested()
        block = self.features.transform(
            test.items, lambda done, total: self.report(Progress("test", done, total))
        )
        evaluation = judge(self._model(trainer.head).probabilities(block), test)
        bought = len(trainer.examples.bought)
        points = self._curve(bought, block, lambda policies: judge(policies, test))
        curve = (*points, point(bought, evaluation))
        return Tested(evaluation, curve)

    def policies(self, rows: Sequence[int]) -> list[Array]:
        """The final model's (K,) probabilities of the items in `rows`."""
        model = self._model(self.game.trainer.head)
        return model.probabilities(self.game.examples.block.take(list(rows)))

    def of_column(self, rows: Sequence[int]) -> dict[str, Array]:
        """The labels of a column in the `rows` that have one, by id, as (K,) probabilities."""
        doubt, labels = linear_trainer(self.game).doubt, self.spec.sources.model_labels
        assert doubt is not None
        ids, classes = self.game.corpus.ids, np.eye(len(self.spec.dataset.classes or ()))
        # also of labels that people changed: nobody corrects an audited row
        sure, labeled_rows = doubt.held_out, labeled(self.spec, rows)
        return {ids[row]: classes[labels[row]] * max(1e-12, sure[row]) for row in labeled_rows}

    def delivered(self, rows: Sequence[int]) -> list[Array]:
        """(K,) probabilities of the labels that a table has in `rows` which people do not label.

        A label of a column stays, where the run judges one; the others are the final model's.
        """
        policies, ids = self.policies(rows), self.game.corpus.ids
        of_column = {} if self.spec.settings.column is None else self.of_column(rows)
        return [of_column.get(ids[row], policy) for row, policy in zip(rows, policies, strict=True)]

    def column_reference(self, audit: Audit) -> Array | None:
        """The probabilities of a column's labels at the first audit, or None."""
        if audit.number != 1:
            return None
        corpus = self.game.corpus
        rows = sorted(row for row in corpus.began if corpus.roles[row] != Role.ERASED)
        return largest([*self.of_column(rows).values()])

    def left(self, audit: Audit) -> tuple[dict[str, Array], Array | None]:
        """The audited labels that stand for those of a table in rows which nobody answered.

        They are the final model's in the rows that the run would not have bought, as (K,)
        probabilities by item; none where all audited rows are such. Of a column, whose labels stay
        as they are, its probabilities tell, and those of the labels left are given, too.
        """
        if (doubt := linear_trainer(self.game).doubt) is not None:
            audited = self.of_column(audit.rows)
            remaining = doubt.held_out[unasked(self.spec, self.game)]
            if not len(remaining):
                return audited, None
            stand = stand_for_left(np.array([label.max() for label in audited.values()]), remaining)
            pairs = zip(audited.items(), stand, strict=True)
            return {item: label for (item, label), stands in pairs if stands}, remaining
        rows = self.game.would_buy.others(audit.rows)
        ids = [self.game.corpus.ids[row] for row in rows]
        return dict(zip(ids, self.policies(rows), strict=True)), None

    def with_curve(self, tested: Tested, audit: Audit | None) -> Tested:
        """The results with a curve by the audit where there is no test file."""
        examples, ids, audited = self.game.examples, self.game.corpus.ids, tested.audited
        if tested.curve or audit is None or audited is None or not audited.answered:
            return tested
        rows = [row for row in audit.rows if self.game.corpus.usable[row]]
        final = linear_trainer(self.game).final and not self.spec.settings.column
        if not final or len(rows) < HELD_OUT:
            return tested

        def judged(policies: list[Array]) -> Audited:
            of_audit = dict(zip((ids[row] for row in rows), policies, strict=False))
            return judge_audit(of_audit, audit.answers, largest(policies[len(rows) :]))

        labels, reference = len(examples.bought), reference_of(self.game, audit)
        block = examples.block.take([*rows, *reference])
        # the last point as the others: not the estimate of a second look, nor the bound of a look
        final_result = judged(list(self._model(self.game.trainer.head).probabilities(block)))
        curve = (*self._curve(labels, block, judged), point(labels, final_result))
        return replace(tested, curve=curve)

    def language(self) -> None:
        """No facts of a language model."""

    @property
    def refitted(self) -> Refit:
        """How the final model was made."""
        trainer = linear_trainer(self.game)
        if not self.spec.settings.refit:
            return Refit("The last online state is the final model, as the preset asks.", False)
        if trainer.head is None:
            return Refit(
                f"There was no refit, with {plural(len(trainer.examples.bought), 'label')} of fewer"
                " than two classes, so the online state is the final model.",
                False,
            )
        owned = sum(choice < 0 for _, _, choice in trainer.examples.bought)
        bought, model_note = len(trainer.examples.bought) - owned, _model_labels(trainer)
        basis = "the one label bought" if bought == 1 else f"all {bought:,} labels bought"
        if trainer.column is not None:
            answers = f" and, where people answered, {basis}" if bought else ""
            basis = f"the column of labels{answers}"
        basis = f"The final model was refitted on {basis}{f' and {owned:,} owned' if owned else ''}"
        if trainer.mixture:
            mixture = tuple(
                (part.kind, part.weight, None if np.isnan(part.log_loss) else part.log_loss)
                for part in trainer.mixture
            )
            return Refit(f"{basis}.{model_note}", True, mixture=mixture)
        assert not isinstance(trainer.head, MixedHead)
        chosen = trainer.head.strength
        choice_words = "chosen by three shuffled folds of them" if chosen.tried else "the default"
        return Refit(f"{basis}, with C = {chosen.value:g}, {choice_words}.{model_note}", True)

    @property
    def fingerprints(self) -> tuple[Named, ...]:
        """What the features were made by."""
        return (Named("features", self.features.fingerprint),)

    def save(self, tested: Tested, facts: Facts, audit: Audit | None) -> None:
        """Write the final model; where the `facts` say so, trained on the `audit` as well."""
        head = self.game.trainer.head
        if audit is not None and facts.audit is not None and facts.audit.trained_on:
            head = self._trained_on(audit)
        self._model(head).save(self.spec.folder.model, asdict(scorer_settings(self.spec.settings)))

    def _trained_on(self, audit: Audit) -> Head | None:
        """The final head fitted on the labels of the audit as well."""
        game, trainer = self.game, linear_trainer(self.game)
        audited = ((row, index, index) for row, index in audit.labels(game.corpus.ids))
        bought = [*game.examples.bought, *audited]
        wider = replace(trainer, examples=replace(game.examples, bought=bought), _source=None)
        return wider.as_if(len(bought), game.learner.scorer)

    def _model(self, head: Head | None) -> Model:
        data, scorer = self.spec.dataset, self.game.learner.scorer
        return Model(self.features, scorer, head, data.classes, data.columns)

    def _curve(
        self, upto: int, block: Block, measure: Callable[[list[Array]], Evaluation | Audited]
    ) -> list[CurvePoint]:
        """The points of final models fitted on the first labels only, fewer than `upto`.

        Each is fitted as the last one is, with its mixture and C, and measured on `block`.
        """
        trainer = linear_trainer(self.game)
        counts = sorted({round(share * upto) for share in CURVE})
        untouched = fresh_scorer(self.spec.settings, trainer.examples.block)
        points = []
        for count in counts if trainer.final else []:
            head = trainer.as_if(count, untouched) if 0 < count < upto else None
            if head is not None:
                policies = [np.asarray(p) for p in head.probabilities(block)]
                points.append(point(count, measure(policies)))
        return points


def labeled(spec: RunSpec, rows: Sequence[int]) -> list[int]:
    """Those of the `rows` that have a label in the run's column."""
    labels = spec.sources.model_labels
    return [row for row in rows if row < len(labels) and labels[row] >= 0]


def unasked(spec: RunSpec, game: Game) -> list[int]:
    """The rows of the pool with a label of the column that nobody was asked about.

    A question that was withdrawn counts as not asked: its label stays as it was.
    """
    rows = game.ledger.export()
    asked_about = (str(row["item"]) for row in rows if row["state"] in ("answered", "open"))
    owned = table_answers(spec, game.ledger)  # with those of a text that has an owned label
    return labeled(spec, game.corpus.unbought([*asked_about, *owned]))


def _model_labels(trainer: LinearTrainer) -> str:
    """A sentence on how often the labels of a model are right, if the run has such."""
    if trainer.model_labels is None:
        return ""
    if (confusion := trainer.confusion()) is None:
        return " No label bought at random was compared with the model's, so they took no part."
    rate, low, high = (f"{100 * share:.0f}" for share in confusion.accuracy)
    sentence = (
        f" On {confusion.count} items drawn at random the model's label was people's in an"
        f" estimated {rate}% (95% interval {low} to {high})"
    )
    if not confusion.tells:
        return f"{sentence}, which may be chance: its labels took no part."
    return f"{sentence}."
