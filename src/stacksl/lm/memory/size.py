"""Memory, disk and time that a run with a language model needs, without loading its weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

from stacksl.errors import SettingsError, StackslError
from stacksl.lm.distributed import blocks
from stacksl.lm.loading import _dtype, _positions, place_of, source_of
from stacksl.lm.memory.meta import FLOAT, Counted, _meta_models, bound, count, row_tokens
from stacksl.lm.prompt.format import PromptFormat
from stacksl.lm.prompt.tokens import Limits, TokenItem, Tokenizing
from stacksl.lm.quantised import QUANTISED, computed_in, not_quantised, quantisation
from stacksl.lm.reading import first_line, load_transformers, read_config, read_tokenizer
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.sharded import card_bytes
from stacksl.lm.training.objectives import Example
from stacksl.lm.worker import BLOCK, Worker
from stacksl.types import Item, copied

SHARE = 0.9  # of the free memory, at most, that a run may plan for
CALIBRATION = 10.0  # seconds, at most, that a calibration may take
_SCORING = 0.4  # of it, at most, for scoring
_BACKWARD = 4.0  # passes forward that a token of training costs at most, before it was timed
_NARROWED = 512  # tokens of a pass, the fewest that a message suggests


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes of files.

    Attributes:
        weights: of the base model, in the dtype that its configuration names.
        features: of every epoch; none begins after the last refit.
        adapters: one a refit, and the final model.
        checkpoint: of the training that is going on.
    """

    weights: int
    features: int
    adapters: int
    checkpoint: int

    @property
    def run(self) -> int:
        """What the run's own folder takes."""
        return self.features + self.adapters + self.checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Counted):
    """What a run needs.

    Attributes:
        items: to score.
        labels: to train on in the last refit.
        tokens: of one pass over the items.
        longest: tokens of the longest row.
        dtype: what the base computes in.
        batch_tokens, checkpointing: as chosen.
        disk: the files.
        scoring_seconds: of one pass over the items; None where nothing was timed.
        training_seconds: of all refits together; None where nothing was timed.
    """

    items: int
    labels: int
    tokens: int
    longest: int
    dtype: str
    batch_tokens: int
    checkpointing: bool
    disk: Disk
    scoring_seconds: float | None = None
    training_seconds: float | None = None

    @property
    def memory(self) -> int:
        """Bytes at the fullest moment of the run."""
        return max(self.scoring.total, self.training.total)


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
    config, rows, settled = _prepared(choices, items)
    try:
        size = plan(config, rows, settled, due)
    except StackslError:
        raise
    except Exception as error:
        raise SettingsError(
            f"the memory of model '{choices.model}' cannot be estimated ({type(error).__name__}: "
            f"{first_line(error)}): a run is not stopped by that, so begin with a small budget"
        ) from error
    return size if seconds is None else _timed(size, rows, settled, due, seconds)


def expect_fit(
    choices: ModelChoices, items: Sequence[Item], due: Sequence[int], free: int, processes: int = 1
) -> None:
    """Refuse a run over `items` that would fill the memory; nothing is counted where it is ample.

    On a GPU it is a warning: passes are counted as a CPU makes them, and no memory left there ends
    in a sentence, not in a machine that stands still.

    Args:
        choices, items, due: as `forecast` takes them.
        free: bytes that are free on the device, before any weight was loaded.
        processes: that divide the base among their GPUs, where `choices.shard` says so.

    Raises:
        SettingsError, DataError, MissingExtra: as `forecast` and `require_room`; or the base is to
            be quantised, and cannot be.
    """
    config, rows, settled = _prepared(choices, items)
    if settled.dtype in QUANTISED:
        not_quantised(choices.model, config, settled.dtype)
        quantisation(settled.dtype, computed_in(settled.dtype, settled.device))
    try:
        if not rows or bound(config, rows, settled) > SHARE * free:
            size = plan(config, rows, settled, due)
            if settled.device == "cpu":
                require_room(size, free)
                return
            if choices.shard and processes > 1:
                size = divided(size, config, settled, processes)
            if size.memory > SHARE * free:
                warnings.warn(f"on {settled.device} {_too_large(size, free)}", stacklevel=2)
    except StackslError:
        raise
    except Exception as error:  # an operation of the model that has no shape without contents
        warnings.warn(
            f"the memory of this run was not estimated ({type(error).__name__}: "
            f"{first_line(error)}): watch it, and lower batch_tokens if it grows",
            stacklevel=2,
        )


