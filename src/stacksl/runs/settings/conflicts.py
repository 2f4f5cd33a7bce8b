"""Mistakes in settings that no single value shows: names no registry has, settings at odds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from stacksl.core.gates.registry import COVERAGE, GATES, gate_type, make_gate
from stacksl.errors import SettingsError
from stacksl.labelers.chat.endpoint import address
from stacksl.runs.settings.budget import MANY, micro_units, parse_budget
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.marks import Only


def settings_for(of: str) -> tuple[str, ...]:
    """The settings that are for one thing alone: `people`, `model`, `sgd` or `llf`."""
    known = Settings.model_fields.items()
    return tuple(name for name, field in known if Only(of) in field.metadata)


OF_MODEL = settings_for("model")
REGULARISED = settings_for("sgd")
PEOPLE = settings_for("people")
SERVER = settings_for("server")
OPENAI = "openai"  # the labeler that is a model on a server
LOCAL = "hf"  # the labeler that is a language model in this process


def nearest(name: str, known: Iterable[str]) -> str:
    """`: did you mean ...?` with the known name nearest to `name`; empty where none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f": did you mean '{near[0]}'?" if near else ""


def unknown_names(settings: Settings) -> list[str]:
    """A sentence for each name that no registry has, and for a budget that is none."""
    from stacksl.core.followers import FOLLOWERS
    from stacksl.core.scorers import SCORERS
    from stacksl.features import FEATURES
    from stacksl.labelers.registry import LABELERS

    named: list[tuple[str, str | None, Any]] = [
        ("gate", settings.gate, [*GATES, COVERAGE]),
        ("follower", settings.follower, FOLLOWERS),
        ("scorer", settings.scorer, SCORERS),
        ("features", settings.features.partition(":")[0], FEATURES),
        ("labeler", settings.labeler.partition(":")[0], [*LABELERS, "file", OPENAI, LOCAL]),
    ]
    found = [
        f"unknown {kind} '{name}'{nearest(name, known) or ':'} known: {', '.join(sorted(known))}"
        for kind, name, known in named
        if name is not None and name not in known
    ]
    by_token = settings.labeler.startswith(f"{OPENAI}:")  # the price of a label is then computed
    price = settings.price or ("0.000001" if by_token else None)
    return found + _mistake(lambda text: parse_budget(text, MANY, price), settings.budget)


def conflicts(settings: Settings, explicit: set[str]) -> list[str]:
    """The mistakes that only show when settings are seen together."""
    return [
        *_of_gates(settings, explicit),
        *_of_bank(settings),
        *_of_sgd(settings, explicit),
        *_of_people(settings, explicit),
        *_of_server(settings, explicit),
        *_of_adapting(settings, explicit),
    ]


def _of_gates(settings: Settings, explicit: set[str]) -> list[str]:
    found: list[str] = []
    if settings.width_scale is not None and settings.width_scale <= 0:
        found.append(
            f"width_scale must be above 0, not {settings.width_scale:g}: at 0 the gate 'contested'"
            " never asks"
        )
    if settings.noise == 0 and settings.width_scale is None:
        found.append("noise 0 makes α = σ√d of the gate score 0: give a width_scale with it")
    if settings.gate != "llf":
        calibrating = sorted(explicit.intersection(settings_for("llf")))
        found += [with_gate(name, ["llf"], settings.gate) for name in calibrating]
    found += _of_its_own(settings)
    if settings.follower == "given" and settings.k is not None and "k" in explicit:
        found.append("k is the number of hard negatives: it needs --set follower=hard")
    return found


def _of_bank(settings: Settings) -> list[str]:
    """What a bank of answers excludes, and what needs one."""
    if settings.bank is None:
        needs = "the follower 'nearest' retrieves answers from a bank: give --bank FILE"
        return [needs] if settings.follower == "nearest" else []
    found: list[str] = []
    if settings.follower != "nearest":
        found.append(f"a bank needs the follower nearest, not '{settings.follower}': leave it out")
    if settings.k is not None and settings.k < 2:
        found.append(f"k, the answers that an item is given, must be 2 or more, not {settings.k}")
    if settings.classes is not None:
        found.append("--bank and --classes exclude each other: give one of them")
    if settings.adapts:
        found.append("a bank is ranked by a linear model: leave --model and --adapt out")
    return found


