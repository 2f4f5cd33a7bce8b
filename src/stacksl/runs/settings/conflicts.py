"""Mistakes that no group of settings shows alone: unknown names, groups at odds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from stacksl.errors import SettingsError
from stacksl.runs.settings.budget import MANY, parse_budget
from stacksl.runs.settings.fields import Settings

OPENAI = "openai"  # the labeler that is a model on a server
LOCAL = "hf"  # the labeler that is a language model in this process
_OF_LOCAL = (  # how such a model is asked and read
    "template chat system chat_arguments answer_format device dtype max_len_prompt max_len_choice"
    " batch_tokens"
)


def nearest(name: str, known_names: Iterable[str]) -> str:
    """`: did you mean ...?` with the nearest of `known_names`; empty where none is near."""
    matches = get_close_matches(name, list(known_names), n=1)
    return f": did you mean '{matches[0]}'?" if matches else ""


def unknown_names(settings: Settings) -> list[str]:
    """A sentence for each name that no registry has, and for a budget that is none."""
    from stacksl.core.gates.registry import COVERAGE, GATES
    from stacksl.core.scorers import SCORERS
    from stacksl.features import FEATURES
    from stacksl.labelers.registry import LABELERS

    choices: list[tuple[str, str | None, Any]] = [
        ("gate", settings.gate.name, [*GATES, COVERAGE]),
        ("scorer", settings.scorer.name, SCORERS),
        ("features", settings.features.partition(":")[0], FEATURES),
        ("labeler", settings.labeler_kind, [*LABELERS, "file", OPENAI, LOCAL]),
    ]
    hint = "; `plugins` adds others, such as stacksl_lab.baselines.plugin"
    faults = [
        f"unknown {kind} '{name}'{nearest(name, names) or ':'} known: {', '.join(sorted(names))}"
        + (hint if kind == "gate" else "")
        for kind, name, names in choices
        if name is not None and name not in names
    ]
    by_token = settings.labeler_kind == OPENAI  # the price of a label is then computed
    try:
        parse_budget(settings.budget, MANY, settings.price or ("0.000001" if by_token else None))
    except SettingsError as fault:
        faults.append(str(fault))
    return faults


def conflicts(settings: Settings, explicit: set[str]) -> list[str]:
    """The mistakes that only show when groups are seen together; `explicit` names were given."""
    # people answer over a column, too, unless another labeler is named
    people = settings.labeler == "file" or bool(settings.column and "labeler" not in explicit)
    return [
        *_without_owner(settings, explicit, people),
        *_of_people(settings, people),
        *_of_models_that_answer(settings, explicit),
        *(_of_adapting(settings, explicit) if settings.adapts else ()),
    ]


def _without_owner(settings: Settings, explicit: set[str], people: bool) -> Iterator[str]:
    """A sentence for each group that was given without what it belongs to."""
    kind = settings.labeler_kind
    updates = settings.adapts or settings.scorer.name == "sgd"
    by_file = people, "people who answer by file", "--labeler file"
    owners = {
        **dict.fromkeys(("annotators", "second_look", "sheets"), by_file),
        "server": (kind == OPENAI, "a model on a server that answers", "--labeler openai:MODEL"),
        "owned_columns": (settings.owned is not None, "a file of owned labels", "--owned FILE"),
        "lm": (settings.adapts, "a language model", "--model NAME_OR_DIR"),
        "update": (updates, "the scorer 'sgd' (or to a language model)", "--scorer sgd"),
    }
    for group, (has_owner, owner, remedy) in owners.items():
        names = sorted(name for name in explicit if name.partition(".")[0] == group)
        if kind == LOCAL:
            names = [name for name in names if name.partition("lm.")[2] not in _OF_LOCAL.split()]
        if names and not has_owner:
            yield _belong(names, owner, f"give {remedy}, or ")


def _belong(names: Sequence[str], owner: str, remedy: str = "") -> str:
    """The sentence for settings that were given without what they belong to."""
    single = len(names) == 1
    return (
        f"{', '.join(names)} belong{'s' if single else ''} to {owner}:"
        f" {remedy}leave {'it' if single else 'them'} out"
    )


def _of_people(settings: Settings, people: bool) -> Iterator[str]:
    if not people:
        return
    names = [name.strip() for name in settings.annotators.split(",")]
    letters = (  # without the marks that some scripts have between letters, which are not in \w
        "".join(c for c in name if unicodedata.category(c)[0] != "M") for name in names
    )
    plain = all(re.fullmatch(r"[\w.-]+", name) for name in letters)
    folded_names = {name.casefold() for name in names}
    if "owner" in folded_names:
        yield "the page calls you 'owner', so no annotator may be called that: give another name"
    if not plain or len(folded_names) < len(names):
        yield (
            "annotators should be different names without spaces, with commas between, such"
            f" as anna,ben, got {settings.annotators}"
        )
    looks = settings.second_look or "accuracy" in (settings.stop_when or "")
    if looks and (len(names) < 2 or settings.audit == 0):
        yield (
            "second_look asks other people of some rows of the audit, and stop_when with an"
            " accuracy needs it: give --annotators anna,ben or more names, and an audit"
        )
    if settings.sheets.overlap and len(names) < 2:
        yield "sheets.overlap needs two annotators or more: give --annotators anna,ben"


def _of_models_that_answer(settings: Settings, explicit: set[str]) -> Iterator[str]:
    name, _, model = settings.labeler.partition(":")
    known = {f"server.{name}" for name, value in settings.server if value is not None} | explicit
    if name in (OPENAI, LOCAL) and settings.audit:
        yield (
            "an audit is answered by people, and the labels of this run come from a model: leave"
            " --audit out, and give --test FILE"
        )
    if name == LOCAL and not model.strip():
        yield "the labeler 'hf' needs a model: give --labeler hf:FOLDER or hf:NAME"
    if name != OPENAI:
        return
    if not model.strip() or "server.url" not in known:  # a wrong one is named already
        yield (
            "the labeler 'openai' needs a model and its server: give --labeler openai:MODEL --url"
            " http://HOST:PORT/v1"
        )
    if "server.input_price" not in known and (settings.price or settings.budget.startswith("$")):
        yield (
            "a model is paid by the token: give --set server.input_price=P --set"
            " server.output_price=P, for a million tokens each; --price is then the most that a"
            " label may cost"
        )


def _of_adapting(settings: Settings, explicit: set[str]) -> Iterator[str]:
    if "features" in explicit:
        yield "a language model makes its own features: leave --features out"
    if settings.scorer.name not in (None, "newton"):
        yield (
            f"over a language model the gate's head is 'newton', not '{settings.scorer.name}':"
            " leave --scorer out"
        )
    objective = settings.lm.objective
    if objective == "ce-hard" and settings.top_k is None:
        yield "the objective 'ce-hard' trains on hard candidates: give --set top_k=4"
    update_names = {name for name in explicit if name.startswith("update.")}
    wrong_names = sorted(update_names - {"update.learning_rate"})
    if objective != "stacksl" and wrong_names:
        yield _belong(wrong_names, f"the objective 'stacksl', not to '{objective}'")
