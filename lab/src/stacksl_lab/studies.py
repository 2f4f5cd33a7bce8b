"""The studies by name, `STUDIES`: one command reproduces each table of the paper.

A study is a claim and the lines of a table; numbers that are missing are measured, and rows of one
JSON schema are made of them (`rows.KEYS`). There are two kinds: `LANGUAGE` adapts language models
on questions, `LABORATORY` plays learners on synthetic streams.
"""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.errors import unknown_name
from stacksl_lab.language.grids import LANGUAGE
from stacksl_lab.streams.advice import ADVICE
from stacksl_lab.streams.certificates.study import CERTIFICATES
from stacksl_lab.streams.clipping import CLIPPING
from stacksl_lab.streams.complexity import COMPLEXITY
from stacksl_lab.streams.coverage import COVERAGE
from stacksl_lab.streams.drift import DRIFT
from stacksl_lab.streams.gates.study import GATES_STUDY
from stacksl_lab.streams.learners import LEARNERS
from stacksl_lab.streams.llf.study import LLF_STUDY
from stacksl_lab.streams.rates import RATES
from stacksl_lab.streams.regret import REGRET
from stacksl_lab.streams.trial import StreamStudy
from stacksl_lab.study.study import Study

LABORATORY: Mapping[str, StreamStudy] = {
    study.name: study
    for study in (
        REGRET, LLF_STUDY, GATES_STUDY, RATES, COVERAGE, CERTIFICATES, LEARNERS, CLIPPING, DRIFT,
        ADVICE, COMPLEXITY,
    )
}  # fmt: skip
"""Every study of the laboratory by the name that `stacksl-lab reproduce` takes."""

STUDIES: Mapping[str, Study] = {**LANGUAGE, **LABORATORY}
"""Every study by the name that `stacksl-lab reproduce` takes."""


def study_named(name: str) -> Study:
    """The study called `name`.

    Raises:
        SettingsError: there is none.
    """
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]


def listing() -> dict[str, str]:
    """Each study's name with its claim and its cost, as `stacksl-lab reproduce` shows it."""
    return {name: f"{study.claim}; {study.cost}" for name, study in STUDIES.items()}
