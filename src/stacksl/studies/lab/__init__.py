"""Studies of learners on synthetic streams: `LABORATORY` by name."""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.studies.lab.claims.advice import ADVICE
from stacksl.studies.lab.claims.clipping import CLIPPING
from stacksl.studies.lab.claims.complexity import COMPLEXITY
from stacksl.studies.lab.claims.coverage import COVERAGE
from stacksl.studies.lab.claims.drift import DRIFT
from stacksl.studies.lab.claims.learners import LEARNERS
from stacksl.studies.lab.claims.rates import RATES
from stacksl.studies.lab.claims.regret import REGRET
from stacksl.studies.lab.gates.study import GATES_STUDY
from stacksl.studies.lab.trial import StreamStudy

LABORATORY: Mapping[str, StreamStudy] = {
    study.name: study
    for study in (
        REGRET, GATES_STUDY, RATES, COVERAGE, LEARNERS, CLIPPING, DRIFT, ADVICE, COMPLEXITY,
    )
}  # fmt: skip
"""Every study of the laboratory by the name that `stacksl reproduce` takes."""
