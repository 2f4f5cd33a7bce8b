"""Runs that adapted a language model."""

from __future__ import annotations

from dataclasses import replace

from stacksl.report.facts import AdapterRefit, Budget, Facts, LanguageModel, Refit
from stacksl.report.quality import Asking, CurvePoint, Named, TestResult

from .edge_cases import SCRIPT, bare
from .usual_cases import usual, wilson


def language() -> LanguageModel:
    """A LoRA adapter after two refits, with 500 test items."""
    return LanguageModel(
        base="tiny-base",
        license="mit",
        template="{prompt}\nAnswer:",
        about=(Named("Read from", "/models/tiny-base"), Named("Parameters", "4,218,880")),
        training=(Named("LoRA rank", "16"), Named("Reference", "frozen")),
        refits=(
            AdapterRefit(1, 100, 0.031, 60.5, 1.31, 1.22, 0.021),
            AdapterRefit(2, 200, 0.052, 120.0, 1.07, 1.02, None),
        ),
    )


def adapted() -> Facts:
    """A finished run that adapted a language model to items with options of their own."""
    facts = usual()
    shares = ((0, 190), (100, 275), (200, 310))
    return replace(
        facts,
        title="Docstrings",
        data=replace(facts.data, name="docstrings", items=2000, classes=None, options_max=4),
        budget=Budget(labels=200, asked=200, answered=200, left=0, rounds=2000),
        test=TestResult("test.jsonl", 500, 310, 0.62, *wilson(310, 500), 0.41),
        curve=tuple(CurvePoint(at, n / 500, *wilson(n, 500)) for at, n in shares),
        classes=(),
        confusions=(),
        refit=Refit("The final model is the language model with the adapter of refit 2.", True),
        asking=Asking(labels=200),
        own=None,
        language=language(),
    )


def adapted_badly() -> Facts:
    """No test file, no label learned, and names that hold markup and fences."""
    return replace(
        adapted(),
        budget=bare().budget,
        asking=bare().asking,
        test=None,
        curve=(),
        calibration=None,
        refit=Refit("There was no refit.", False),
        language=replace(
            language(),
            base=SCRIPT,
            license=None,
            template=f"```\n{SCRIPT}\n````",
            about=(Named("Read from", SCRIPT),),
            refits=(),
        ),
    )
