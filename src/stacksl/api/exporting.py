"""What a run leaves to others: labels as tables, pairs for DPO, and its model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.api.labelling import COLUMNS, Bought, Progress, bought_answers, label_own
from stacksl.data import kind_of_table, write_table
from stacksl.errors import RunError, SettingsError

if TYPE_CHECKING:
    from stacksl.api.stored import Run

PAIR = ("prompt", "chosen", "rejected", "item", "labeler", "time", "price", "purpose")


def write_labels(run: Run, path: Path, *, names: bool = False) -> int:
    """Write the bought answers; how many purchases of the audit of a run that goes on are left out.

    Args:
        run: the run.
        path: its end says the format.
        names: whether people are named.

    Raises:
        SettingsError: the name ends in no known kind.
        DataError, RunError: it cannot be written.
    """
    kind_of_table(path)
    found = bought_answers(run, names=names)
    write_table(path, COLUMNS, [each.row for each in found.answers])
    return found.left_out


def write_own(run: Run, path: Path, progress: Progress = None) -> tuple[int, int]:
    """Write the rows of a finished run's own files; how many there are, and how many have no label.

    Raises:
        SettingsError: the name ends in no known kind.
        DataError: it cannot be written.
        RunError: the run has not finished.
    """
    kind_of_table(path)
    table = label_own(run, progress)
    write_table(path, table.columns, table.rows)
    return len(table.rows), table.blank


def write_pairs(run: Run, path: Path, *, names: bool = False) -> int:
    """Write the answers that train as pairs for DPO, in TRL's format with an explicit prompt.

    A chosen option makes a pair with each other option of its item. Answers that measure the
    model, of people who are set aside, and that name no option make none.

    Returns:
        The number of pairs.

    Raises:
        SettingsError: the items have no options of their own, or the name ends in no known kind.
        DataError: the file cannot be written.
    """
    kind_of_table(path)
    found = bought_answers(run, names=names)
    if found.classes is not None:
        raise SettingsError(
            "expected items with options of their own, got classes that all items share: give"
            " --labels FILE instead"
        )
    rows = [row for each in found.answers for row in _pairs(each)]
    write_table(path, PAIR, rows)
    return len(rows)


def write_model(run: Run, out: Path) -> Path:
    """Write the final model into the new or empty folder `out`, which needs no stacksl; `out`.

    Raises:
        SettingsError: the model is of a kind that cannot be written so.
        RunError: there is no model yet, or `out` is not empty or cannot be written.
        FeatureError, MissingExtra: the encoder's weights or packages are missing.
    """
    from stacksl.api.labelling import threshold_of
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


def _pairs(bought: Bought) -> list[dict[str, Any]]:
    row, item = bought.row, bought.item
    if item is None or row["label"] is None or row["set_aside"] or row["purpose"] == "audit":
        return []
    kept = {name: row[name] for name in PAIR[3:]}
    pair = {"prompt": item.prompt, "chosen": row["label"]}
    return [{**pair, "rejected": o, **kept} for o in item.candidates if o != row["label"]]
