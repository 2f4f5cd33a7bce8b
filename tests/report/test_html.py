import os
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

from stacksl.report import card, render
from stacksl.report.facts import Facts
from stacksl.report.quality import ColumnFacts

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects tags and text, and complains where a tag is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_equal_facts_give_equal_bytes(case):
    again = Facts.from_json(case.to_json())
    assert render(again).encode() == render(case).encode() == render(case).encode()


def test_bytes_do_not_depend_on_the_hash_seed(made, tmp_path):
    case, facts = made["hostile"](), tmp_path / "facts.json"
    facts.write_text(case.to_json(), encoding="utf-8")
    program = (
        "import sys, pathlib, hashlib; from stacksl.report import Facts, render, card;"
        "f = Facts.from_json(pathlib.Path(sys.argv[1]).read_text('utf-8'));"
        "print(hashlib.sha256((render(f) + card(f)).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(facts)],
            env={**os.environ, "PYTHONHASHSEED": seed},  # with the path of the code under test
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {sha256((render(case) + card(case)).encode()).hexdigest()}


def test_classes_are_shown_without_measures_where_none_has_ten_items(made):
    usual = made["usual"]()
    assert "worst recall comes first" in read(render(usual)).text
    assert "Class Learned Tested" in read(render(usual)).text, "the audit's labels are not counted"
    few = replace(usual, classes=tuple(replace(row, test_n=9) for row in usual.classes))
    text = read(render(few)).text
    assert "No class has ten items in the test file, so no precision or recall is shown." in text
    assert "Precision Recall" not in text


def test_the_page_is_well_formed_with_unique_ids_and_live_anchors(case):
    reader = read(render(case))
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"] for tag, attrs in reader.tags if tag == "a"}
    assert links <= {f"#{name}" for name in ids}


def test_nothing_is_loaded_and_nothing_runs(case):
    page = render(case)
    reader = read(page)
    assert not {"script", "img", "iframe", "object", "embed", "form"} & {t for t, _ in reader.tags}
    assert "url(" not in page
    assert "@import" not in page
    for _, attrs in reader.tags:
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "href"):
            assert (attrs.get(name) or "#").startswith(("#", "data:,"))


def test_markup_in_the_data_is_shown_not_obeyed_on_page_and_card(made):
    facts = made["hostile"]()
    page, written = render(facts), card(facts)
    assert "<script" not in page
    assert "&lt;script&gt;document.title" in page
    assert "\x00" not in page
    assert "\N{REPLACEMENT CHARACTER}" in page
    assert not re.search(r"(?<!\\)<script", written)
    for text in (page, written):
        text.encode("utf-8")


def test_every_number_of_the_run_stands_on_the_page(made):
    facts = made["usual"]()
    text = read(render(facts)).text
    for words in (
        "1,000 labels of 10,003 items were bought for $2,500.00",
        "87.69%",
        "86.49% to 88.81%",
        "2,701 of 3,080",
        "87.63%",
        "4.3%",
        "C = 20 by shuffled 3-fold log-loss",
        "12 prompts are in the training and the test file.",
        *(row.name for row in facts.classes),
        *(row.name for row in facts.settings),
        *(row.value for row in facts.versions),
        *(row.value for row in facts.fingerprints),
    ):
        assert words in text, words


def test_what_is_missing_is_said_in_a_sentence_and_not_drawn(made):
    page = render(made["bare"]())
    assert "<svg" not in page
    text = read(page).text
    for words in (
        "--test FILE",
        "There was no refit.",
        "No label was bought: 7 items passed, and 10 labels can still be bought.",
        "No answer was received.",
        "items have their own options",
        "Calibration is measured on an audit or a test file",
    ):
        assert words in text, words


def test_importing_the_package_loads_no_jinja():
    program = "import sys, stacksl.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_card_that_is_handed_over_has_no_word_of_the_data_s_owner(made):
    facts = made["hostile"]()
    secret = replace(
        facts,
        title="zyx data",
        run="zyx",
        asking=made["audited"]().asking,
        column=ColumnFacts("zyx column", 9, 9, 2, 0, 0, None, ()),
        warnings=("zyx.csv: 3 unusable rows",),
    )
    assert "zyx" in card(secret)
    assert "zyx" not in card(secret, {})