def _of_its_own(settings: Settings) -> list[str]:
    """Conflicts among the settings of the gate alone."""
    names = type(settings).model_fields.keys() - Settings.model_fields.keys()
    own = {name: value for name in names if (value := getattr(settings, name)) is not None}
    kind = gate_type(settings.gate)
    try:
        make_gate(settings.gate if kind is None else kind.name, **own)
    except SettingsError as fault:
        return [str(fault)] if own else []  # a gate that does not exist has its sentence already
    return []


def with_gate(name: str, owners: Sequence[str], gate: str) -> str:
    """The sentence for a setting `name` of the gates `owners`, given with another `gate`."""
    one = len(owners) == 1
    belongs = f"the gate '{owners[0]}'" if one else f"the gates {', '.join(owners)}"
    return (
        f"{name} belongs to {belongs}, but the gate is '{gate}':"
        f" give --gate {owners[0] if one else 'with one of them'}, or leave it out"
    )


def _belong(names: Sequence[str], owner: str, remedy: str = "") -> str:
    """The sentence for settings that were given without what they belong to."""
    one = len(names) == 1
    return (
        f"{', '.join(names)} belong{'s' if one else ''} to {owner}:"
        f" {remedy}leave {'it' if one else 'them'} out"
    )


def _of_sgd(settings: Settings, explicit: set[str]) -> list[str]:
    found: list[str] = []
    own = ("inner_steps",) if settings.adapts else REGULARISED
    if settings.scorer != "sgd" and (wrong := sorted(explicit.intersection(own))):
        model = "" if settings.adapts else " (or to a language model)"
        found.append(_belong(wrong, f"the scorer 'sgd'{model}", "give --scorer sgd, or "))
    if settings.clip_level is not None and settings.clip_multiple is not None:
        found.append("clip_level and clip_multiple exclude each other: give one of them")
    return found


def _of_people(settings: Settings, explicit: set[str]) -> list[str]:
    """What was given for people who answer by file."""
    given = sorted(explicit.intersection(PEOPLE))
    if settings.labeler != "file":
        owner, remedy = "people who answer by file", "give --labeler file, or "
        return _of_prices(settings, []) + [_belong(given, owner, remedy)] * bool(given)
    found: list[str] = []
    names = [name.strip() for name in settings.annotators.split(",")]
    plain = all(re.fullmatch(r"[\w.-]+", name) for name in names)
    if not plain or len({name.casefold() for name in names}) < len(names):
        found.append(
            "annotators should be different names of letters and digits with commas between, such"
            " as anna,ben"
        )
    found += _of_prices(settings, names)
    if settings.overlap and len(names) < 2:
        found.append("overlap needs two annotators or more: give --annotators anna,ben")
    if not re.fullmatch(r"0?[0-7]{3}", settings.ask_mode) or not int(settings.ask_mode, 8) & 0o600:
        found.append(
            "ask_mode should be permissions such as 0600 or 0640, with the owner's right to read"
            f" and write, not '{settings.ask_mode}'"
        )
    elif "ask_mode" in explicit and settings.ask_dir is None:
        found.append("ask_mode opens sheets to others, and a run's folder is private: give ask_dir")
    return found


