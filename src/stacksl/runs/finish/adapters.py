"""The end of a run that adapted a language model: every refit is tested, the last one saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from stacksl.core.blocks import Array
from stacksl.features import FeatureMap
from stacksl.lm.export.folder import scoring_rows
from stacksl.lm.model import LanguageModel
from stacksl.lm.quantized import numbers_of
from stacksl.lm.settings import ModelChoices
from stacksl.models.adapted import AdaptedModel
from stacksl.models.audit import Audit
from stacksl.models.evaluation import Tested, judge, point
from stacksl.report import facts as f
from stacksl.report.facts import Facts, Refit
from stacksl.report.quality import CurvePoint, Named
from stacksl.report.wording import count
from stacksl.runs.loop.game import Game, Progress, Report
from stacksl.runs.loop.language_trainer import LanguageTrainer, refits_of
from stacksl.runs.spec import RunSpec
from stacksl.types import copied


class AdapterEnding:
    """The end of a run whose model is an adapter; the methods are those of `HeadEnding`."""

    def __init__(self, spec: RunSpec, game: Game, features: FeatureMap, report: Report) -> None:
        self.spec, self.game, self.features, self.report = spec, game, features, report
        self.trainer = cast(LanguageTrainer, game.trainer)  # such a run has no other
        self.lm = cast(LanguageModel, features)
        self.model = AdaptedModel(self.lm, spec.dataset.classes, spec.dataset.columns)

    def test(self) -> Tested:
        """The base and the adapter of every refit on the test file, if there is one."""
        test, trainer = self.spec.test, self.trainer
        if test is None:
            trainer.adapters.take(trainer.refits)
            return Tested()
        labels = [0, *(refit["labels"] for refit in refits_of(self.game.ledger))]
        curve: list[CurvePoint] = []
        for number, learned in enumerate(labels):
            trainer.adapters.take(number)
            done = number * len(test.items)

            def on_progress(n: int, _: int, done: int = done) -> None:
                self.report(Progress("test", done + n, len(labels) * len(test.items)))

            evaluation = judge(self.model.policies(test.items, on_progress), test)
            curve.append(point(learned, evaluation))
        return Tested(evaluation, tuple(curve))

    def policies(self, rows: Sequence[int]) -> list[Array]:
        """The final model's (K,) probabilities of the items in `rows`."""
        self.trainer.adapters.take(self.trainer.refits)
        return self.model.policies([self.spec.dataset.items[row] for row in rows])

    def left(self, audit: Audit) -> tuple[dict[str, Array], None]:
        """The labels of the audited rows that the run would not have bought."""
        rows = self.game.would_buy.others(audit.rows)
        ids = [self.game.corpus.ids[row] for row in rows]
        return dict(zip(ids, self.policies(rows), strict=True)), None

    def with_curve(self, tested: Tested, audit: Audit | None) -> Tested:
        """The results as they are: models of fewer labels are tested on a test file alone."""
        return tested

    def language(self) -> f.LanguageModel:
        """The facts of the language model."""
        about, facts = self.model.about(), self.lm.facts()
        adapter = self.lm.worker.adapter
        trained = sum(int(p.numel()) for p in adapter.parameters())
        total = sum(map(numbers_of, adapter.model.parameters()))
        path = self.spec.folder.resolved().get("lm_path", "none")
        rows = {
            "Base model": about.shown_name,
            "Read from": about.source,
            "Revision": about.revision or "none recorded",
            "License": about.license or "not stated",
            "Parameters": count(total - trained),
            "Trained by a refit": f"{count(trained)} (a LoRA adapter)",
            **scoring_rows(about),
            "Device and dtype": f"{facts['lm_device']}, {facts['lm_dtype']}",
            "Scoring path": path,
            "Processes and threads": f"{facts['lm_processes']}, {facts['lm_threads']} each",
        }
        return f.LanguageModel(
            base=about.shown_name,
            license=about.license,
            template=about.template,
            about=_named(rows),
            training=training_of(self.lm.choices),
            refits=tuple(
                copied(
                    f.AdapterRefit,
                    SimpleNamespace(**refit["trained"]),
                    number=refit["adapter"],
                    labels=refit["labels"],
                )
                for refit in refits_of(self.game.ledger)
            ),
        )

    @property
    def refitted(self) -> Refit:
        """How the final model was made."""
        refits = refits_of(self.game.ledger)
        if not refits:
            reason = "There was no refit, since no label was learned: the final model is the base."
            return Refit(reason, False)
        number, learned = refits[-1]["adapter"], refits[-1]["labels"]
        labels = f"all {learned:,} labels bought" if learned > 1 else "the one label bought"
        return Refit(
            f"The final model is the language model with the adapter of refit {number},"
            f" trained from the initial adapter on {labels}.",
            True,
        )

    @property
    def fingerprints(self) -> tuple[Named, ...]:
        """What the features were made by."""
        base, start = Named("base model", self.lm.worker.base.fingerprint), self.lm.worker.start
        adapted = Named("model and features", self.lm.fingerprint)
        return (base, *[Named("adapter at the start", start)][: bool(start)], adapted)

    def save(self, tested: Tested, facts: Facts, audit: Audit | None) -> None:
        """Write the last adapter into `model/`; `facts` are for its card."""
        self.model.save(self.spec.folder.model, facts, self.spec.test)


def training_of(choices: ModelChoices) -> tuple[Named, ...]:
    """The adapter's shape and the settings of a refit, under names to show."""
    lora, recipe = choices.lora, choices.training
    start = lora.start and (Path(lora.start).name if Path(lora.start).is_absolute() else lora.start)
    rows: dict[str, object] = {
        **({"Starts from the adapter": start} if start else {}),
        "LoRA rank": lora.rank,
        "LoRA alpha": lora.alpha,
        "LoRA dropout": lora.dropout,
        "Adapted layers": ", ".join(lora.targets or ()) or "every linear layer but the output",
        "Objective": recipe.objective,
        **({"KL weight": recipe.kl_weight} if recipe.pulls else {}),
        "Clipping": recipe.clips,
        "Epochs of a refit": recipe.epochs,
        "Examples of a step": recipe.batch_size,
        "Peak learning rate": recipe.learning_rate,
        "Weight decay": recipe.weight_decay,
    }
    return _named(rows)


def _named(rows: Mapping[str, object]) -> tuple[Named, ...]:
    return tuple(
        Named(name, f"{value:g}" if isinstance(value, float) else str(value))
        for name, value in rows.items()
    )
