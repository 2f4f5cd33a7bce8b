"""Tables of the documentation that a benchmark makes are those of its committed results."""

from __future__ import annotations

import pytest

from .benchmarks import ROOT, benchmark, record


def _stands_on(table: str, page: str) -> None:
    """The page has the table, and so has every other page that shows one with this head."""
    head = table.partition("\n")[0]
    assert table in (ROOT / page).read_text(encoding="utf-8")
    for other in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        text = other.read_text(encoding="utf-8")
        assert head not in text or table in text, other


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("label_efficiency", "docs/studies/gates.md"),
        ("label_efficiency_pool", "docs/studies/gates.md"),
        ("other_loops", "docs/studies/compare.md"),
        ("floors", "docs/studies/compare.md"),
        ("cascade", "docs/answering.md"),
    ],
)
def test_the_table_is_made_from_the_committed_rows(name: str, page: str) -> None:
    rows = record(name)["rows"]
    _stands_on(benchmark(name).table(rows), page)
    assert {row["seed"] for row in rows} == set(range(10))
    assert all(row["asked"] == row["labels"] for row in rows if "asked" in row)


@pytest.mark.parametrize(
    ("name", "kept", "page"),
    [
        ("language_model_table", "language_model", "docs/lm.md"),
        ("normalization_choice", "normalization_choice", "docs/lm.md"),
        ("stacked_scores", "stacked_scores", "docs/lm.md"),
        ("reply_filters", "reply_filters", "docs/answering.md"),
        ("near_duplicates", "near_duplicates", "docs/lm.md"),
    ],
)
def test_the_table_is_made_from_the_committed_record(name: str, kept: str, page: str) -> None:
    _stands_on(benchmark(name).table(record(kept)), page)


def test_the_record_of_readers_is_of_the_replies_that_are_tested() -> None:
    kept = record("reply_filters")
    ours = [row for row in kept["rows"] if row["reader"] == "stacksl"]
    assert ours == benchmark("reply_filters").rows_of_ours(), "replies changed: measure again"
    for row in kept["rows"]:
        [own] = [each for each in ours if each["form"] == row["form"]]
        assert (row["named"], row["none"]) == (own["named"], own["none"])
        assert row["right"] + row["wrong"] + row["lost"] == row["named"]
    page = (ROOT / "docs/answering.md").read_text(encoding="utf-8")
    versions = kept["versions"]
    assert f"lm-eval {versions['lm_eval']}, Instructor {versions['instructor']})" in page


def test_every_pool_of_copies_was_measured_and_the_sentences_are_true() -> None:
    kept, script = record("near_duplicates"), benchmark("near_duplicates")
    cells = {(row["pool"], row["copies"], row["seed"]) for row in kept["rows"]}
    seeds = {"random": script.SEEDS, "close": 1, "all": 1}
    assert cells == {(p, c, s) for p, n in seeds.items() for c in script.COPIES for s in range(n)}
    assert len(kept["rows"]) == len(cells)
    assert kept["taken_for_twins"] == 0
    rule = {(row["copies"], row["rule"] == row["labels"]) for row in kept["rows"]}
    assert {copy for copy, whole in rule if not whole} == {"another first word"}


def test_what_a_label_buys_is_made_from_the_committed_records() -> None:
    _stands_on(benchmark("before_after").table(), "docs/what-a-label-buys.md")


def test_the_readmes_table_is_made_from_the_committed_rows() -> None:
    rows, loops = record("other_loops")["rows"], benchmark("other_loops")
    _stands_on(loops.short_table(rows), "README.md")
    model = [
        f"{loops.by_seed(rows, case, 'random, stacksl', labels).mean():.3f}"
        for case in loops.CASES
        for labels in loops.BUDGETS
        if (case.source, case.variant) == ("stackoverflow_titles", "plain")
    ]
    assert " / ".join(model) in (ROOT / "README.md").read_text(), "random, same model"
    seeds = {row["seed"] for row in rows}
    assert len(rows) == len(seeds) * len(loops.CASES) * len(loops.ARMS) * 3


def test_the_models_labels_of_the_cascade_are_paid_from_the_same_money() -> None:
    cascade = benchmark("cascade")
    for row in record("cascade")["rows"]:
        model = 0 if row["arm"] == "people" else cascade.POOL * cascade.PRICE
        assert (labels := row.get("labels", 0)) + model <= row["money"] < labels + model + 1


def test_rows_of_the_language_model_are_of_other_seeds_than_those_that_chose_settings() -> None:
    kept = record("language_model")
    for row in kept["rows"]:
        assert (row["seed"] >= 100) == (row["pilot"] > 0)
        left = kept["items"] - (row["n"] if row["pilot"] else 0)
        assert row["labels"] == int(row["budget"] * left)
        losses = row.get("held_out_losses", {})  # of the weights of self-training, by name in JSON
        assert not losses or row["weight"] == float(min(losses, key=losses.get))
    assert {row["seed"] for row in record("stacked_scores")["rows"]} == set(range(10))


def test_every_case_of_the_floors_was_measured_once() -> None:
    rows = record("floors")["rows"]
    keys = ("set", "features", "variant", "pool", "seed", "arm", "labels")
    assert len(rows) == len({tuple(row[key] for key in keys) for row in rows})
    measured = {(row["set"], row["features"], row["variant"]) for row in rows}
    assert measured == {(c.source, c.features, c.variant) for c in benchmark("floors").CASES}


def test_the_readme_fits_what_it_promises() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for place in ("docs/paper.md", "docs/ledger.md", "docs/data.md", "docs/benchmarks.md"):
        assert f"({place})" in text
        assert (ROOT / place).is_file(), place
