"""Runs at the edges: nothing bought, one pair, no test, many classes, hostile text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stacksl.report.facts import Budget, DataCard, Facts, Method, Refit, SettingRow
from stacksl.report.quality import (
    Asking,
    ClassRow,
    ClassTotal,
    Confusion,
    LabeledShare,
    Named,
    OwnItems,
)

from .usual_cases import usual, wilson

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"


def bare(**budget: Any) -> Facts:
    """A stream that bought no label, without a test file."""
    counts = Budget(labels=10, asked=0, answered=0, left=10, rounds=7)
    return Facts(
        title="sample",
        run="bare",
        state="finished",
        created="2026-11-21 12:03:11 UTC",
        finished="2026-11-21 12:03:52 UTC",
        data=DataCard("sample", "jsonl", 100, 2, 4),
        budget=replace(counts, **budget),
        method=Method("always", "stream"),
        asking=Asking(labels=0),
        own=OwnItems(7, 0, "", (LabeledShare(0.9, 29), LabeledShare(0.95, 59))),
        refit=Refit("There was no refit.", False),
        versions=(Named("python", "3.11.9"),),
        fingerprints=(Named("features", "53aa"),),
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
        classes=tuple(
            ClassRow(name, at, 9, 0.5, at / 10, *wilson(at, 10)) for at, name in enumerate(names)
        ),
        own=OwnItems(
            90,
            9,
            "test",
            (LabeledShare(0.9, 29), LabeledShare(0.95, 59)),
            totals=tuple(ClassTotal(name, 1000, 1234, 1, 0, 12345) for name in names),
        ),
        confusions=tuple(Confusion(names[at], names[at - 1], 3) for at in range(5)),
        data=replace(usual().data, name=long, columns=(Named("prompt", SCRIPT),)),
        settings=(SettingRow("features", long, "flag"), SettingRow("out", SCRIPT, "config")),
        warnings=(SCRIPT, long),
        versions=(Named(SCRIPT, long),),
    )


def untested() -> Facts:
    facts = usual()
    rows = tuple(ClassRow(row.name, row.bought) for row in facts.classes)
    return replace(facts, test=None, curve=(), calibration=None, confusions=(), classes=rows)
