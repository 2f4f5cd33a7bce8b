"""The paper's tables, each made again by one command: `STUDIES` by name.

A study is a claim and the lines of a table; numbers that are missing are measured, and rows of one
JSON schema are made of them (`rows.KEYS`). There are two kinds: `LANGUAGE` adapts language models
on questions, `lab.LABORATORY` plays learners on synthetic streams.
"""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.errors import unknown_name
from stacksl.lab.language.grids import LANGUAGE
from stacksl.lab.streams import LABORATORY
from stacksl.lab.study.study import Study

__all__ = ["LANGUAGE", "STUDIES", "listing", "study_named"]

STUDIES: Mapping[str, Study] = {**LANGUAGE, **LABORATORY}
"""Every study by the name that `stacksl reproduce` takes."""


def study_named(name: str) -> Study:
    """The study called `name`.

    Raises:
        SettingsError: there is none.
    """
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]


def listing() -> dict[str, str]:
    """Each study's name with its claim and its cost, as `stacksl ls studies` shows it."""
    return {name: f"{study.claim}; {study.cost}" for name, study in STUDIES.items()}
