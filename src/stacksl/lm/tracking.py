"""`--report-to`: accuracy, labels and cost of each refit, to a tracker of accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError


@contextmanager
def tracking(name: str, run: Path, show: Callable[[Any], None] | None) -> Iterator[Any]:
    """`show`, which takes the progress of a run, and reports its refits to the tracker `name`.

    Raises:
        SettingsError: there is no such tracker, or its library is missing.
    """
    if name not in ("mlflow", "tensorboard"):
        raise SettingsError(f"--report-to should be mlflow or tensorboard, got {name!r}")
    if missing := [library for library in ("accelerate", name) if find_spec(library) is None]:
        raise SettingsError(f"--report-to {name} needs {missing[0]}: pip install {missing[0]}")
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    tracker, labels = None, 0

    def log(step: Any) -> None:
        nonlocal tracker, labels
        if show is not None:
            show(step)
        values = {"measured_accuracy": step.accuracy if step.phase == "report" else None}
        bought = step.phase in ("labels", "rounds") and step.spent > labels
        if step.refitted or (bought and step.accuracy is None):
            labels = step.spent
            values = {"labels": labels, "accuracy": step.accuracy, "cost": step.money}
        if values := {key: value for key, value in values.items() if value is not None}:
            if tracker is None:  # not before: the run makes its folder
                options = {"run_name": run.name} if name == "mlflow" else {"logging_dir": run}
                tracker = LOGGER_TYPE_TO_CLASS[name]("stacksl", **options)
                getattr(tracker, "start", bool)()  # which older ones do themselves
            tracker.log(values, step=labels)

    try:
        yield log
    finally:
        if tracker is not None:
            tracker.finish()
