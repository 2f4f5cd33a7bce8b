"""The facts of a run: everything its report shows, as plain numbers and strings.

`Facts` is filled once from a run's folder and read by `stacksl.report.render` and
`stacksl.report.card`; nothing here computes, reads a file or uses a ledger. Shares and accuracies
are fractions in 0..1, never percent. Money is in integer micro-units (1,000,000 = one unit of
the currency). A number that does not exist (no matrix kept, no test file) is None; a number that is
not finite is None too, once it has passed through JSON.

``from_json(facts.to_json()) == facts`` for all facts with finite numbers.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from stacksl.files import formats
from stacksl.report.quality import (
    CONFIG,
    Asking,
    AuditResult,
    Calibration,
    ClassRow,
    ColumnFacts,
    Confusion,
    CurvePoint,
    Gain,
    Named,
    OwnItems,
    TableRight,
    TestResult,
)


@dataclass(frozen=True, slots=True, config=CONFIG)
class DataCard:
    """The data of a run.

    Attributes:
        name: as the reader gave it (a file's stem, `topics` for the sample).
        format: what it was read as (`jsonl`, `csv`, `xlsx`, ...).
        items: usable items, so the rounds there could be.
        classes: the number of fixed classes; None where items have their own options.
        columns: which column was read as what; empty where nothing was guessed.
        rejected: unusable rows, as (reason, count) with the count written out; empty if none.
        roles: (what for, count with the count written out) of the items; they add up to `items`.
    """

    name: str
    format: str
    items: int
    options_min: int
    options_max: int
    classes: int | None = None
    columns: tuple[Named, ...] = ()
    rejected: tuple[Named, ...] = ()
    rejected_total: int = 0
    roles: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True, config=CONFIG)
class Budget:
    """The budget and what was spent of it.

    Every label spent has one use: answered, unlearned, unnamed, aside, open, audit or further.

    Attributes:
        labels: the budget in labels.
        asked: labels reserved for training: answered plus open.
        answered: answers that named a candidate and were learned.
        left: labels that can still be bought; with a budget in money it may be less than
            labels - spent.
        rounds: items that a stream has seen, questions that a pool has asked.
        price: of one label; None where none was given.
        money: the budget; None where the budget counts labels.
        spent_money: spent or reserved; None where no price was given.
        audit: labels bought for an audit and kept out of training.
        further: answers of further people to rows of an audit, given or still out.
        released: labels that were asked and released unanswered.
        open: training answers not yet returned.
        unnamed: training answers that named no candidate.
        unlearned: further answers on an item that has one, and answers on items erased since.
        aside: training answers of people who are set aside.
        unused: labels that were reserved for a second look, and are left now that it is over.
        withdrawn: labels of audited rows that were withdrawn, which nothing else may spend.
    """

    labels: int
    asked: int
    answered: int
    left: int
    rounds: int
    price: int | None = None
    money: int | None = None
    spent_money: int | None = None
    audit: int = 0
    further: int = 0
    released: int = 0
    open: int = 0
    unnamed: int = 0
    unlearned: int = 0
    aside: int = 0
    unused: int = 0
    withdrawn: int = 0

    @property
    def spent(self) -> int:
        """Labels bought or still out, to learn from and to measure."""
        return self.asked + self.audit + self.further


@dataclass(frozen=True, slots=True, config=CONFIG)
class Method:
    """What chose the labels, and whether an object of `python` answers."""

    gate: str
    mode: str
    python: bool = False


@dataclass(frozen=True, slots=True, config=CONFIG)
class Refit:
    """How the final model was made.

    Attributes:
        sentence: what was refitted on how many labels, or why nothing was.
        mixture: (kind, weight, held-out log-loss) of the models that the final one is a mixture
            of; the kinds are `plain`, `names`, `names and graph`, `names alone` and `smoothed`. The
            log-loss is None where nothing was held out. Empty where class names took no part.
    """

    sentence: str
    done: bool
    mixture: tuple[tuple[str, float, float | None], ...] = ()


@dataclass(frozen=True, slots=True, config=CONFIG)
class SettingRow:
    """One setting with its value, and who set it: `default`, `preset`, `config`, `flag`."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, config=CONFIG)
class AdapterRefit:
    """One refit of a language model, from the initial weights on all labels learned so far.

    Attributes:
        number: 1-based; labels: learned so far.
        loss, loss_clipped: the mean of a label in the last epoch, before and after clipping (nats).
        kl: mean KL(π ‖ π_ref) in the last epoch (nats); None where none was computed.
        clipped: share of all losses above the clip level.
    """

    number: int
    labels: int
    clipped: float
    seconds: float
    loss: float | None = None
    loss_clipped: float | None = None
    kl: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class LanguageModel:
    """The language model that a run adapted.

    Attributes:
        base, license: its name, a folder by its own; and its license, None where none is named.
        template: the text around a prompt.
        about: the base, how items are presented to it, and on what it was computed.
        training: the adapter's shape and what fixes a refit.
        refits: in order.
    """

    base: str
    license: str | None
    template: str
    about: tuple[Named, ...]
    training: tuple[Named, ...]
    refits: tuple[AdapterRefit, ...]


@dataclass(frozen=True, slots=True, kw_only=True, config=CONFIG)
class Facts:
    """Everything a run's report and model card show.

    Attributes:
        title: what the page is called, normally the data set's name.
        run: the name of the run's folder; its path in a report with text.
        created, finished: times as they are to be shown (UTC).
        test, audit: of the final model.
        table: the labels in the exported table; None where a promise tells, or nothing does.
        column: labels that the data had, which the audit judges as it judges the model.
        stated: of an audit of new rows, as its pages are written: whether the accuracy fell.
        curve: accuracy against labels, in order of labels; may be empty.
        own: the model on the run's own items; None for an adapted language model.
        more: what more labels would add; None for an adapted language model.
        classes, confusions: empty where items have their own options.
        measured_on: what `curve`, `classes` and `confusions` were measured on, `test` or `audit`.
        calibration: of the audit where there is one, else of the test file; None without either.
        versions: of Python and libraries; fingerprints: of features, weights and the ledger's head.
        warnings: a sentence each.
        stopped, details: what a stop rule or a promise came to, and what explains it.
        promised: the share of the table that is promised to be right; None where none is.
        language: what a run that adapted a language model has besides.
    """

    title: str
    run: str
    state: str
    created: str
    finished: str
    data: DataCard
    budget: Budget
    method: Method
    test: TestResult | None = None
    audit: AuditResult | None = None
    table: TableRight | None = None
    column: ColumnFacts | None = None
    stated: str = ""
    asking: Asking
    curve: tuple[CurvePoint, ...] = ()
    own: OwnItems | None = None
    more: Gain | None = None
    classes: tuple[ClassRow, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    measured_on: str = "test"
    calibration: Calibration | None = None
    refit: Refit
    settings: tuple[SettingRow, ...] = ()
    versions: tuple[Named, ...] = ()
    fingerprints: tuple[Named, ...] = ()
    warnings: tuple[str, ...] = ()
    stopped: str = ""
    details: str = ""
    promised: float | None = None
    language: LanguageModel | None = None

    def to_json(self) -> str:
        """These facts as JSON text in ASCII with its digest; equal facts give equal text.

        A number that is not finite is null; a lone surrogate, which is no text, is U+FFFD.
        """
        return formats.to_json(_plain(asdict(self)))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """The facts that `to_json` wrote.

        Raises:
            ValueError: the text does not match its digest, or a field is missing, unknown or of
                the wrong type.
        """
        try:
            content = json.dumps(formats.from_json(text))
            return TypeAdapter(cls).validate_json(content, strict=True)
        except ValidationError as error:
            first_error = error.errors()[0]
            path = ".".join(map(str, ("facts", *first_error["loc"])))
            raise ValueError(f"{path}: {first_error['msg']}") from None


_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        return value.translate(_SURROGATES)
    return value
