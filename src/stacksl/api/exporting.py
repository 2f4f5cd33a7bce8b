"""What a run leaves to others: labels as tables, and its model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.api.labeling import COLUMNS, Progress, bought_answers, label_own
from stacksl.data import expect_other, kind_of_table, write_table
from stacksl.errors import RunError, SettingsError

if TYPE_CHECKING:
    from stacksl.api.stored import Run


def write_labels(run: Run, path: Path, *, names: bool = False) -> int:
    """Write the bought answers; how many purchases of the audit of a run that goes on are left out.

    Args:
        run: the run.
        path: its end says the format.
        names: whether people are named.

    Raises:
        SettingsError: the name ends in no known kind, or is that of a file of the run.
        DataError, RunError: it cannot be written.
    """
    kind_of_table(path)
    expect_other(path, run.folder.resolved().get("files", {}))
    _, found = bought_answers(run, names=names)
    write_table(path, COLUMNS, found.rows)
    return found.left_out


def write_own(run: Run, path: Path, progress: Progress = None) -> tuple[int, int]:
    """Write the rows of a finished run's own files; how many there are, and how many have no label.

    Raises:
        SettingsError: the name ends in no known kind, or is that of a file of the run.
        DataError: it cannot be written.
        RunError: the run has not finished.
    """
    kind_of_table(path)
    expect_other(path, run.folder.resolved().get("files", {}))
    table = label_own(run, progress)
    write_table(path, table.columns, table.rows)
    return len(table.rows), table.blank


def write_model(run: Run, out: Path) -> Path:
    """Write the final model into the new or empty folder `out`, which needs no stacksl; `out`.

    Raises:
        SettingsError: the model is of a kind that cannot be written so.
        RunError: there is no model yet, or `out` is not empty or cannot be written.
        FeatureError, MissingExtra: the encoder's weights or packages are missing.
    """
    from stacksl.api.labeling import threshold_of
    from stacksl.models.adapted import is_adapted
    from stacksl.models.portable.folder import write_folder
    from stacksl.runs.storage.folder import read_facts

    if is_adapted(run.folder.model):
        raise SettingsError(
            "--model expects class heads on features, but this run adapted a language model:"
            " --merge OUT writes that as one model, which transformers loads"
        )
    model: Any = run.model
    facts, right = read_facts(run.folder), dict[float, float]()
    for share in facts.own.shares if facts.own else ():
        with suppress(RunError):  # nothing shows it
            right[share.wanted] = threshold_of(run, share.wanted)
    write_folder(out, model, facts, right)
    return out
