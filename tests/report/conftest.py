"""Facts of runs that look real, and of runs at the edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from stacksl.report.asking import Agreement, Asking, AuditResult, BudgetChange, Cost
from stacksl.report.facts import (
    BeforeLabel,
    Budget,
    Calibration,
    CalibrationBin,
    ClassRow,
    Confusion,
    Contested,
    CurvePoint,
    DataCard,
    Facts,
    GateScore,
    Method,
    Named,
    Refit,
    RoundSeries,
    SettingRow,
    TestResult,
)
from stacksl.report.language import (
    AdapterRefit,
    BaseModel,
    Computed,
    Cut,
    Epoch,
    LanguageModel,
    NormalisationRow,
    Scoring,
)

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
TOPICS = "card arrival", "exchange rate", "top up failed", "cash withdrawal charge", "lost card"
PROMPTS = (
    "I think I was charged the wrong rate when I took out cash abroad, how can I check this?",
    "Why was my top-up reverted even though the money has left my other account already?",
    "My card still has not come and it has been two weeks. Is there a way to track it?",
    "What does it cost to exchange foreign currencies inside the app?",
)


def wilson(correct: int, n: int) -> tuple[float, float]:
    z, p = 1.959964, correct / n
    middle, root = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - root) / (1 + z * z / n), (middle + root) / (1 + z * z / n)


def rounds(horizon: int, budget: int, points: int = 2000) -> RoundSeries:
    """A paced margin gate on made-up margins that grow as the learner learns."""
    draw = np.random.default_rng(7)
    margin = draw.beta(1.2 + 1.6 * np.linspace(0, 1, horizon), 3.0) * 0.9
    threshold, spent = -float(margin[0]), 0
    kept, rows = max(1, -(-horizon // points)), []
    for at in range(1, horizon + 1):
        g = float(-margin[at - 1])
        left, to_go = budget - spent, horizon - at + 1
        asked = left > 0 and bool(g > threshold or left >= to_go)
        line = threshold
        threshold += 0.005 * (asked - left / to_go)
        spent += asked
        if at % kept == 0 or at == horizon or at == 1:
            rows.append((at, g, float(line), bool(asked), spent))
    columns = zip(*rows, strict=True)
    return RoundSeries(*(tuple(column) for column in columns), total=horizon)


def before(n: int) -> BeforeLabel:
    draw = np.random.default_rng(8)
    hits = draw.random(n) < 0.62 * (1 - np.exp(-np.arange(1, n + 1) / (n / 4)))
    running = np.cumsum(hits) / np.arange(1, n + 1)
    window = 100
    recent = [float(hits[max(0, at - window) : at].mean()) for at in range(1, n + 1)]
    kept = range(0, n, max(1, n // 500))
    return BeforeLabel(
        label=tuple(at + 1 for at in kept),
        running=tuple(float(running[at]) for at in kept),
        recent=tuple(recent[at] for at in kept),
        window=window,
        n=n,
        correct=int(hits.sum()),
    )


def class_rows(many: int) -> tuple[ClassRow, ...]:
    draw = np.random.default_rng(9)
    return tuple(
        ClassRow(
            name=TOPICS[at] if at < len(TOPICS) else f"topic {at + 1:03d}",
            bought=int(draw.poisson(13)),
            test_n=40,
            precision=round(float(draw.beta(14, 2)), 4),
            recall=round(float(draw.beta(14, 2)), 4),
        )
        for at in range(many)
    )


def calibration() -> Calibration:
    draw = np.random.default_rng(10)
    bins = tuple(
        CalibrationBin(
            confidence=round(0.05 + at / 10, 3),
            accuracy=round(min(1.0, max(0.0, 0.1 + at / 10 + float(draw.normal(0, 0.05)))), 3),
            n=int(20 + 12 * at**2),
        )
        for at in range(1, 10)
    )
    return Calibration(bins=bins, ece=0.0431, n=sum(row.n for row in bins))


def contested(many: int) -> tuple[Contested, ...]:
    return tuple(
        Contested(
            item=f"banking77-{1000 + 37 * at}",
            prompt=PROMPTS[at % len(PROMPTS)],
            choice=TOPICS[at % 5],
            label=None if at % 3 == 2 else TOPICS[(at + at % 2) % 5],
            statistic=-0.0007 * at,
            round=100 + 731 * at % 9000,
            asked=at % 3 != 2,
        )
        for at in range(many)
    )


def usual() -> Facts:
    """A finished run on 10,003 items of 77 classes with a test file and a price."""
    low, high = wilson(2701, 3080)
    points = (
        (100, 0.561),
        (200, 0.69),
        (300, 0.757),
        (500, 0.823),
        (750, 0.857),
        (1000, 2701 / 3080),
    )
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
            python="3.11.9",
        ),
        budget=Budget(
            labels=1000,
            asked=1000,
            answered=1000,
            left=0,
            rounds=10003,
            horizon=10003,
            price=2_500_000,
            money=2_500_000_000,
            spent_money=2_500_000_000,
        ),
        method=Method(
            "model",
            "margin",
            "ridge",
            "sentences:minilm",
            "given",
            "oracle",
            "stream",
            "shuffled",
            0,
        ),
        test=TestResult("test.csv", 3080, 2701, 2701 / 3080, low, high, 0.8763, 0, 1 / 77),
        curve=tuple(
            CurvePoint(labels, share, *wilson(round(share * 3080), 3080))
            for labels, share in points
        ),
        rounds=rounds(10003, 1000),
        before_label=before(1000),
        gate_score=GateScore(
            total=8123.4,
            asked=1022.9,
            rounds=10003,
            width_scale=19.6,
            round=tuple(range(100, 10001, 100)),
            cumulative=tuple(8123.4 * (at / 100) ** 0.7 for at in range(1, 101)),
        ),
        classes=class_rows(77),
        confusions=tuple(
            Confusion(TOPICS[at % 5], f"topic {at + 6:03d}", 19 - at) for at in range(18)
        ),
        calibration=calibration(),
        contested=contested(20),
        refit=Refit(
            "Logistic regression refitted on 1,000 labels; C = 20 by shuffled 3-fold log-loss.",
            True,
            20.0,
            0.6132,
            ((1.0, 1.104), (5.0, 0.7021), (20.0, 0.6132), (100.0, 0.6377)),
        ),
        settings=(
            SettingRow("budget", "0.1", "flag"),
            SettingRow("features", "sentences:minilm", "flag"),
            SettingRow("gate", "margin", "aim"),
            *(SettingRow(name, "1.0", "default") for name in ("ridge", "noise", "norm_bound")),
            SettingRow("pace", "0.005", "default"),
        ),
        versions=(Named("stacksl", "0.1.0"), Named("python", "3.11.9"), Named("numpy", "2.3.1")),
        fingerprints=(
            Named("features", "53aa51172d142c89d9012cce15ae4d6c"),
            Named("ledger", "9f" * 32),
        ),
        warnings=("12 prompts are in the training and the test file.",),
        interruptions=("Interrupted in round 4,211 and resumed at 12:03:30 UTC.",),
    )


def bare(state: str = "running", **budget: int) -> Facts:
    """A run of which nothing is known yet: no round, no label, no test file."""
    counts = {"labels": 10, "asked": 0, "answered": 0, "left": 10, "rounds": 0, "horizon": 100}
    return Facts(
        title="sample",
        run="bare",
        state=state,
        created="",
        finished="",
        data=DataCard("sample", "jsonl", 100, 2, 4),
        budget=Budget(**{**counts, **budget}),
        method=Method(
            "model", "always", "sgd", "hashing", "given", "oracle", "stream", "file", 3, "paper"
        ),
    )


def hostile() -> Facts:
    """Markup, one word of 600 letters, right-to-left text, emoji and broken characters."""
    long = "Donaudampfschifffahrtsgesellschaft" * 18
    arabic = "متى ستصل بطاقتي الجديدة؟ لقد انتظرت أسبوعين \u202e" * 6
    names = (SCRIPT, long, arabic, "🧑‍🚀🏳️‍🌈 emoji | `code` *stars*", "nul \x00 lone \ud800")
    return replace(
        usual(),
        title=SCRIPT,
        run="run <b>",
        classes=tuple(ClassRow(name, at, 9, 0.5, at / 10) for at, name in enumerate(names)),
        confusions=tuple(Confusion(names[at], names[at - 1], 3) for at in range(5)),
        contested=tuple(
            Contested(name, name * 40, name, names[at - 1], 1e-7, at + 1, True)
            for at, name in enumerate(names)
        ),
        data=replace(usual().data, name=long, columns=(Named("prompt", SCRIPT),)),
        settings=(SettingRow("features", long, "flag"), SettingRow("out", SCRIPT, "config")),
        warnings=(SCRIPT, long),
        versions=(Named(SCRIPT, long),),
    )


def many_classes() -> Facts:
    facts = usual()
    return replace(facts, data=replace(facts.data, classes=151), classes=class_rows(151))


def one_pair() -> Facts:
    """Two classes, one label, one round, and a test file of one row."""
    low, high = wilson(1, 1)
    return replace(
        bare("finished", labels=1, asked=1, answered=1, left=0, rounds=1, horizon=1),
        data=DataCard("coins", "csv", 1, 2, 2, 2),
        rounds=RoundSeries((1,), (float("inf"),), (float("-inf"),), (True,), (1,), 1),
        before_label=BeforeLabel((1,), (0.0,), n=1, correct=0),
        test=TestResult("one.csv", 1, 1, 1.0, low, high, 1.0, chance=0.5),
        curve=(CurvePoint(1, 1.0, low, high),),
        classes=(ClassRow("heads", 1, 1, 1.0, 1.0), ClassRow("tails", 0, 0, None, None)),
        calibration=Calibration((CalibrationBin(0.5, 1.0, 1),), 0.5, 1),
        gate_score=GateScore(0.0, 0.0, 1, 1.0, (1,), (0.0,)),
        refit=Refit("No refit: the labels bought are of one class only.", False),
    )


def untested() -> Facts:
    facts = usual()
    rows = tuple(ClassRow(row.name, row.bought) for row in facts.classes)
    return replace(facts, test=None, curve=(), calibration=None, confusions=(), classes=rows)


def audit(correct: int, known: int, n: int, none: int = 0, **more: float) -> AuditResult:
    """An audit of `n` items, `known` of them with a clear answer."""
    unknown = n - known
    low, high = wilson(correct, n)[0], wilson(correct + unknown, n)[1]
    shares = correct / n, (correct + unknown) / n
    accuracy = correct / known if known else None
    return AuditResult(n, correct, none, unknown, accuracy, low, high, *shares, **more)


def asking() -> Asking:
    """What two annotators said, a hundred rows of which went to both."""
    return Asking(
        labels=930,
        none_of_these=41,
        ambiguous=22,
        broken=7,
        disputes=3,
        agreement=Agreement(100, 88, 0.874),
        costs=(Cost("zyx anna", 600, 1_500_000_000), Cost("zyx ben", 400, 1_000_000_000)),
        changes=(BudgetChange(4000, 1000, 2_500_000_000),),
        added=((2500, 78),),
    )


def audited() -> Facts:
    """A run of two annotators with an audit and no test file, some of its answers unclear."""
    facts = untested()
    draw = np.random.default_rng(11)
    rows = tuple(
        ClassRow(row.name, row.bought, 2, 0.5, hits / 2, *wilson(hits, 2))
        for row, hits in zip(facts.classes, draw.integers(0, 3, len(facts.classes)), strict=True)
    )
    rows = (replace(rows[0], bought=0, precision=None), *rows[1:])
    return replace(
        facts,
        budget=replace(facts.budget, asked=900, answered=850, audit=100, open=0),
        audit=audit(80, 95, 100, none=3),
        asking=asking(),
        classes=rows,
        confusions=usual().confusions,
        measured_on="audit",
        calibration=replace(calibration(), n=95, source="audit"),
        refit=replace(
            usual().refit,
            made_by="names and graph",
            compared=(("plain", 0.712), ("names", 0.741), ("names and graph", 0.763)),
        ),
    )


def audited_and_tested() -> Facts:
    """An audit that is all clear, drawn late, then trained on; and a test file besides."""
    facts = replace(usual(), asking=Asking(labels=1000), audit=audit(88, 100, 100))
    late = replace(facts.audit, passed_over=0.1, trained_on=100)
    return replace(
        facts, audit=late, budget=replace(facts.budget, asked=900, answered=900, audit=100)
    )


def audited_in_vain() -> Facts:
    """An audit of which no item got a clear answer."""
    facts = replace(bare("finished"), audit=audit(0, 0, 20), asking=Asking(labels=0, ambiguous=20))
    return replace(facts, budget=replace(facts.budget, audit=20, rounds=100))


def normalisation(name: str, own: bool, correct: int, base: int, n: int = 500) -> NormalisationRow:
    low, high = wilson(correct, n)
    base_low, base_high = wilson(base, n)
    return NormalisationRow(
        name, own, correct / n, low, high, 0.41, base / n, base_low, base_high, 0.27
    )


def language() -> LanguageModel:
    """A LoRA adapter after two refits, with 500 test items."""
    return LanguageModel(
        base=BaseModel("tiny-base", "/models/tiny-base", "c0ffee" * 5, 4_218_880, None, "mit"),
        kind="lora",
        trained=92_480,
        scoring=Scoring("option", "{prompt}\nAnswer:", False, "char_mean", 0.125, 512, None, 1024),
        computed=Computed("cpu", "float32", "packed", 2, 1, 3 * 2**29, seconds=754.0),
        training=(Named("LoRA rank", "16"), Named("Reference", "frozen")),
        cuts=(Cut("items to label", 2000, 17, 3), Cut("test items", 500, 0, 0)),
        normalisations=(
            normalisation("token_mean", False, 290, 180),
            normalisation("sum", False, 300, 185),
            normalisation("char_mean", True, 310, 190),
            normalisation("pmi", False, 320, 280),
        ),
        refits=(
            AdapterRefit(
                1, 100, 100, 39, 0.031, 0.1, 60.5, 31_000, 1.31, 1.22, 5.5, 4.4, 0.021,
                0.55, *wilson(275, 500),
            ),
            AdapterRefit(
                2, 200, 200, 75, 0.052, 0.1, 120.0, 62_000, 1.07, 1.02, 6.5, 5.4, None,
                0.62, *wilson(310, 500),
            ),
        ),
        epochs=(
            Epoch(0, 900, 100, 1111.5, 222.25),
            Epoch(1, 1000, 95, 777.75, 88.5),
            Epoch(2, 100, 5, None, None),
        ),
    )  # fmt: skip


def adapted() -> Facts:
    """A finished run that adapted a language model to items with options of their own."""
    facts = usual()
    shares = ((0, 190), (100, 275), (200, 310))
    return replace(
        facts,
        title="Docstrings",
        data=replace(facts.data, name="docstrings", items=2000, classes=None, options_max=4),
        budget=Budget(labels=200, asked=200, answered=200, left=0, rounds=2000, horizon=2000),
        method=replace(facts.method, scorer="newton", features="model:tiny-base"),
        test=TestResult("test.jsonl", 500, 310, 0.62, *wilson(310, 500), 0.41, chance=0.25),
        curve=tuple(CurvePoint(at, n / 500, *wilson(n, 500)) for at, n in shares),
        gate_score=None,
        classes=(),
        confusions=(),
        refit=Refit("The final model is the language model with the adapter of refit 2.", True),
        rounds=rounds(2000, 200),
        before_label=before(200),
        language=language(),
    )


def adapted_badly() -> Facts:
    """All weights, no test file, no label learnt, and names that hold markup and fences."""
    model = language()
    base = BaseModel(SCRIPT, SCRIPT, "00", 1, "<b>", None)
    return replace(
        adapted(),
        budget=bare().budget,
        test=None,
        curve=(),
        calibration=None,
        refit=Refit("There was no refit.", False),
        language=replace(
            model,
            base=base,
            kind="full",
            scoring=replace(model.scoring, template=f"```\n{SCRIPT}\n````", temperature=1.0),
            computed=replace(model.computed, device="cuda:0", on_device=True, seconds=None),
            normalisations=(),
            refits=(),
            epochs=(),
        ),
    )


CASES = {
    "adapted": adapted,
    "adapted_badly": adapted_badly,
    "audited": audited,
    "audited_and_tested": audited_and_tested,
    "audited_in_vain": audited_in_vain,
    "usual": usual,
    "bare": bare,
    "hostile": hostile,
    "many_classes": many_classes,
    "one_pair": one_pair,
    "untested": untested,
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Facts:
    """Each of the runs in turn."""
    made: Facts = CASES[request.param]()
    return made


@pytest.fixture
def made():
    """The builders by name: ``made["usual"]()``."""
    return CASES
