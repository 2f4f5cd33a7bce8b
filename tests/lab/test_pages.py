"""The pages of the studies, made from their records; the numbers of the paper are the paper's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from stacksl.errors import DataError
from stacksl_lab import pages as headline
from stacksl_lab.language.paper import INCONSISTENCIES, NUMBERS
from stacksl_lab.pages import HEADLINE, refreshed
from stacksl_lab.pools.tables import COMPARISON
from stacksl_lab.studies import LABORATORY, LANGUAGE, STUDIES
from stacksl_lab.study.records import read_records
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import markdown

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "studies"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md")}
RECORDS = read_records(FOLDER / "results")


def test_every_study_has_its_page() -> None:
    assert set(PAGES) == {"README", COMPARISON, *STUDIES}
    for name, study in STUDIES.items():
        said = " ".join(PAGES[name].split())
        assert f"stacksl-lab reproduce {name}" in said
        assert study.cost in said
        assert all(sentence in said for sentence in INCONSISTENCIES.get(name, ()))
        assert f"[{name}]({name}.md)" in PAGES["README"]


@pytest.mark.parametrize("page", list(PAGES))
def test_its_tables_are_the_records(page: str) -> None:
    assert refreshed(PAGES[page], RECORDS) == PAGES[page]
    shown = set(re.findall(r"<!-- study: (.+?) -->", PAGES[page]))
    mine = {name for name in RECORDS if name.partition(".")[0] == page}
    if page == "README":
        mine = {HEADLINE}
    assert shown == mine, "every record is shown on its study's page"


@pytest.mark.parametrize("name", list(LABORATORY))
def test_the_figures_of_its_page_are_drawn_from_its_record(name: str) -> None:
    shown = re.findall(rf"\.\./images/({name}(?:-\w+)?)\.svg", PAGES[name])
    assert set(LABORATORY[name].figures(RECORDS[name])) == set(shown)


@pytest.mark.parametrize("name", [n for n in RECORDS if n in LABORATORY])
def test_a_record_of_the_laboratory_is_its_studys(name: str) -> None:
    """Its lines are those that the study has now, on all of its seeds."""
    study = LABORATORY[name]
    lines = {line.row: line for trial in study.trials(False) for line in trial.lines}
    measured = [r for r in RECORDS[name] if r.row in lines and r.metric in study.metrics]
    assert {row.row for row in measured} == set(lines)
    assert study.derive is not None or measured == RECORDS[name]
    for row in measured:
        assert row.study == name
        assert row.paper == lines[row.row].paper.get(row.metric)
        assert row.seeds <= study.seeds
        assert not any("quick" in mark for mark in row.settings["marks"])


@pytest.mark.parametrize(
    "name", [n for n in RECORDS if n not in LABORATORY and n.partition(".")[0] != COMPARISON]
)
def test_a_record_holds_the_papers_numbers_or_none(name: str) -> None:
    study, _, model = name.partition(".")
    for row in RECORDS[name]:
        paper = NUMBERS[study].get(row.row, {}).get(row.metric)
        assert row.paper == (paper if model == "qwen3-4b" else None)
        assert row.value is not None or any("not measured" in m for m in row.settings["marks"])
    if model == "qwen3-4b":
        printed = {(r, m) for r, numbers in NUMBERS[study].items() for m in numbers}
        assert printed - {(r.row, r.metric) for r in RECORDS[name]} == set()


@pytest.mark.parametrize("name", [n for n in RECORDS if n.partition(".")[0] == COMPARISON])
def test_a_comparison_is_shown_with_its_command(name: str) -> None:
    record = json.loads((FOLDER / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert " ".join(record["command"].split()) in " ".join(PAGES[COMPARISON].split())
    assert record["failed"] == {}


def row(name: str, value: float | None, **more: object) -> Row:
    base: dict[str, object] = {"se": 0.001, "seeds": 5, "budget_fraction": 1.0}
    settings = {"marks": more.pop("marks", []), "N": 1000}
    return Row("s", name, value=value, settings=settings, **{"metric": "accuracy", **base, **more})  # type: ignore[arg-type]


def test_a_table_shows_intervals_papers_and_notes() -> None:
    rows = [row("A", 0.5, paper=0.4, marks=["first"]), row("B", None, marks=["first", "gone"])]
    lines = markdown(rows).splitlines()
    assert lines[0] == "|  | N | seeds | accuracy, ours | accuracy, paper |"
    assert lines[2] == "| A (1) | 1,000 | 5 | 0.5000 ± 0.0028 | 0.4000 |"
    assert lines[3] == "| B (1, 2) | 1,000 | 5 | not measured |  |"
    assert lines[-2:] == ["1. first.", "2. gone."]


@pytest.mark.parametrize(
    ("gain", "se", "shown"),
    [(0.1, 0.01, "0.5000 ± 0.0028"), (0.02, 0.01, "inconclusive"), (0.1, 0.04, "inconclusive")],
)
def test_a_small_gain_is_inconclusive(gain: float, se: float, shown: str) -> None:
    """A gain within three standard errors keeps no share worth a number."""
    rows = [
        row("full", 0.6), row("full", gain, metric="gain", se=se),
        row("half", 0.5, budget_fraction=0.5),
        row("half", 0.5, metric="gain_kept", budget_fraction=0.5),
    ]  # fmt: skip
    assert markdown(rows).splitlines()[-1].split(" | ")[-1].removesuffix(" |") == shown


def test_a_record_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="kl.toy"):
        refreshed("<!-- study: kl.toy -->\n<!-- end -->", {})
    (tmp_path / "kl.toy.json").write_text("[]")
    with pytest.raises(DataError, match=r"kl\.toy\.json"):
        read_records(tmp_path)


# The table of the paper's claims is made from the records, or not at all ------------------------


def test_a_number_stands_with_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = headline.Claim(
        "it rises", "by {toy|a, b / c|height|2}, from {toy|a|height}", "yes", "toy"
    )
    monkeypatch.setattr(headline, "CLAIMS", (claim,))
    rows = [Row("toy", "a, b / c", "height", 1.234, 0.1, 5), Row("toy", "a", "height", 0.5)]
    line = headline.headline({"toy": rows}).splitlines()[-1]
    # t(4) at 97.5% is 2.776.
    assert line == "| it rises | by 1.23 ± 0.28, from 0.5000 ([toy](toy.md)) | yes |"


@pytest.mark.parametrize(
    "rows", [[], [Row("toy", "a", "height", None)], [Row("toy", "b", "height", 1)]]
)
def test_a_number_that_is_not_there_is_named(rows: list[Row], monkeypatch) -> None:
    monkeypatch.setattr(headline, "CLAIMS", (headline.Claim("", "{toy|a|height}", "", "toy"),))
    with pytest.raises(DataError, match="'toy' has no number 'height' of the row 'a'"):
        headline.headline({"toy": rows})


def test_each_claim_leads_to_a_study() -> None:
    assert {claim.study for claim in headline.CLAIMS} <= set(LABORATORY)


# The paper's numbers are the paper's ------------------------------------------------------------


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
    shared = Path(named).parent if named else FOLDER.parents[2] / "shared"
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