def _prepared(
    choices: ModelChoices, items: Sequence[Item]
) -> tuple[Any, list[TokenItem], ModelChoices]:
    """The model's configuration, the token rows of `items`, and the device and dtype chosen."""
    torch = load_torch()
    load_transformers()
    place = place_of(choices.device)
    settled = replace(choices, device=place, dtype=_dtype(torch, place, choices.dtype))
    source = source_of(choices.model)
    config = read_config(choices.model, source)
    tokenizer = read_tokenizer(choices.model, source)
    form = copied(PromptFormat, choices, chat=tokenizer if choices.chat else None)
    limits = Limits(choices.max_len_prompt, choices.max_len_choice, _positions(config))
    return config, Tokenizing(tokenizer, limits).items(list(map(form.render, items))), settled


def plan(
    config: Any,
    items: Sequence[TokenItem],
    choices: ModelChoices,
    due: Sequence[int],
) -> Size:
    """The size of a run, from the model's configuration and the lengths of token rows.

    Args:
        config: the model's configuration, of transformers.
        items: the token rows of everything that is to be scored; at least one.
        choices: the rest; `dtype` `auto` counts as float32.
        due: the labels that each refit trains on; the last is the budget.

    Raises:
        SettingsError: no items, a LoRA target that the model lacks, or a path that does not fit.
        MissingExtra: torch, transformers or peft is not installed.
    """
    if not items:
        raise SettingsError("the size of a run is computed from its items, got none: give a file")
    dtype = "float32" if choices.dtype == "auto" else choices.dtype
    counted = count(config, items, replace(choices, dtype=dtype))
    return copied(
        Size,
        counted,
        items=len(items),
        labels=due[-1],
        tokens=sum(map(row_tokens, items)),
        longest=max(map(row_tokens, items)),
        dtype=dtype,
        batch_tokens=choices.batch_tokens,
        checkpointing=choices.training.checkpointing,
        disk=_disk(config, items, choices, counted, len(due)),
    )


def divided(size: Size, config: Any, choices: ModelChoices, processes: int) -> Size:
    """The size on each of so many devices that divide the base; see `sharded`."""
    weights = card_bytes(_meta_models(config, choices)[0].model, processes)
    scoring, training = (
        replace(each, weights=min(each.weights, weights)) for each in (size.scoring, size.training)
    )
    return replace(size, scoring=scoring, training=training)


def free_bytes(device: str = "cpu") -> int:
    """Memory that this process could still take.

    Args:
        device: `cpu`, where the limit set on the process's group counts too, or `cuda:N`.
    """
    if device.startswith("cuda"):
        return int(load_torch().cuda.mem_get_info(device)[0])
    psutil = import_module("psutil")  # a dependency of accelerate
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = int(kept.get("inactive_file", 0))  # of files read: given back when asked for
        return min(free, most - used + cached)
    except (OSError, ValueError):  # no such file, or "max"
        return free


def require_room(size: Size, free: int) -> None:
    """Refuse a run that would fill the memory.

    Args:
        size: the run's.
        free: bytes that are free, before any weight was loaded.

    Raises:
        SettingsError: the run needs more than 90 % of them.
    """
    if size.memory > SHARE * free:
        raise SettingsError(_too_large(size, free))


def _too_large(size: Size, free: int) -> str:
    return (
        f"this run needs about {_gigabytes(size.memory)} of memory, more than 90 % of the "
        f"{_gigabytes(free)} that are free: {_advice(size, SHARE * free)}"
    )


