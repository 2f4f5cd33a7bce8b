"""From the settings of a run to those of its language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
