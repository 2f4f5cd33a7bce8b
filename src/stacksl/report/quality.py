"""Report facts of quality and of what was asked: the final model, the audit, the answers, changes.

Shares and accuracies are fractions in 0..1, money is in micro-units; a number that does not exist
is None.
"""

from __future__ import annotations

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

CONFIG = ConfigDict(extra="forbid", defer_build=True)
"""Of all facts: they are checked when they are made, as when they are read."""


@dataclass(frozen=True, slots=True, config=CONFIG)
class Named:
    """A name with a value (a version, a fingerprint, a count by reason)."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, config=CONFIG)
class TestResult:
    """The final model on a test file.

    Attributes:
        n: rows of the file; an unusable one counts as wrong.
        low, high: the 95% Wilson interval of the accuracy.
        macro_f1: the mean F1 over classes, or over the positions of the gold option where items
            have their own options.
    """

    __test__ = False

    file: str
    n: int
    correct: int
    accuracy: float
    low: float
    high: float
    macro_f1: float | None = None
    unusable: int = 0


@dataclass(frozen=True, slots=True, config=CONFIG)
class SecondLook:
    """What further people said of an audit's `n` rows; open is one on which no two people agree.

    Attributes:
        agreeing: rows on which the first person and the model agree, of which `sampled` were asked
            again: in `wrong` two people said something else.
        differing: the others that have a clear answer; two people said what the model says in
            `model_right`, and what the first person said in `first_right`.
        accuracy, errors: the model's accuracy and people's errors, estimated from these, with the
            ends of their 95% intervals; no errors where their interval is wider than 50 points.
        ends: that accuracy if all open rows and all without a clear answer were wrong, or right.
        askable: the open rows that somebody else may be asked, if there are labels for it.
        nobody: the open rows that have labels kept for them, and nobody left to ask.
    """

    n: int
    agreeing: int
    sampled: int
    wrong: int
    sampled_open: int
    differing: int
    model_right: int
    first_right: int
    differing_open: int
    accuracy: tuple[float, float, float] = (0.0, 0.0, 1.0)
    errors: tuple[float, float, float] | None = None
    ends: tuple[float, float] = (0.0, 1.0)
    askable: int = 0
    nobody: int = 0


@dataclass(frozen=True, slots=True, config=CONFIG)
class AuditResult:
    """The final model on items drawn uniformly, paid for, and kept out of training.

    Attributes:
        none_of_these: items whose answer is none of the candidates; they count as wrong.
        unknown: items answered as ambiguous or broken, or not at all.
        accuracy: correct / (n − unknown); None where nothing is known.
        low, high: the 95% Wilson interval; where something is unknown, from the low end of `worst`
            to the high end of `best`.
        worst, best: the accuracy if all unknown ones were wrong, or right.
        passed_over: the share of the source's items that it could not be drawn from, since they
            had been bought before; 0 for an audit drawn before the first purchase.
        trained_on: audit labels that the saved model was trained on afterwards
            (`stacksl change --train-on-audit`); the numbers here are of the model before.
        number: which of the run's audits it is, from 1.
        learned: labels that the model had learned which is measured.
        shown_before: whether this audit measured a model before, and `shown_at` how many labels
            that one had learned, the first time.
        rows: the source's usable items, `rows_after` of which were added after it was drawn.
        classes_after: classes that were added after it was drawn, and that none of its answers
            names; `none_before`: its items answered with none of these before a class was added.
        revised: answers that were corrected or set aside after the audit was first shown.
        reference: reference rows whose probabilities made the accuracy and its interval closer
            (`models.metrics`); 0 without any.
        measures: the `accuracy`, or the `agreement with the annotators` (or one `annotator`).
        waits: whether a second look waits for answers.
        look: how many looks at it decided whether the run was to stop, this one included; 0 without
            such a rule. `low` is then a bound that holds at all of them, and `high` is 1.
        second: what that found, None without one. The counts of an `accuracy` are then by what two
            people said, where two agreed.
    """

    n: int
    correct: int
    none_of_these: int
    unknown: int
    accuracy: float | None
    low: float
    high: float
    worst: float
    best: float
    passed_over: float = 0.0
    trained_on: int = 0
    number: int = 1
    learned: int = 0
    shown_before: bool = False
    shown_at: int = 0
    rows: int = 0
    rows_after: int = 0
    classes_after: int = 0
    none_before: int = 0
    revised: int = 0
    reference: int = 0
    measures: str = "accuracy"
    waits: bool = False
    look: int = 0
    second: SecondLook | None = None

    def counted(self, *, first: bool = False) -> tuple[int, int, int]:
        """The rows that are right, that have a clear answer, and on which no two people agree."""
        if (look := self.second) is None:
            return self.correct, self.n - self.unknown, 0
        clear, open_rows = look.agreeing + look.differing, look.sampled_open + look.differing_open
        right = look.agreeing + look.model_right - look.wrong - look.sampled_open
        return (look.agreeing, clear, 0) if first else (right, clear, open_rows)


@dataclass(frozen=True, slots=True, config=CONFIG)
class TableRight:
    """The `share` of right labels in the exported table, with its 95% interval.

    So many are `people`'s and the `model`'s, or a column's, without rows that were added after the
    audit was drawn. Of people's the share `errors` is wrong; None where all count as right. Of the
    others the share `left` is right; None where they are taken to be like all audited rows.
    """

    people: int
    model: int
    share: float
    low: float
    high: float
    errors: float | None
    left: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class CurvePoint:
    """Accuracy of the model refitted on the first `labels` labels, with its 95% interval."""

    labels: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, config=CONFIG)
class ClassRow:
    """One class: labels bought, and how the final model does on the test file or the audit.

    Attributes:
        bought: labels learned that name it.
        test_n: items of the test file, or of the audit, whose answer it is; None without either.
        precision, recall: on those; None where there is nothing to divide by.
        low, high: the 95% Wilson interval of the recall.
    """

    name: str
    bought: int
    test_n: int | None = None
    precision: float | None = None
    recall: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class ColumnClass:
    """The `audited` rows that a column labels as a class: how many of the labels are `right`.

    `open` are rows without two people who agree, or an answer; the 95% interval of the right share,
    `low` to `high`, counts them as wrong and as right.
    """

    name: str
    audited: int
    right: int
    open: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, config=CONFIG)
class ColumnFacts:
    """The labels that the data had in a column, as people judged them.

    Nobody answered `unasked` of them, of which so many as are `flagged` are doubtful. People named
    a class for so many in doubt that were `asked`. Their answers, with those of audits, `changed`
    so many labels of the exported table; so many as are `mended` were found to be wrong, while on
    the others no two people agree, or no class was named.
    """

    name: str
    labeled: int
    unasked: int
    flagged: int
    asked: int
    changed: int
    audit: AuditResult | None
    classes: tuple[ColumnClass, ...]
    mended: int = 0


@dataclass(frozen=True, slots=True, config=CONFIG)
class Confusion:
    """`count` items of class `gold` that the final model called `predicted`."""

    gold: str
    predicted: str
    count: int


@dataclass(frozen=True, slots=True, config=CONFIG)
class Calibration:
    """How well the final model's probabilities agree with its accuracy.

    Attributes:
        error: the expected calibration error: Σ n/N · |accuracy − confidence| over ten bins.
        confidence: the mean one.
        source: what they are of, `test` or `audit`.
    """

    error: float
    confidence: float
    accuracy: float
    n: int
    source: str = "test"


@dataclass(frozen=True, slots=True, config=CONFIG)
class LabeledShare:
    """The share of the rest that the model can label at an accuracy of `wanted`.

    Attributes:
        needed: the fewest measured items that could show it, all of them right.
        share: of the items, those with a probability of at least `threshold`; None where no
            threshold can be shown to suffice.
        threshold: the smallest one that does.
        n, correct: the measured items above it.
    """

    wanted: float
    needed: int
    share: float | None = None
    threshold: float | None = None
    n: int = 0
    correct: int = 0


@dataclass(frozen=True, slots=True, config=CONFIG)
class ClassTotal:
    """How many of the run's items a class has.

    Attributes:
        human: items that an annotator gave it.
        predicted: items without an answer that the model gave it.
        total, low, high: the corrected number of all items, and its 95% interval; None where
            nothing was measured.
    """

    name: str
    human: int
    predicted: int
    total: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class OwnItems:
    """What the final model's answers to the run's own items are worth.

    Attributes:
        rest: items without an answer, which the model would label.
        measured: the items that it was judged by, with a clear answer.
        source: what they are of, `audit` or `test`; empty where there are none.
        shares: at each accuracy wanted.
        totals: of the classes; empty where items have their own options.
        choices: for a share of right rows of the table, people's counted as right, how many rows
            people would still answer; all hold at once. Empty without an audit.
    """

    rest: int
    measured: int
    source: str
    shares: tuple[LabeledShare, ...] = ()
    totals: tuple[ClassTotal, ...] = ()
    choices: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, config=CONFIG)
class Gain:
    """What `more` labels are estimated to add to the accuracy, as a share, with a 90% interval.

    `value` is None where it cannot be estimated, and `reason` says why.
    """

    more: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, config=CONFIG)
class Agreement:
    """Two annotators on the same rows, neither knowing the other's answer.

    `kappa` is Cohen's, of the first and the second answers over all that can be said; None where
    both always gave one and the same answer, which leaves nothing to correct.
    """

    n: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True, slots=True, config=CONFIG)
class Cost:
    """What one labeler answered, and for how much (micro-units; None where no price was given)."""

    labeler: str
    answers: int
    money: int | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class RunChange:
    """A recorded change of a run.

    Attributes:
        rounds: how many rounds there were before it.
        kind: one of `answers.CHANGES`.
        count: how many; the labels of a `budget`, and the number of classes from a `class` on.
        money: of a budget, in micro-units.
        who: the person or the labeler by name, or what was set.
    """

    rounds: int
    kind: str
    count: int = 1
    money: int | None = None
    who: str = ""


@dataclass(frozen=True, slots=True, config=CONFIG)
class Differing:
    """An annotator who agrees with a prediction far less than the others do, on training rows.

    Of the `rows` compared the answer was the prediction on `agreed`, where `expected` are those at
    the others' rate on rows as hard; `p` is the p-value of so few.
    """

    name: str
    rows: int
    agreed: int
    expected: float
    p: float

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        return (
            f"{self.agreed} of {self.rows} answers as predicted, while others have"
            f" {self.expected:.1f}"
        )


@dataclass(frozen=True, slots=True, config=CONFIG)
class Asking:
    """The answers, those of the audit included.

    Attributes:
        labels: charged answers that named a candidate.
        none_of_these, ambiguous, broken: charged answers that named none.
        disputes: answers that contradict the accepted one of the same person; kept uncharged.
        late: answers to rows that somebody else answered or that were no longer asked; the same.
        agreement: of two annotators; None where no row went to two.
        disputed: rows of any purpose on which no two people agree; see `open_rows`.
        costs: in order of the labelers' names.
        changes: what changed on the way, in its order.
        differing: annotators who answer in another way than the others.
    """

    labels: int
    none_of_these: int = 0
    ambiguous: int = 0
    broken: int = 0
    disputes: int = 0
    late: int = 0
    agreement: Agreement | None = None
    disputed: int = 0
    costs: tuple[Cost, ...] = ()
    changes: tuple[RunChange, ...] = ()
    differing: tuple[Differing, ...] = ()

    @property
    def answers(self) -> int:
        """All charged answers."""
        return self.labels + self.none_of_these + self.ambiguous + self.broken
