"""A data set of the library `datasets`, given in Python; skipped where it is not installed."""

from __future__ import annotations

import pytest

from stacksl.data import read, table_of


def test_class_numbers_become_names() -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    named = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    columns = {"text": [f"t{n}" for n in range(8)], "label": [*(n % 2 for n in range(7)), -1]}
    table = table_of(datasets.Dataset.from_dict(columns, features=named))
    assert table is not None
    found = read(table)
    assert found.classes == ("neg", "pos")
    assert list(found.answers.values()) == [0, 1, 0, 1, 0, 1, 0]  # the hub hides a label by -1
