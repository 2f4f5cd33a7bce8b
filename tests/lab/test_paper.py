"""The paper's numbers are the paper's, and what is said of them is so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stacksl_lab.language.paper import CANNOT, NUMBERS, SIZES
from stacksl_lab.studies import LANGUAGE

ROOT = Path(__file__).resolve().parents[2]
LABELS = {
    "label-efficiency": "tab:label_efficiency",
    "kl": "tab:kl_sweep",
    "hard-negatives": "tab:hardneg_sweep",
    "objectives": "tab:qwen4b_results",
    "medqa": "tab:mc_results",
    "mmlu": "tab:subject_results",
    "clipping-lm": "tab:clipping",
}


def possible(accuracy: float, items: int, decimals: int = 4) -> bool:
    """Whether some count of right answers of `items` gives `accuracy`, rounded or cut off."""
    scale = 10**decimals
    printed = round(accuracy * scale)
    near = round(accuracy * items)
    return any(
        printed in (round(count * scale / items), int(count * scale / items))
        for count in (near - 1, near, near + 1)
    )


def table(label: str) -> list[float]:
    """The numbers of a table of the paper, in its order."""
    named = os.environ.get("STACKSL_DATA")
    shared = Path(named).parent if named else ROOT.parent / "shared"
    source = shared / "paper" / "paper.tex"
    if not source.is_file():
        pytest.skip(f"the paper is not at {source} (set STACKSL_DATA)")
    text = re.sub(r"(?<!\\)%.*", "", source.read_text(encoding="utf-8"))
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", text, re.DOTALL)
    [mine] = [each for each in tables if f"\\label{{{label}}}" in each]
    body = mine.partition("\\midrule")[2].partition("\\bottomrule")[0]
    return [float(each) for each in re.findall(r"\d+\.\d+", body)]


@pytest.mark.parametrize("study", list(LANGUAGE))
def test_every_number_is_that_of_the_table(study: str) -> None:
    printed = table(LABELS[study])
    mine = [value for numbers in NUMBERS[study].values() for value in numbers.values()]
    if study == "label-efficiency":  # β, used fraction, accuracy, % of full
        rows = [printed[n : n + 4] for n in range(0, len(printed), 4)]
        mine = [v for row in NUMBERS[study].values() for v in row.values()]
        assert mine == [v for _, used, acc, full in rows for v in (acc, used, full)]
    elif study == "kl":
        assert printed == [
            v for w, v in zip((0.3, 0.5, 0.7, 0.9), mine, strict=True) for v in (w, v)
        ]
    else:
        assert printed == mine


def test_what_is_said_to_be_no_share_is_none() -> None:
    of = {name: sizes[1] for name, sizes in SIZES.items()}
    wrong = []
    for study in ("label-efficiency", "kl", "hard-negatives", "medqa"):
        wrong += [
            v["accuracy"]
            for v in NUMBERS[study].values()
            if not possible(v["accuracy"], of["MedQA"])
        ]
    assert wrong == [0.5918, 0.5826, 0.5721]
    assert all(str(each) in CANNOT["label-efficiency"][0] for each in wrong)
    mmlu = [
        (row, v["accuracy"])
        for row, v in NUMBERS["mmlu"].items()
        if not possible(v["accuracy"], of[row.partition(":")[0]])
    ]
    assert mmlu == [("Medical Genetics: LLF-StackSL", 0.3509)]


def test_counts_that_are_named() -> None:
    assert [round(c / 1273, 4) for c in (753, 754, 711)] == [0.5915, 0.5923, 0.5585]
    assert [round(c / 1273, 4) for c in (468, 485, 443)] == [0.3676, 0.3810, 0.3480]
    assert pytest.approx(0.25216, abs=5e-6) == 321 / 1273
    full = NUMBERS["label-efficiency"]["Full StackSL"]["accuracy"]
    assert [round(100 * a / full, 2) for a in (0.5826, 0.5721, 0.5585)] == [98.45, 96.67, 94.37]


def test_every_table_has_its_sentences() -> None:
    assert set(CANNOT) == set(LANGUAGE)
    assert all(CANNOT.values())
