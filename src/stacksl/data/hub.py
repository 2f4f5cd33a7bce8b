"""Data sets of the Hugging Face hub (extra `hub`) and data frames, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from stacksl.data.tables import Row, Table, table_from
from stacksl.errors import DataError, MissingExtra
from stacksl.telemetry import refuse_telemetry


def open_hub(spec: str) -> tuple[str, AbstractContextManager[Table]]:
    """A name and the table of `hf:NAME[@CONFIG][#SPLIT]`.

    NAME is a data set of the hub, a folder of data files, or a folder that `save_to_disk` wrote;
    SPLIT is `train` where it is not said. Integers of a column that names its classes become
    these names.

    Raises:
        MissingExtra: the library `datasets` is not installed.
        DataError: there is no such data set, configuration or split.
    """
    name, config, split = _parts(spec)
    refuse_telemetry()
    try:
        import datasets
    except ImportError:
        raise MissingExtra.of(f"reading '{spec}'", "hub") from None
    try:
        if (Path(name) / "state.json").is_file() or (Path(name) / "dataset_dict.json").is_file():
            loaded = datasets.load_from_disk(name)
            loaded = loaded if isinstance(loaded, datasets.Dataset) else loaded[split]
        else:
            loaded = datasets.load_dataset(name, config, split=split)
    except KeyError:
        raise DataError(f"'{spec}' has no split '{split}': it has {', '.join(loaded)}") from None
    except Exception as error:  # its message may quote the data
        raise DataError(f"the data set '{spec}' cannot be loaded: {_why(error)}") from error
    return f"{Path(name).name}-{split}", nullcontext(
        table_from("hub", loaded.column_names, _rows(loaded))
    )


def table_of(frame: Any) -> Table | None:
    """The table of a data frame of pandas or polars, or of a `datasets.Dataset`; else None."""
    columns = getattr(frame, "column_names", None)
    if isinstance(columns, list) and hasattr(frame, "features"):
        return table_from("memory", columns, _rows(frame))
    columns = getattr(frame, "columns", None)
    if columns is None or not (hasattr(frame, "to_dicts") or hasattr(frame, "to_dict")):
        return None
    names = [str(name) for name in columns]
    polars = hasattr(frame, "to_dicts")
    records = frame.to_dicts() if polars else frame.to_dict("records")
    rows = (Row(n, {str(k): v for k, v in each.items()}) for n, each in enumerate(records, 1))
    return table_from("memory", names, rows)


def _why(error: Exception) -> str:
    """What to do about a fault of the library, which goes by its type."""
    kind = type(error).__name__
    if "NotFound" in kind:
        return "there is no such data set, configuration or file; check the name"
    if isinstance(error, ConnectionError) or "Connect" in kind or "Offline" in kind:
        return "the hub cannot be reached; give a folder that was downloaded before"
    return f"the library raised {kind}; check configuration and split, --debug shows its message"


def _parts(spec: str) -> tuple[str, str | None, str]:
    rest, _, split = spec.removeprefix("hf:").partition("#")
    name, _, config = rest.partition("@")
    if not name:
        raise DataError(f"'{spec}' names no data set: hf:NAME[@CONFIG][#SPLIT] was expected")
    return name, config or None, split or "train"


def _rows(loaded: Any) -> Iterator[Row]:
    names = {
        column: feature.names
        for column, feature in loaded.features.items()
        if hasattr(feature, "names") and isinstance(feature.names, list)
    }
    for number, values in enumerate(loaded, 1):
        yield Row(number, _named(values, names) if names else values)


def _named(values: Mapping[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    row = dict(values)
    for column, known in names.items():
        index = row.get(column)
        # the hub marks a hidden label by -1
        row[column] = known[index] if isinstance(index, int) and index >= 0 else None
    return row
