"""The base model without training: no labels bought, labeled examples in the prompt."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.data import Dataset
from stacksl.types import Item
from stacksl_lab.language.cells import Result

if TYPE_CHECKING:
    from stacksl.lm.loading import Base
    from stacksl.lm.prompt.format import Prompt, PromptFormat
    from stacksl.lm.prompt.tokens import TokenItem
    from stacksl.lm.scoring.likelihood import Likelihood


_DEFAULT_NORMALIZATION = "token_mean"


def evaluate_base(
    test: Dataset, examples: Sequence[tuple[Item, int]], settings: Mapping[str, Any]
) -> Result:
    """Accuracy and macro-F1 of the base model on `test`, with `examples` before every question.

    Examples precede it, each with its answer, with an empty line between two of them. Where
    any prompt exceeds what the model reads at once, there is no number but a reason.

    Raises:
        SettingsError, MissingExtra, DataError: the model cannot be had, or an item not be put.
    """
    from stacksl.lm.prompt.tokens import Limits, Tokenizing
    from stacksl.models.metrics import macro_f1

    start = time.monotonic()
    base, likelihood = _model(
        str(settings["model"]), str(settings.get("device", "auto")),
        str(settings.get("dtype", "auto")),
        int(settings.get("batch_tokens", 4096)),
    )  # fmt: skip
    put = _format(settings)
    limit = None if examples else settings.get("max_len_prompt")
    limits = Limits(limit, settings.get("max_len_choice"), base.positions)
    tokenizing = Tokenizing(base.tokenizer, limits)
    rows = tokenizing.items([with_examples(put, item, examples) for item in test.items])
    long = sum(row.cut > 0 for row in rows)
    if examples and long:
        return Result(
            reason=f"{len(examples)}-shot prompts do not fit: {long} of {len(rows)} exceed the"
            f" {base.positions} tokens that the model reads"
        )
    alone = None
    if settings.get("normalization") == "pmi":
        alone = tokenizing.items([put.render_alone(item) for item in test.items])
    predicted = _predicted(
        likelihood, rows, alone, str(settings.get("normalization", _DEFAULT_NORMALIZATION))
    )
    gold = [test.answers[item.id] for item in test.items]
    right = sum(a == b for a, b in zip(gold, predicted, strict=True))
    return Result(
        accuracy=right / len(gold),
        macro_f1=macro_f1(gold, predicted),
        n=len(gold),
        seconds=time.monotonic() - start,
    )


def with_examples(put: PromptFormat, item: Item, examples: Sequence[tuple[Item, int]]) -> Prompt:
    """The prompt of `item` behind the `examples`, each put as `item` is and answered."""
    shown = [put.render(example) for example, _ in examples]
    solved = [
        prompt.text + prompt.continuations[gold]
        for prompt, (_, gold) in zip(shown, examples, strict=True)
    ]
    prompt = put.render(item)
    return replace(prompt, text="\n\n".join([*solved, prompt.text]))


def _format(settings: Mapping[str, Any]) -> PromptFormat:
    from stacksl.lm.prompt.format import PromptFormat, template

    protocol = settings.get("protocol", "option")
    context = settings.get("pmi_context", "template")
    return PromptFormat(template(settings.get("template"), protocol), protocol, None, context)


@lru_cache(maxsize=1)
def _model(name: str, device: str, dtype: str, batch_tokens: int) -> tuple[Base, Likelihood]:
    """One model a process: the base rows of a table follow each other."""
    from stacksl.lm.loading import open_base
    from stacksl.lm.scoring.likelihood import Likelihood

    base = open_base(name, device=device, dtype=dtype)
    return base, Likelihood(base.model, batch_tokens=batch_tokens)


def _predicted(
    likelihood: Likelihood, rows: Sequence[TokenItem], alone: Sequence[TokenItem] | None, kind: Any
) -> list[int]:
    """The option of the highest score for each row; of equals the first."""
    from stacksl.lm.scoring.normalize import normalized
    from stacksl.lm.scoring.paths import load_torch

    with load_torch().no_grad():
        premise_sums = None if alone is None else likelihood.sums(alone)
        scores = normalized(likelihood.sums(rows), rows, kind, alone=premise_sums)
    return [int(row.argmax()) for row in scores]
