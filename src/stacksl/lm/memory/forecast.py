"""What a run on these items will need here: its size, and its time after a short calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from stacksl.lm.distributed import blocks
from stacksl.lm.loading import _dtype, _place, _positions, _source
from stacksl.lm.memory.footprint import row_tokens
from stacksl.lm.memory.size import Size, plan
from stacksl.lm.prompt.format import PromptFormat
from stacksl.lm.prompt.tokens import Limits, TokenItem, Tokenizing
from stacksl.lm.reading import load_transformers, read_config, read_tokenizer
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.refit import Example
from stacksl.lm.worker import BLOCK, Stage
from stacksl.types import Item

__all__ = ["CALIBRATION", "forecast"]

CALIBRATION = 10.0  # seconds, at most, that a calibration may take
_SCORING = 0.4  # of it, at most, for scoring
_BACKWARD = 4.0  # passes forward that a token of training costs at most, before it was timed


def forecast(
    choices: ModelChoices, items: Sequence[Item], due: Sequence[int], seconds: float | None = None
) -> Size:
    """The size of a run over `items`; no weights are loaded unless it is timed.

    Args:
        choices: the model, how it is asked and trained.
        items: what is to be scored.
        due: the labels that each refit trains on; the last is the budget.
        seconds: how long scoring and training may be tried out; None leaves the times out.

    Raises:
        SettingsError: there is no such model, device or dtype, or no items.
        DataError: an item cannot be made into tokens.
        MissingExtra: torch, transformers or peft is not installed.
    """
    torch = load_torch()
    load_transformers()
    place = _place(torch, choices.device)
    settled = replace(choices, device=place, dtype=_dtype(torch, place, choices.dtype))
    source = _source(choices.model)
    config = read_config(choices.model, source)
    tokenizer = read_tokenizer(choices.model, source)
    form = PromptFormat(choices.template, choices.protocol, tokenizer if choices.chat else None)
    limits = Limits(choices.max_len_prompt, choices.max_len_choice, _positions(config))
    rows = Tokenizing(tokenizer, limits).items([form.render(item) for item in items])
    size = plan(config, rows, settled, due)
    return size if seconds is None else _timed(size, rows, settled, due, seconds)


def _timed(
    size: Size, rows: Sequence[TokenItem], choices: ModelChoices, due: Sequence[int], seconds: float
) -> Size:
    """The size with the times that a few batches of the run took."""
    stage = Stage()
    stage.open(choices, 0)
    ordered = sorted(rows, key=row_tokens)
    begun = monotonic()
    stage.states(ordered[:1])  # the first pass is held against the naive one, and warms up
    end = begun + _SCORING * seconds
    per_token = _scoring_pace(stage, ordered, end)
    scoring = per_token * size.tokens
    pace = _training_pace(stage, ordered, choices, per_token, begun + seconds)
    tokens = sum(map(row_tokens, rows)) / len(rows)
    training = pace * tokens * choices.training.epochs * sum(due)
    return replace(size, scoring_seconds=scoring, training_seconds=training)


def _scoring_pace(stage: Stage, ordered: Sequence[TokenItem], end: float) -> float:
    """Seconds a token of scoring: over blocks of all lengths, as many as there is time for.

    A pass has a cost of its own, so a lone item says too much of a block: what is timed doubles.
    """
    pace = _seconds(stage, ordered[:1])
    size = 2
    while size < BLOCK and _fits(ordered[:size], pace, end):
        pace = _seconds(stage, ordered[:size])
        size *= 2
    pieces = blocks(len(ordered), BLOCK)
    spread = sorted(range(len(pieces)), key=lambda number: (number * 7) % len(pieces))
    spent, tokens = 0.0, 0
    for number in spread:
        block = [ordered[i] for i in pieces[number]]
        if _fits(block, pace, end):
            cost = sum(map(row_tokens, block))
            spent += cost * _seconds(stage, block)
            tokens += cost
            pace = spent / tokens
    return pace


def _fits(block: Sequence[TokenItem], pace: float, end: float) -> bool:
    return monotonic() + pace * sum(map(row_tokens, block)) <= end


def _seconds(stage: Stage, block: Sequence[TokenItem]) -> float:
    """Seconds a token of one block."""
    begun = monotonic()
    stage.states(block)
    return (monotonic() - begun) / sum(map(row_tokens, block))


def _training_pace(
    stage: Stage,
    ordered: Sequence[TokenItem],
    choices: ModelChoices,
    per_token: float,
    end: float,
) -> float:
    """Seconds a token of training, the optimiser included: steps on items of middling length."""
    size = choices.training.batch_size
    middle = max(0, (len(ordered) - size) // 2)
    several = ordered[middle : middle + size]
    room = (end - monotonic()) / (_BACKWARD * per_token)
    group = several if sum(map(row_tokens, several)) <= room else ordered[:1]
    settings = replace(choices.training, epochs=1, save_every=0)
    found: list[float] = []
    while True:
        begun = monotonic()
        found.append(stage.train([_example(i) for i in group], settings, 0, 0, None).seconds)
        if monotonic() + 1.5 * (monotonic() - begun) > end:
            return min(found) / sum(map(row_tokens, group))


def _example(item: TokenItem) -> Example:
    count = len(item.options)
    alone = replace(item, prompt=item.prompt[:1], spans=None)
    return Example(item, alone, 0, tuple(range(count)), (0.0,) * count)