def _advice(size: Size, room: float) -> str:
    fixed = replace(size.training, activations=0, logits=0, copies=0).total
    if fixed > room:
        what = f"the weights and what moves take {_gigabytes(fixed)} by themselves"
        ways = [
            *(["adapt 'lora'"] if size.moving == size.parameters else []),
            *(["dtype bfloat16"] if size.dtype == "float32" else []),
            "a smaller model",
        ]
        return f"{what}, so take {' or '.join(ways)}"
    smaller = max(_NARROWED, size.batch_tokens // 4)
    ways = []
    if smaller < size.batch_tokens:
        ways.append(f"lower batch_tokens from {size.batch_tokens} to {smaller}")
    if not size.checkpointing:
        ways.append("turn checkpointing on")
    return " and ".join(ways or ["set max_len_prompt, or take a smaller model"])


def _disk(
    config: Any, items: Sequence[TokenItem], choices: ModelChoices, counted: Counted, refits: int
) -> Disk:
    torch, text = load_torch(), config.get_text_config()
    kept = getattr(config, "dtype", None) or torch.float32
    kept = getattr(torch, kept) if isinstance(kept, str) else kept
    dim = min(choices.state_dim, int(text.hidden_size))
    options = sum(len(item.options) for item in items)
    moved = FLOAT * counted.moving
    return Disk(
        weights=counted.parameters * kept.itemsize,
        features=refits * options * (FLOAT * dim + 8),
        adapters=(1 + refits) * moved,
        checkpoint=3 * moved if choices.training.save_every else 0,
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e7 else f"{count / 1e6:.3g} MB"


def _timed(
    size: Size, rows: Sequence[TokenItem], choices: ModelChoices, due: Sequence[int], seconds: float
) -> Size:
    """The size with the times that a few batches of the run took."""
    worker = Worker()
    worker.open(choices, 0)
    ordered = sorted(rows, key=row_tokens)
    begun = monotonic()
    worker.states(ordered[:1])  # the first pass is checked against the naive one, and warms up
    end = begun + _SCORING * seconds
    per_token = _scoring_pace(worker, ordered, end)
    scoring = per_token * size.tokens
    pace = _training_pace(worker, ordered, choices, per_token, begun + seconds)
    tokens = sum(map(row_tokens, rows)) / len(rows)
    training = pace * tokens * choices.training.epochs * sum(due)
    return replace(size, scoring_seconds=scoring, training_seconds=training)


def _scoring_pace(worker: Worker, ordered: Sequence[TokenItem], end: float) -> float:
    """Seconds a token of scoring: over blocks of all lengths, as many as there is time for.

    A pass has a cost of its own, so that of one item overstates a block: what is timed doubles.
    """
    pace = _seconds(worker, ordered[:1])
    size = 2
    while size < BLOCK and _fits(ordered[:size], pace, end):
        pace = _seconds(worker, ordered[:size])
        size *= 2
    pieces = blocks(len(ordered), BLOCK)
    spread = sorted(range(len(pieces)), key=lambda number: (number * 7) % len(pieces))
    spent, tokens = 0.0, 0
    for number in spread:
        block = [ordered[i] for i in pieces[number]]
        if _fits(block, pace, end):
            cost = sum(map(row_tokens, block))
            spent += cost * _seconds(worker, block)
            tokens += cost
            pace = spent / tokens
    return pace


def _fits(block: Sequence[TokenItem], pace: float, end: float) -> bool:
    return monotonic() + pace * sum(map(row_tokens, block)) <= end


def _seconds(worker: Worker, block: Sequence[TokenItem]) -> float:
    """Seconds a token of one block."""
    begun = monotonic()
    worker.states(block)
    return (monotonic() - begun) / sum(map(row_tokens, block))


def _training_pace(
    worker: Worker,
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
        found.append(worker.train([_example(i) for i in group], settings, 0, 0, None).seconds)
        if monotonic() + 1.5 * (monotonic() - begun) > end:
            return min(found) / sum(map(row_tokens, group))


def _example(item: TokenItem) -> Example:
    count = len(item.options)
    alone = replace(item, prompt=item.prompt[:1], spans=None)
    return Example(item, alone, 0, tuple(range(count)), (0.0,) * count)
