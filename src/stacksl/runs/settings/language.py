"""From the settings of a run to those of its language model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm import LoraSettings, ModelChoices, TrainSettings
from stacksl.lm.prompt.format import template
from stacksl.runs.settings.fields import Settings


def choices_of(settings: Settings, recorded: Mapping[str, Any]) -> ModelChoices:
    """What `settings` say of a language model; what a run `recorded` of itself goes before it.

    Raises:
        SettingsError: a template or a value that there is not.
    """
    text, path = recorded.get("lm_template"), str(recorded.get("lm_path", settings.path))
    return ModelChoices(
        model=settings.model or "sample",
        adapt=settings.adapt or "lora",
        protocol=settings.protocol,
        template=template(settings.template, settings.protocol) if text is None else str(text),
        chat=settings.chat,
        system=settings.system,
        chat_arguments=chat_arguments(settings.chat_arguments),
        pmi_context=settings.pmi_context,
        normalisation=settings.normalisation,
        temperature=settings.temperature,
        max_len_prompt=settings.max_len_prompt,
        max_len_choice=settings.max_len_choice,
        device=settings.device,
        dtype=str(recorded.get("lm_dtype", settings.dtype)),
        path=path,
        batch_tokens=settings.batch_tokens,
        state_dim=settings.state_dim,
        lora=_lora(settings),
        threads=recorded.get("lm_threads"),
        training=_training(settings),
    )


def chat_arguments(text: str | None) -> dict[str, Any]:
    """What a chat template takes besides the turns, from NAME=VALUE with commas between.

    Raises:
        SettingsError: a part without a name or a value.

    >>> chat_arguments("enable_thinking=false, style=short")
    {'enable_thinking': False, 'style': 'short'}
    """
    found: dict[str, Any] = {}
    for part in (text or "").split(",") if text else []:
        name, sign, value = (each.strip() for each in part.partition("="))
        if not (name.isidentifier() and sign and value):
            raise SettingsError(
                "chat_arguments should be NAME=VALUE with commas between, such as"
                f" enable_thinking=false, got '{text}'"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _lora(settings: Settings) -> LoraSettings:
    names = [name.strip() for name in (settings.lora_targets or "").split(",")]
    return LoraSettings(
        rank=settings.lora_rank,
        alpha=settings.lora_alpha,
        dropout=settings.lora_dropout,
        targets=tuple(name for name in names if name) or None,
    )


def _training(settings: Settings) -> TrainSettings:
    return TrainSettings(
        objective=settings.objective,
        reference=settings.reference,
        ema_decay=settings.ema_decay,
        kl_weight=settings.kl_weight,
        kl_target=settings.kl_target,
        clip=settings.clip,
        clip_level=settings.clip_level,
        clip_multiple=settings.clip_multiple,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_share=settings.warmup_share,
        weight_decay=settings.weight_decay,
        checkpointing=settings.checkpointing,
        save_every=settings.training_checkpoint_every,
    )
