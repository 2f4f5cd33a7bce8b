"""What a page names exists, and what exists is named."""

from __future__ import annotations

import pkgutil
import re
from typing import Any, get_args

import pytest

from stacksl.lm.prompt.format import TEMPLATES, AnswerFormat
from stacksl.lm.scoring.normalize import NORMALIZATIONS
from stacksl.lm.training.refit import OBJECTIVES

from .pages_cases import PAGES, REGISTRIES, ROOT, prose, spans


@pytest.mark.parametrize("page", list(PAGES))
def test_a_link_leads_somewhere(page: str) -> None:
    """The site is made from `docs/` alone: a link out of it works in the repository, not there."""
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(PAGES[page])):
        if not target.startswith(("http://", "https://", "mailto:")):
            place = ((ROOT / page).parent / target).resolve()
            assert place.exists(), target
            assert place.is_relative_to(ROOT / "docs" if page.startswith("docs/") else ROOT), target


@pytest.mark.parametrize("page", list(PAGES))
def test_a_link_to_a_section_names_a_heading(page: str) -> None:
    for target, section in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", prose(PAGES[page])):
        path = (ROOT / page).parent / target if target else ROOT / page
        if path.suffix == ".md":
            assert section in anchors(path.read_text(encoding="utf-8")), f"{target}#{section}"


def anchors(text: str) -> set[str]:
    """The headings of a page, in the form that a link to them has."""
    found = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in found)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def test_every_page_is_on_the_index_and_on_the_site() -> None:
    site = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.removeprefix("docs/")
        if page.startswith("docs/"):
            assert f'"{name}"' in site, page
        if page.startswith("docs/") and "/" not in name and name != "README.md":
            assert f"]({name})" in PAGES["docs/README.md"], page


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, known in REGISTRIES.items() for name in known]
)
def test_every_name_is_documented(kind: str, name: str) -> None:
    if kind == "study":
        assert f"[{name}]({name}.md)" in PAGES["docs/studies/README.md"]
        return
    pages = "docs/paper.md", "docs/presets.md", "docs/concepts.md"
    words = {w for page in pages for span in spans(PAGES[page]) for w in re.split(r"[ :=]", span)}
    assert name in words, f"the {kind} '{name}' stands in none of {pages}"


def test_the_site_documents_names_that_there_are() -> None:
    named = re.findall(r"^::: (.+)$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.M)
    assert "stacksl.api.planning.run" in named
    for name in named:
        assert pkgutil.resolve_name(name).__doc__, name


def test_every_decision_has_its_section() -> None:
    numbers = re.findall(r"^## D(\d+)\. ", PAGES["docs/paper.md"], re.MULTILINE)
    assert numbers == [str(n) for n in range(1, 20)]


@pytest.mark.parametrize(
    "names",
    [get_args(AnswerFormat), TEMPLATES, NORMALIZATIONS, OBJECTIVES],
    ids=lambda names: next(iter(names)),
)
def test_every_name_of_a_language_model_is_on_its_page(names: Any) -> None:
    assert set(names) <= set(spans(PAGES["docs/lm.md"]))
