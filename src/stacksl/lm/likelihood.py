"""log p(option | prompt) by the fastest path that is right for the model at hand.

The path is chosen from the model's configuration and then checked: the first items are scored by
the naive path too, and where the two differ a slower path takes over, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

from ..errors import FeatureError, SettingsError, unknown_name
from .packing import Packing
from .paths import (
    Rows,
    Tensor,
    accepts,
    attention,
    checkpoints,
    kv,
    load_torch,
    naive,
    packed,
    padded,
)
from .tokens import TokenItem

__all__ = ["PATHS", "Likelihood", "Path", "unfit"]

Path: TypeAlias = Literal["packed", "kv", "padded", "naive"]
PATHS: tuple[Path, ...] = ("packed", "kv", "padded", "naive")
"""Every path, the fastest first."""

_CHECKED = 4  # items of the first batch that are scored both ways
_TOLERANCE = 1e-4  # nats a token, the largest difference, in float32 and float64
_HALF_TOLERANCE = 2e-2  # nats a token, the mean difference, in bfloat16 and float16


class Likelihood:
    """A causal language model as a function from token rows to option log-likelihoods.

    Args:
        model: of transformers, with or without a PEFT adapter. Its attention is set to `sdpa`
            where it can be, since a tree mask is only right there.
        path: one of `PATHS`, or `auto`. A named path is used or refused, never replaced.
        packing: how items share rows and rows share batches.

    Attributes:
        used: the path taken `without` and `with` gradients, as far as anything was scored.

    Raises:
        SettingsError: an encoder-decoder, an unknown path, or a path that this model cannot take.
        MissingExtra: torch is not installed.
    """

    def __init__(self, model: Any, *, path: str = "auto", packing: Packing | None = None) -> None:
        load_torch()
        if getattr(model.config, "is_encoder_decoder", False):
            raise SettingsError(
                "scoring takes a causal language model, and this one is an encoder-decoder: give a "
                "decoder-only model"
            )
        if path not in ("auto", *PATHS):
            raise unknown_name("scoring path", path, ("auto", *PATHS))
        self.model = model
        self.packing = packing or Packing()
        self.used: dict[Literal["without", "with"], str] = {}
        self._named = path != "auto"
        self._left: list[Path] = [each for each in PATHS if path in ("auto", each)]
        self._checked: set[str] = {"naive"}
        _use_sdpa(model)
        if self._named and (reason := unfit(model, self._left[0])):
            raise SettingsError(f"scoring path '{path}' does not fit: {reason}; take 'auto'")

    def sums(self, items: Sequence[TokenItem]) -> list[Tensor]:
        """Nats of every option, log p(option | prompt): a float32 tensor (k,) an item.

        With gradients where torch records them: the graphs of all items are then alive at once, so
        a trainer goes through `batches` and steps backward after each. An item's numbers depend on
        the items beside it only in the last bits.

        Raises:
            FeatureError: the model gives numbers that are not finite.
            SettingsError: a named path differs from the naive one, or needs no gradients.
        """
        found: list[Tensor] = [None] * len(items)
        for batch in self.packing.batches(items):
            rows = [[items[index] for index in row] for row in batch]
            values = self._batch(rows)
            order = [index for row in batch for index in row]
            for index, value in zip(order, values, strict=True):
                found[index] = value
        return found

    def batches(self, items: Sequence[TokenItem]) -> list[list[int]]:
        """Indices of `items` in groups that one forward pass takes, the longest first."""
        return [[i for row in batch for i in row] for batch in self.packing.batches(items)]

    def _batch(self, rows: Rows) -> list[Tensor]:
        grad = bool(load_torch().is_grad_enabled())
        while True:
            path = self._choice(grad)
            if path in self._checked or self._holds(path, rows):
                self.used["with" if grad else "without"] = path
                return self._run(path)(self.model, rows)

    def _choice(self, grad: bool) -> Path:
        reasons = []
        for path in self._left:
            reason = unfit(self.model, path, grad=grad)
            if reason is None:
                return path
            reasons.append(reason)
        raise SettingsError(f"scoring path '{self._left[0]}' does not fit: {reasons[0]}")

    def _run(self, path: Path) -> Callable[[Any, Rows], list[Tensor]]:
        runs: dict[Path, Callable[[Any, Rows], list[Tensor]]] = {
            "packed": packed,
            "kv": kv,
            "padded": partial(padded, batch_tokens=self.packing.batch_tokens),
            "naive": naive,
        }
        return runs[path]

    def _holds(self, path: Path, rows: Rows) -> bool:
        """Check a path against the naive one; drop it where it fails."""
        some = _first(rows, _CHECKED)
        torch = load_torch()
        with torch.no_grad(), _still(self.model):
            expected = naive(self.model, some)
            if not all(value.isfinite().all() for value in expected):
                raise FeatureError(
                    "the model's log-likelihoods are not finite: load it in another dtype, or take "
                    "weights that were trained to the end"
                )
            fault = self._fault(path, some, expected)
        if fault is None:
            self._checked.add(path)
            return True
        if self._named:
            raise SettingsError(f"scoring path '{path}' does not hold here: {fault}; take 'auto'")
        self._left.remove(path)
        warnings.warn(
            f"scoring path '{path}' does not hold for this model ({fault}): "
            f"'{self._left[0]}' is tried instead, which is slower",
            stacklevel=5,
        )
        return False

    def _fault(self, path: Path, rows: Rows, expected: list[Tensor]) -> str | None:
        torch = load_torch()
        try:
            got = self._run(path)(self.model, rows)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        flat = [item for row in rows for item in row]
        tokens = torch.tensor([len(o) for item in flat for o in item.options])
        gaps = (torch.cat(got) - torch.cat(expected)).abs().cpu() / tokens
        half = self.model.dtype in (torch.bfloat16, torch.float16)
        gap = float(gaps.mean() if half else gaps.max())
        most = _HALF_TOLERANCE if half else _TOLERANCE
        return None if gap <= most else f"{gap:.2g} nats a token off, {most:g} allowed"


def unfit(model: Any, path: Path, *, grad: bool = False) -> str | None:
    """Why the model's configuration rules out a path, or None where it does not.

    Args:
        model: the model.
        path: the path.
        grad: whether gradients are wanted.
    """
    if path in ("padded", "naive"):
        return None
    if reason := _not_plain(model):
        return reason
    if path == "kv":
        return _no_cache(model, grad)
    if attention(model) != "sdpa":
        return f"its attention '{attention(model)}' takes no mask of ours"
    for argument in ("position_ids", "logits_to_keep"):
        if not accepts(model, argument):
            return f"its forward pass takes no {argument}"
    return None


def _not_plain(model: Any) -> str | None:
    """What other than attention to all earlier tokens the model's layers do."""
    config = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    if getattr(model, "_is_stateful", False):
        return "it carries a state from token to token"
    layers = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if layers:
        return f"it has layers of the kind {', '.join(sorted(layers))}"
    listed = getattr(config, "layer_types", None)
    if not listed and getattr(config, "sliding_window", None):
        return "its attention looks through a sliding window"
    return None


def _no_cache(model: Any, grad: bool) -> str | None:
    if grad:
        return "a cache carries no gradients"
    if model.training and checkpoints(model):
        return "gradient checkpointing leaves no cache"
    return None if accepts(model, "past_key_values") else "its forward pass takes no cache"


def _use_sdpa(model: Any) -> None:
    if attention(model) == "sdpa" or not hasattr(model, "set_attn_implementation"):
        return
    try:
        model.set_attn_implementation("sdpa")
    except (ValueError, ImportError):
        return  # the model has none: the configuration then rules the packed path out


def _first(rows: Rows, count: int) -> list[list[TokenItem]]:
    """The first items of the rows, those of a row still side by side."""
    found: list[list[TokenItem]] = []
    for row in rows:
        room = count - sum(map(len, found))
        if room > 0:
            found.append(list(row[:room]))
    return found


@contextmanager
def _still(model: Any) -> Iterator[None]:
    """Without dropout, then every module as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
