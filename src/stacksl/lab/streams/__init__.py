"""Studies of learners on synthetic streams: `LABORATORY` by name."""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.lab.streams.advice import ADVICE
from stacksl.lab.streams.clipping import CLIPPING
from stacksl.lab.streams.complexity import COMPLEXITY
from stacksl.lab.streams.coverage import COVERAGE
from stacksl.lab.streams.drift import DRIFT
from stacksl.lab.streams.gates.study import GATES_STUDY
from stacksl.lab.streams.learners import LEARNERS
from stacksl.lab.streams.rates import RATES
from stacksl.lab.streams.regret import REGRET
from stacksl.lab.streams.trial import StreamStudy

LABORATORY: Mapping[str, StreamStudy] = {
    study.name: study
    for study in (
        REGRET, GATES_STUDY, RATES, COVERAGE, LEARNERS, CLIPPING, DRIFT, ADVICE, COMPLEXITY,
    )
}  # fmt: skip
"""Every study of the laboratory by the name that `stacksl reproduce` takes."""
