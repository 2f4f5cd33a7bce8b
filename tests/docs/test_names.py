"""What a page names exists, and what exists is named."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from stacksl.core import GATES
from stacksl.lm import OBJECTIVES
from stacksl.lm.prompt.format import PROTOCOLS, TEMPLATES
from stacksl.lm.scoring.normalise import NORMALISATIONS
from stacksl.runs.settings.resolve import known_settings, settings_type
from stacksl_lab.baselines.registry import BASELINES

from .pages_cases import PAGES, REGISTRIES, ROOT, prose, spans


@pytest.mark.parametrize("page", list(PAGES))
def test_a_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(PAGES[page])):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, known in REGISTRIES.items() for name in known]
)
def test_every_name_is_documented(kind: str, name: str) -> None:
    if name in ("model", "regret"):
        assert f"--aim {name}" in PAGES["docs/concepts.md"]
        return
    if kind == "study":
        assert f"[{name}]({name}.md)" in PAGES["docs/studies/README.md"]
        return
    pages = "docs/paper.md", "docs/presets.md", "docs/concepts.md"
    words = {w for page in pages for span in spans(PAGES[page]) for w in re.split(r"[ :=]", span)}
    assert name in words, f"the {kind} '{name}' stands in none of {pages}"


PLAIN = {  # identifiers on the pages below that are no setting, no name and no value of a setting
    "resume", "predict", "evaluate", "run", "probability", "score", "status", "gate", "must",
    "spent", "order", "drawn", "rank", "class", "always", "clip_quantile", "verify",
    "lora_learning_rate", "replay", "lora", "letters", "answer",
}  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [
        "docs/paper.md",
        "docs/presets.md",
        "docs/concepts.md",
        "docs/negative-results.md",
    ],
)
def test_an_identifier_is_a_name_that_exists(page: str) -> None:
    values = {
        str(value)
        for gate in GATES
        for field in settings_type(gate).model_fields.values()
        for kind in (field.annotation, *get_args(field.annotation))
        for value in get_args(kind)
        if isinstance(value, str)
    }
    registered = {name for known in REGISTRIES.values() for name in known}
    known = PLAIN | values | registered | set(known_settings())
    if page == "docs/paper.md":  # which says that these are the laboratory's
        known |= {*BASELINES, "asked"}
    for span in spans(PAGES[page]):
        if re.fullmatch(r"[a-z][a-z_-]{3,}", span):
            assert span in known, f"`{span}` is no setting, no name and no value"


def test_every_decision_has_its_section() -> None:
    numbers = re.findall(r"^## D(\d+)\. ", PAGES["docs/paper.md"], re.MULTILINE)
    assert numbers == [str(n) for n in range(1, 20)]


@pytest.mark.parametrize(
    "names", [PROTOCOLS, TEMPLATES, NORMALISATIONS, OBJECTIVES], ids=lambda names: next(iter(names))
)
def test_every_name_of_a_language_model_is_on_its_page(names: Any) -> None:
    assert set(names) <= set(spans(PAGES["docs/lm.md"]))
