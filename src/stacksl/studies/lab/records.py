"""Records of the laboratory: what `stacksl reproduce STUDY --json` prints of its studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stacksl import __version__
from stacksl.studies.lab.bench import samples
from stacksl.studies.lab.trial import LabStudy, Numbers
from stacksl.studies.rows import Row

__all__ = ["lab_record"]


def lab_record(
    study: LabStudy,
    seeds: int,
    rows: Sequence[Row],
    found: Mapping[str, Sequence[Numbers]],
    quick: bool = False,
) -> dict[str, Any]:
    """The rows of a study with the command, version and seeds they were made by.

    `summary` is there where the study has one: a line a thing compared.
    """
    summary = {} if study.summary is None else {"summary": list(study.summary(samples(found)))}
    return {
        "study": study.name,
        "version": __version__,
        "command": f"stacksl reproduce {study.name} --seeds {seeds}{' --quick' * quick} --json",
        "seeds": list(range(seeds)),
        **summary,
        "rows": [row.to_json() for row in rows],
    }