def _of_server(settings: Settings, explicit: set[str]) -> list[str]:
    """What was given for a model on a server that answers."""
    name, _, model = settings.labeler.partition(":")
    given = sorted(explicit.intersection(SERVER))
    found: list[str] = []
    if name in (OPENAI, LOCAL) and settings.audit:
        found.append(
            "an audit is answered by people, and the labels of this run come from a model: leave"
            " --audit out, and give --test FILE"
        )
    if name == LOCAL and not model.strip():
        found.append("the labeler 'hf' needs a model: give --labeler hf:FOLDER or hf:NAME")
    if name != OPENAI:
        owner = "a model on a server that answers"
        return found + [_belong(given, owner, "give --labeler openai:MODEL, or ")] * bool(given)
    if not model.strip() or settings.url is None:
        found.append(
            "the labeler 'openai' needs a model and its server: give --labeler openai:MODEL --url"
            " http://HOST:PORT/v1"
        )
    else:
        found += _mistake(address, str(settings.url))
    prices = [settings.input_price, settings.output_price]
    for price in prices:
        found += [] if price is None else _mistake(micro_units, price)
    if (None in prices) != (prices == [None, None]):
        found.append("input_price and output_price go together: give both, 0 where one is free")
    priced = settings.price is not None or settings.budget.startswith("$")
    if priced and None in prices:
        found.append(
            "a model is paid by the token: give --set input_price=P --set output_price=P, for a"
            " million tokens each; --price is then the most that a label may cost"
        )
    return found


def _mistake(check: Callable[[str], object], text: str) -> list[str]:
    """The sentence of a check that `text` fails."""
    try:
        check(text)
    except SettingsError as fault:
        return [str(fault)]
    return []


def _of_prices(settings: Settings, annotators: list[str]) -> list[str]:
    """What is wrong with prices by name; `annotators` is empty unless they answer by file."""
    text = settings.price or ""
    if "=" not in text:
        return []
    if not annotators:
        return [
            "prices by name belong to people who answer by file: give one price, such as --price"
            " 2.50, or --labeler file"
        ]
    named = [part.partition("=")[0].strip() for part in text.split(",")]
    if sorted(named) == sorted(annotators):
        return []
    return [
        f"expected a price for each of the annotators {', '.join(annotators)}, got"
        f" {', '.join(named)}: give --price NAME=PRICE for each"
    ]


def _of_adapting(settings: Settings, explicit: set[str]) -> list[str]:
    """What a language model excludes, and what was given for one where there is none."""
    if not settings.adapts:
        wrong = sorted(explicit.intersection(OF_MODEL))
        return [_belong(wrong, "a language model", "give --model NAME_OR_DIR, or ")] * bool(wrong)
    found: list[str] = []
    if "features" in explicit:
        found.append("a language model makes its own features: leave --features out")
    if settings.scorer not in (None, "newton"):
        found.append(
            f"over a language model the gate's head is 'newton', not '{settings.scorer}': leave"
            " --scorer out"
        )
    if settings.objective == "ce-hard" and settings.follower != "hard":
        found.append("the objective 'ce-hard' trains on hard candidates: give --set follower=hard")
    if settings.objective != "stacksl":
        wrong = sorted(explicit.intersection(REGULARISED) - {"learning_rate", "inner_steps"})
        if wrong:
            owner = f"the objective 'stacksl', and the objective is '{settings.objective}'"
            found.append(_belong(wrong, owner))
    if refit_shares(settings.refit_at) is None:
        found.append(
            "refit_at should be shares of the budget above 0 and up to 1, rising, with commas"
            f" between, such as 0.25,1, not '{settings.refit_at}'"
        )
    return found


def refit_shares(text: str) -> tuple[float, ...] | None:
    """The shares of the budget that `text` lists, rising; None where it is no such list.

    >>> refit_shares("0.25, 1"), refit_shares("2")
    ((0.25, 1.0), None)
    """
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        return None
    rising = all(a < b for a, b in pairwise(shares))
    return shares if rising and all(0 < share <= 1 for share in shares) else None


def due_at(refit_at: str, budget: int) -> tuple[int, ...]:
    """The numbers of labels learnt at which a refit is due.

    >>> due_at("0.05,0.1,0.25,0.5,1", 40)
    (2, 4, 10, 20, 40)
    """
    shares = refit_shares(refit_at) or (1.0,)
    return tuple(sorted({max(1, math.ceil(round(share * budget, 9))) for share in shares}))
