"""A finished run that looks real, part by part."""

from __future__ import annotations

import math

import numpy as np

from stacksl.report.facts import Budget, DataCard, Facts, Method, Refit, SettingRow
from stacksl.report.quality import (
    Asking,
    Calibration,
    ClassRow,
    Confusion,
    CurvePoint,
    LabeledShare,
    Named,
    OwnItems,
    TestResult,
)

SHARES = LabeledShare(0.9, 29, 0.82, 0.611, 2600, 2420), LabeledShare(0.95, 59)
TOPICS = "card arrival", "exchange rate", "top up failed", "cash withdrawal charge", "lost card"


def wilson(correct: int, n: int) -> tuple[float, float]:
    z, p = 1.959964, correct / n
    middle, root = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - root) / (1 + z * z / n), (middle + root) / (1 + z * z / n)


def class_rows(many: int) -> tuple[ClassRow, ...]:
    draw = np.random.default_rng(9)
    found = []
    for at in range(many):
        bought, precision = int(draw.poisson(13)), round(float(draw.beta(14, 2)), 4)
        recall = round(float(draw.beta(14, 2)), 4)
        name = TOPICS[at] if at < len(TOPICS) else f"topic {at + 1:03d}"
        interval = wilson(round(40 * recall), 40)
        found.append(ClassRow(name, bought, 40, precision, recall, *interval))
    return tuple(found)


def calibration() -> Calibration:
    return Calibration(error=0.0431, confidence=0.9, accuracy=0.88, n=3080)


def tested() -> TestResult:
    low, high = wilson(2701, 3080)
    return TestResult("test.csv", 3080, 2701, 2701 / 3080, low, high, 0.8763, 0)


def curve() -> tuple[CurvePoint, ...]:
    """Accuracy at six numbers of labels; the last is that of the test."""
    shares = {100: 0.561, 200: 0.69, 300: 0.757, 500: 0.823, 750: 0.857, 1000: 2701 / 3080}
    return tuple(
        CurvePoint(labels, share, *wilson(round(share * 3080), 3080))
        for labels, share in shares.items()
    )


def confusions() -> tuple[Confusion, ...]:
    return tuple(Confusion(TOPICS[at % 5], f"topic {at + 6:03d}", 19 - at) for at in range(18))


def refit() -> Refit:
    return Refit(
        "Logistic regression refitted on 1,000 labels; C = 20 by shuffled 3-fold log-loss.", True
    )


def usual() -> Facts:
    """A finished run on 10,003 items of 77 classes with a test file and a price."""
    return Facts(
        title="Banking77",
        run="2026-11-21-banking77",
        state="finished",
        created="2026-11-21 12:03:11 UTC",
        finished="2026-11-21 12:03:52 UTC",
        data=DataCard(
            name="banking77",
            format="csv",
            items=10003,
            options_min=77,
            options_max=77,
            classes=77,
            columns=(Named("prompt", "text"), Named("label", "category")),
            rejected=(Named("empty prompt", "2"), Named("repeated id", "1")),
            rejected_total=3,
        ),
        budget=Budget(
            labels=1000,
            asked=1000,
            answered=1000,
            left=0,
            rounds=10003,
            price=2_500_000,
            money=2_500_000_000,
            spent_money=2_500_000_000,
        ),
        method=Method("margin", "stream"),
        test=tested(),
        asking=Asking(labels=1000),
        curve=curve(),
        own=OwnItems(9003, 3080, "test", SHARES),
        classes=class_rows(77),
        confusions=confusions(),
        calibration=calibration(),
        refit=refit(),
        settings=(
            SettingRow("budget", "0.1", "flag"),
            SettingRow("features", "sentences:minilm", "flag"),
            SettingRow("gate.name", "margin", "flag"),
            *(
                SettingRow(name, "1.0", "default")
                for name in ("scorer.ridge", "scorer.noise", "scorer.norm_bound")
            ),
            SettingRow("gate.pace", "0.005", "default"),
        ),
        versions=(Named("stacksl", "0.2.0"), Named("python", "3.11.9"), Named("numpy", "2.3.1")),
        fingerprints=(
            Named("features", "53aa51172d142c89d9012cce15ae4d6c"),
            Named("ledger", "9f" * 32),
        ),
        warnings=("12 prompts are in the training and the test file.",),
    )
