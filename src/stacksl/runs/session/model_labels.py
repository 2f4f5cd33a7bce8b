"""Labels of a run from a model on a server: what they cost, and the consent to send texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stacksl.errors import SettingsError
from stacksl.labelers.chat.calls import CALLS, Calls
from stacksl.labelers.chat.endpoint import KEY, Endpoint, address, is_loopback
from stacksl.labelers.chat.labeler import ChatLabeler, Questions, Rates
from stacksl.labelers.chat.prompts import DEFAULT, template_of, ways
from stacksl.report.wording import MICRO, money
from stacksl.runs.settings.budget import micro_units
from stacksl.runs.settings.conflicts import OPENAI
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved
from stacksl.runs.spec import RunSpec
from stacksl.types import Item

TEMPLATE = "label_template_text"  # keys of `resolved.toml`
CONSENT = "label_consent"
NO_AUDIT = (
    "the labels are a model's: no audit by people measures them or what is learnt from them; --test"
    " FILE with people's answers would"
)
CALLS_A_LABEL = 2  # that its price is reserved for: one may be lost


def asks_model(settings: Settings) -> bool:
    """Whether a model on a server answers."""
    return settings.labeler.partition(":")[0] == OPENAI


def with_model_labels(resolved: Resolved, items: Sequence[Item]) -> Resolved:
    """The settings of a run whose labels come from a model; others are unchanged.

    Such a run has no audit: its answers would measure agreement with the model alone. Where tokens
    have prices, the price of a label is what two of the dearest calls cost, unless it was given.

    Raises:
        SettingsError: the template cannot be used, or a label may cost more than its price.
    """
    settings = resolved.settings
    if not asks_model(settings):
        return resolved
    layer: dict[str, Any] = {"audit": 0}
    asked = questions(settings)
    dearest = max((asked.dearest(item.prompt, item.candidates) for item in items), default=0)
    if settings.input_price is not None:
        layer["price"] = f"{Decimal(CALLS_A_LABEL * dearest) / MICRO:f}"
        if settings.price is not None and micro_units(settings.price) < dearest:
            raise SettingsError(
                f"one call about the longest item may cost {money(dearest)}, above the price of a"
                f" label of {settings.price}: give a --price of at least {money(dearest)}"
            )
    return resolved.with_defaults(layer, "labeler")


def questions(settings: Settings, template: str | None = None) -> Questions:
    """How the model is asked; `template` goes before the file that the settings name.

    Raises:
        SettingsError: the template cannot be read or used.
    """
    text = template
    if text is None:
        text = DEFAULT if settings.label_template is None else _read(Path(settings.label_template))
    rates = Rates(Decimal(settings.input_price or 0), Decimal(settings.output_price or 0))
    model = settings.labeler.partition(":")[2]
    return Questions(model, template_of(text), settings.seed, rates)


def example_request(settings: Settings, item: Item) -> dict[str, Any]:
    """What would be sent about an item: the address and the body."""
    asked = questions(settings)
    _, shown = asked.shown(item.prompt, item.candidates)
    return {
        "url": address(str(settings.url)),
        "body": asked.body(item.prompt, shown, ways(shown)[0]),
    }


def expect_consent(spec: RunSpec) -> None:
    """Check that a new run may send texts, where its labels come from a model.

    Raises:
        SettingsError: it may not; the sentence names what would be sent where.
    """
    if not asks_model(spec.settings):
        return
    given = spec.settings.allow_send and spec.resolved.origin.get("allow_send") == "flag"
    if not given:
        count = len(spec.dataset.items) - len(spec.sources.aside)
        raise SettingsError(
            f"this run would send {consent(spec.settings)}, of up to {spec.budget.labels} of"
            f" {count} items: give --allow-send to let it (a config file cannot), or --dry-run to"
            " see one request"
        )


def consent(settings: Settings) -> str:
    """What is sent where: the fields, the model and the host."""
    model, url = settings.labeler.partition(":")[2], address(str(settings.url))
    plain = urlsplit(url).scheme == "http" and not is_loopback(url)
    return f"prompts and options to the model '{model}' at {url}{' (unencrypted)' * plain}"


def chat_labeler(spec: RunSpec) -> ChatLabeler:
    """The labeler of a run whose labels come from a model; records consent and template first.

    Raises:
        SettingsError: the consent was for another host, model or field; or the key is unusable.
    """
    settings, recorded = spec.settings, spec.folder.resolved()
    agreed = recorded.get(CONSENT)
    if agreed is None:
        expect_consent(spec)
    elif agreed != consent(settings):
        raise SettingsError(
            f"this run would send {consent(settings)}, but what was allowed is to send {agreed}:"
            " start a new run with --allow-send"
        )
    asked = questions(settings, recorded.get(TEMPLATE))
    spec.note({CONSENT: consent(settings), TEMPLATE: asked.template})
    key = os.environ.get(KEY)
    endpoint = Endpoint(str(settings.url), key, settings.timeout)
    calls = Calls(spec.folder.path / CALLS, key)
    labeler = ChatLabeler(endpoint, asked, calls, settings.concurrency)
    labeler.warnings.append(NO_AUDIT)
    return labeler


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        raise SettingsError(
            f"the label_template {path} should be a text in UTF-8, got"
            f" {getattr(fault, 'strerror', None) or 'other bytes'}: name another file"
        ) from None
