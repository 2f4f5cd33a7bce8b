"""What a run with a language model needs, before it has loaded one weight: memory, disk, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm.memory.footprint import Memory, memories, row_tokens, way
from stacksl.lm.memory.meta import empty_model
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices

__all__ = ["Disk", "Memory", "Size", "free_bytes", "plan", "require_room"]

SHARE = 0.9  # of the free memory, at most, that a run may plan for
_FLOAT = 4  # bytes of what moves, whatever the base computes in
_NARROWED = 512  # tokens of a pass, the fewest that a message suggests


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes of files.

    Attributes:
        weights: of the base model, in the dtype that its configuration names.
        features: of every epoch.
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


@dataclass(frozen=True, slots=True)
class Size:
    """What a run needs.

    Attributes:
        parameters: of the base model.
        moving: of those and of the adapter's, how many are trained.
        items: to score.
        labels: to train on in the last refit.
        tokens: of one pass over the items.
        longest: tokens of the longest row.
        path: how options are scored.
        dtype: what the base computes in.
        batch_tokens, checkpointing: as chosen.
        scoring, training: the memory of either.
        disk: the files.
        scoring_seconds: of one pass over the items; None where nothing was timed.
        training_seconds: of all refits together; None where nothing was timed.
    """

    parameters: int
    moving: int
    items: int
    labels: int
    tokens: int
    longest: int
    path: str
    dtype: str
    batch_tokens: int
    checkpointing: bool
    scoring: Memory
    training: Memory
    disk: Disk
    scoring_seconds: float | None = None
    training_seconds: float | None = None

    @property
    def memory(self) -> int:
        """Bytes at the fullest moment of the run."""
        return max(self.scoring.total, self.training.total)


def plan(
    config: Any,
    items: Sequence[TokenItem],
    choices: ModelChoices,
    due: Sequence[int],
) -> Size:
    """The size of a run, from the model's configuration and the lengths of token rows.

    The largest batch that scoring will meet and the largest that a training step can meet are run
    through the model without weights or contents (`phantom`), and the bytes alive are counted.

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
        raise SettingsError("the size of a run comes from its items, and none came: give a file")
    dtype = "float32" if choices.dtype == "auto" else choices.dtype
    lora = choices.lora if choices.adapt == "lora" else None
    model = empty_model(config, dtype, lora)
    size = Size(
        parameters=sum(p.numel() for n, p in model.named_parameters() if "lora_" not in n),
        moving=sum(p.numel() for p in model.parameters() if p.requires_grad),
        items=len(items),
        labels=due[-1],
        tokens=sum(map(row_tokens, items)),
        longest=max(map(row_tokens, items)),
        path=way(model, choices.path),
        dtype=dtype,
        batch_tokens=choices.batch_tokens,
        checkpointing=choices.training.checkpointing,
        scoring=Memory(0),
        training=Memory(0),
        disk=Disk(0, 0, 0, 0),
    )
    scoring, training = memories(model, config, items, choices)
    disk = _disk(config, items, choices, size, len(due))
    return replace(size, scoring=scoring, training=training, disk=disk)


def free_bytes() -> int:
    """Memory that this process could still take, within the limit set on its group if any."""
    psutil = import_module("psutil")  # comes with accelerate
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
    if size.memory <= SHARE * free:
        return
    raise SettingsError(
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
    config: Any, items: Sequence[TokenItem], choices: ModelChoices, size: Size, refits: int
) -> Disk:
    torch, text = load_torch(), config.get_text_config()
    kept = getattr(config, "dtype", None) or torch.float32
    kept = getattr(torch, kept) if isinstance(kept, str) else kept
    dim = min(choices.state_dim, int(text.hidden_size))
    options = sum(len(item.options) for item in items)
    moved = _FLOAT * size.moving
    return Disk(
        weights=size.parameters * kept.itemsize,
        features=(1 + refits) * options * (_FLOAT * dim + 8),
        adapters=(1 + refits) * moved,
        checkpoint=3 * moved if choices.training.save_every else 0,
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e7 else f"{count / 1e6:.3g} MB"
