"""The paper's numbers are the paper's, and what is said of them is so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stacksl_lab.language.paper import NUMBERS
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
