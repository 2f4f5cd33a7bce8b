"""An audit of new rows: a run in which people judge the labels that another run's model gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.api.planning import Plan, prepare
from stacksl.api.stored import Run
from stacksl.api.watching import not_of
from stacksl.data import Dataset
from stacksl.errors import DataError, SettingsError
from stacksl.models.linear import with_classes
from stacksl.report.sentences import PREDICTED
from stacksl.runs.items.sources import Sources
from stacksl.runs.settings.resolve import resolve
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import DATABASE, RunFolder

INHERITED = ("price", "annotators", "open_questions", "sheets.overlap", "sheets.format",
             "features", "class_names", "plugins")  # fmt: skip


def plan_audit(
    run: Run, dataset: Dataset, wanted: Mapping[str, Any], out: Path, progress: Any
) -> Plan:
    """The plan of a run in which people audit the labels that the model of `run` gives new rows.

    Its other settings are those of `run`, but for those `wanted`. Rows of `run` are left out.

    Raises:
        SettingsError, DataError: such a run cannot be, or no row is new.
    """
    spec = RunSpec.open(run.folder)
    if (classes := spec.sources.classes) is None:
        raise SettingsError(
            f"--audit needs fixed classes, and each item of {run.path} has its own options: give"
            " `evaluate` a file with answers"
        )
    new = not_of(spec.dataset.items, dataset)
    if not new:
        raise DataError(f"all rows of {dataset.name} are the run's own: name a file of new rows")
    pool = replace(dataset, items=tuple(with_classes(new, classes.names)), answers={}, unknown={})
    said = [int(np.argmax(policy)) for policy in run.model.policies(pool.items, progress)]
    chosen = spec.folder.config()
    people = {"labeler": "file", "mode": "pool", "model_labels": PREDICTED, **wanted}
    kept = {name: chosen[name] for name in INHERITED if name in chosen}
    if spec.settings.labeler == "file" and not spec.terms.further:
        kept["second_look"] = False  # so that both audits count people's errors as the model's
    resolved = resolve(people, kept)
    sources = replace(Sources.of(pool, classes=classes), said=tuple(said))
    like = replace(spec, resolved=resolved, sources=sources, data="", test_source=None)
    plan = prepare(like, out=out, settings=resolved)
    return replace(plan, spec=replace(plan.spec, evaluates=os.path.relpath(run.path, out)))


def audit_begun(run: Run, dataset: Dataset, out: Path) -> bool:
    """Whether there is a run in `out` that audits these rows for `run`."""
    if not (out / DATABASE).is_file():
        return False
    spec = RunSpec.open(RunFolder.open(out))
    other = out / spec.folder.resolved().get("evaluates", "")
    return other.resolve() == run.path.resolve() and not not_of(dataset.items, spec.dataset)
