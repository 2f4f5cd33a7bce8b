"""Log-likelihoods of options to scores s, and scores to what a softmax takes, s / temperature.

Which option wins depends on how its length is paid for; no rule is best everywhere, so an
evaluation shows all four. Raw `token_mean` scores lie close together and sums far apart: their
softmax says something only at a temperature of their own (`temperature`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from stacksl.errors import SettingsError, unknown_name
from stacksl.lm.prompt.tokens import TokenItem

Tensor: TypeAlias = Any
Normalisation: TypeAlias = Literal["token_mean", "sum", "char_mean", "pmi"]

NORMALISATIONS: dict[Normalisation, str] = {
    "token_mean": "log p(option | prompt) / tokens: the paper's",
    "sum": "log p(option | prompt): lm-eval's acc",
    "char_mean": "log p(option | prompt) / characters: lm-eval's acc_norm",
    "pmi": "log p(option | prompt) - log p(option): lm-eval's acc_mutual_info",
}


def normalised(
    sums: Sequence[Tensor],
    items: Sequence[TokenItem],
    kind: Normalisation = "token_mean",
    *,
    alone: Sequence[Tensor] | None = None,
    temperature: float = 1.0,
) -> list[Tensor]:
    """Scores of every option, s / temperature: a tensor (k,) an item; gradients pass through.

    Args:
        sums: log p(option | prompt), a tensor (k,) an item.
        items: their token rows; an option that was cut counts the tokens it kept.
        kind: `token_mean`, `sum`, `char_mean` (characters of the candidate as written, without the
            delimiter) or `pmi`.
        alone: log p(option) of the same options, for `pmi` alone.
        temperature: what the scores are divided by, above 0.

    Raises:
        SettingsError: no normalisation of that name, a temperature that is not above 0, or `pmi`
            without `alone`.

    Source: the paper's experiments, "length-normalized per-choice score" (token mean); Holtzman et
        al. (2021), "Surface Form Competition" (pmi).
    """
    check_scale(kind, temperature)
    if kind == "pmi":
        if alone is None:
            raise SettingsError("pmi needs the log-likelihoods of the options alone: give `alone`")
        pairs = zip(sums, alone, strict=True)
        return [(value - own.to(value.device)) / temperature for value, own in pairs]
    lengths = [divisors(item, kind) for item in items]
    return [
        value / (value.new_tensor(each) * temperature)
        for value, each in zip(sums, lengths, strict=True)
    ]


def check_scale(kind: str, temperature: float) -> None:
    """Refuse a normalisation or a temperature that there is not.

    Raises:
        SettingsError: see `normalised`.
    """
    if kind not in NORMALISATIONS:
        raise unknown_name("normalisation", kind, NORMALISATIONS)
    if not (temperature > 0 and math.isfinite(temperature)):
        raise SettingsError(f"temperature must be a finite number > 0, got {temperature}")


def divisors(item: TokenItem, kind: Normalisation) -> list[float]:
    """What the log-likelihood of each option is divided by; 1 for `sum` and `pmi`."""
    if kind == "token_mean":
        return [float(len(option)) for option in item.options]
    if kind == "char_mean":
        return [float(length) for length in item.lengths]
    return [1.0] * len(item.options)
