"""Memory, disk and time that a run with a language model needs, before it is started."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm.distributed import blocks
from stacksl.lm.loading import Base, open_base
from stacksl.lm.memory import FLOAT, Needs, estimate, row_tokens
from stacksl.lm.prompt.format import PromptFormat
from stacksl.lm.prompt.tokens import Limits, TokenItem, Tokenizing
from stacksl.lm.quantised import QUANTISED, computed_in, not_quantised, quantisation
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.objectives import Example
from stacksl.lm.worker import Worker
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
    """

    weights: int
    features: int
    adapters: int

    @property
    def run(self) -> int:
        """What the run's own folder takes."""
        return self.features + self.adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Needs):
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
    """The size of a run over `items`; no weights are read unless it is timed.

    Args:
        choices: the model, how it is asked and trained.
        items: what is to be scored, one at least.
        due: the labels that each refit trains on; the last is the budget.
        seconds: how long scoring and training may be tried out; None leaves the times out.

    Raises:
        SettingsError: there is no such model, device or dtype, or no items.
        DataError: an item cannot be made into tokens.
        MissingExtra: torch, transformers or peft is not installed.
    """
    size, rows, _ = _planned(choices, items, due)
    return size if seconds is None else _timed(size, rows, choices, due, seconds)


def expect_fit(choices: ModelChoices, items: Sequence[Item], due: Sequence[int], free: int) -> None:
    """Refuse a run over `items` that would fill the memory.

    On a GPU it is a warning: no memory left there ends in a sentence, not in a machine that stands
    still.

    Args:
        choices, items, due: as `forecast` takes them.
        free: bytes that are free on the device, before any weight was read.

    Raises:
        SettingsError, DataError, MissingExtra: as `forecast`; the run needs more than 90 % of the
            free memory of the CPU; or the base is to be quantised, and cannot be.
    """
    size, _, base = _planned(choices, items, due)
    if base.dtype in QUANTISED:
        not_quantised(base.name, base.config, base.dtype)
        quantisation(base.dtype, computed_in(base.dtype, base.device))
    if size.memory <= SHARE * free:
        return
    sentence = (
        f"this run needs about {_gigabytes(size.memory)} of memory, more than 90 % of the"
        f" {_gigabytes(free)} that are free: {_advice(size, SHARE * free)}"
    )
    if base.device == "cpu":
        raise SettingsError(sentence)
    warnings.warn(f"on {base.device} {sentence}", stacklevel=2)


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


def _planned(
    choices: ModelChoices, items: Sequence[Item], due: Sequence[int]
) -> tuple[Size, list[TokenItem], Base]:
    """The size of a run without times, the token rows of its items, and its model."""
    if not items:
        raise SettingsError("the size of a run is computed from its items, got none: give a file")
    base = open_base(choices.model, device=choices.device, dtype=choices.dtype)
    form = copied(PromptFormat, choices, chat=base.tokenizer if choices.chat else None)
    limits = Limits(choices.max_len_prompt, choices.max_len_choice, base.positions)
    tokenizing = Tokenizing(base.tokenizer, limits)
    rows = tokenizing.items([form.render(item) for item in items])
    premise = 0
    if choices.normalisation in ("pmi", "auto"):
        if choices.normalisation == "auto":  # the longest premise that it may choose
            form = replace(form, pmi_context="last_line")
        longest = max(range(len(rows)), key=lambda n: row_tokens(rows[n]))
        premise = len(tokenizing.items([form.render_alone(items[longest])])[0].prompt)
    settled = replace(choices, device=base.device, dtype=base.dtype)
    needs = estimate(base.config, rows, settled, premise)
    return _size(base.config, rows, settled, due, needs), rows, base


def _size(
    config: Any,
    rows: Sequence[TokenItem],
    choices: ModelChoices,
    due: Sequence[int],
    needs: Needs,
) -> Size:
    torch, text = load_torch(), config.get_text_config()
    kept = getattr(config, "dtype", None) or torch.float32
    kept = getattr(torch, kept) if isinstance(kept, str) else kept
    dim = min(choices.state_dim, int(text.hidden_size))
    options = sum(len(item.options) for item in rows)
    return copied(
        Size,
        needs,
        items=len(rows),
        labels=due[-1],
        tokens=sum(map(row_tokens, rows)),
        longest=max(map(row_tokens, rows)),
        dtype=choices.dtype,
        batch_tokens=choices.batch_tokens,
        checkpointing=choices.training.checkpointing,
        disk=Disk(
            weights=needs.parameters * kept.itemsize,
            features=len(due) * options * (FLOAT * dim + 8),
            adapters=(1 + len(due)) * FLOAT * needs.moving,
        ),
    )


def _advice(size: Size, room: float) -> str:
    fixed = replace(size.training, activations=0, logits=0).total
    if fixed > room:
        what = f"the weights and what moves take {_gigabytes(fixed)} by themselves"
        half = "dtype bfloat16 or " if size.dtype == "float32" else ""
        return f"{what}, so take {half}a smaller model"
    smaller = max(_NARROWED, size.batch_tokens // 4)
    ways = []
    if smaller < size.batch_tokens:
        ways.append(f"lower batch_tokens from {size.batch_tokens} to {smaller}")
    if not size.checkpointing:
        ways.append("turn checkpointing on")
    return " and ".join(ways or ["set max_len_prompt, or take a smaller model"])


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e7 else f"{count / 1e6:.3g} MB"


def _timed(
    size: Size, rows: Sequence[TokenItem], choices: ModelChoices, due: Sequence[int], seconds: float
) -> Size:
    """The size with the times that a few batches of the run took."""
    worker = Worker()
    worker.open(choices, 0)
    ordered = sorted(rows, key=row_tokens)
    worker.states(ordered[:1])  # reads the weights, is checked against the naive pass, warms up
    begun = monotonic()
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
    settings = replace(choices.training, epochs=1)
    found: list[float] = []
    while True:
        begun = monotonic()
        found.append(worker.train([_example(i) for i in group], settings, 0, 0).seconds)
        if monotonic() + 1.5 * (monotonic() - begun) > end:
            return min(found) / sum(map(row_tokens, group))


def _example(item: TokenItem) -> Example:
    count = len(item.options)
    alone = replace(item, prompt=item.prompt[:1], spans=None)
    return Example(item, alone, 0, tuple(range(count)), (0.0,) * count)
