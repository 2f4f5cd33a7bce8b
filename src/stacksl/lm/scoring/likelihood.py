"""log p(option | prompt), and states, by the fastest path that is right for the model.

The path is chosen from the model's configuration and then checked: the first items are scored by
the naive path too, and where the two differ a slower path takes over, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from stacksl.errors import FeatureError, SettingsError, unknown_name
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import Packing
from stacksl.lm.scoring.paths import (
    Items,
    Tensor,
    accepts,
    attention,
    evaluating,
    load_torch,
    naive,
    packed,
    padded,
)
from stacksl.lm.scoring.room import out_of_memory
from stacksl.lm.scoring.states import Read, naive_states, packed_states, padded_states

Path: TypeAlias = Literal["packed", "padded", "naive"]
Use: TypeAlias = Literal["without", "with", "states"]
T = TypeVar("T")
R = TypeVar("R")

PATHS: tuple[Path, ...] = ("packed", "padded", "naive")
"""Every path, the fastest first."""

_CHECKED = 4  # items of the first batch that are scored both ways
_HALF_CHECKED = 16  # the same in half precision, where the mean counts
_TOLERANCE = 1e-4  # nats a token, the largest difference, in float32 and float64
_HALF_TOLERANCE = 2e-2  # nats a token, the mean difference, in bfloat16 and float16
_STATE_TOLERANCE = 1e-3  # of the states' root mean square, the largest difference, in float32
_STATE_HALF_TOLERANCE = 5e-2  # the same, the mean difference, in half precision
_OF_ROUNDING = 4.0  # times the difference of two naive passes, where that is more in half precision


class Likelihood:
    """A causal language model as a function from token rows to option log-likelihoods.

    Args:
        model: of transformers, with or without a PEFT adapter. Its attention is set to `sdpa`
            where it can be, since a tree mask is only right there.
        path: one of `PATHS`, or `auto`. A named path is used or refused, never replaced.
        packing: how items share batches.

    Passes compute in the model's dtype. Where that is half precision and what is trained is
    float32, as LoRA's weights are, they run under `torch.autocast`.

    Attributes:
        used: the path taken `without` and `with` gradients, and for `states`, as far as anything
            was scored.

    Raises:
        SettingsError: an encoder-decoder, an unknown path, or a path that this model cannot take.
        MissingExtra: torch is not installed.
    """

    def __init__(self, model: Any, *, path: str = "auto", packing: Packing | None = None) -> None:
        torch = load_torch()
        if getattr(model.config, "is_encoder_decoder", False):
            raise SettingsError(
                "scoring takes a causal language model, and this one is an encoder-decoder: give a "
                "decoder-only model"
            )
        if path not in ("auto", *PATHS):
            raise unknown_name("scoring path", path, ("auto", *PATHS))
        self.model = model
        self.packing = packing or Packing()
        self.used: dict[Use, str] = {}
        trained = {each.dtype for each in model.parameters() if each.requires_grad}
        self._half = model.dtype in (torch.bfloat16, torch.float16)
        self._mixed = self._half and bool(trained - {model.dtype})
        self._named = path != "auto"
        self._left: list[Path] = [each for each in PATHS if path in ("auto", each)]
        self._checked: set[tuple[Path, bool]] = {("naive", False), ("naive", True)}
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
            SettingsError: a named path differs from the naive one.
        """
        use: Use = "with" if load_torch().is_grad_enabled() else "without"
        return [value for value, _ in self._read(items, use)]

    def sums_and_states(self, items: Sequence[TokenItem]) -> tuple[list[Tensor], list[Tensor]]:
        """Log-likelihoods and pooled states of every option, without gradients or dropout.

        h_i = mean over the tokens of option i of the last hidden state behind the last norm, its
        last token included; in protocol `letter` over the tokens of its text in the prompt.

        Args:
            items: their token rows; see `TokenItem.spans`.

        Returns:
            log p(option | prompt), a float32 tensor (k,) an item, and h, a float32 tensor
            (k, hidden) an item, both on the model's device. The former equal `sums` but for their
            last bits.

        Raises:
            FeatureError: the model gives numbers that are not finite, or no hidden states.
            SettingsError: a named path differs from the naive one.
        """
        with load_torch().no_grad(), evaluating(self.model):
            read = self._read(items, "states")
        return [value for value, _ in read], [state for _, state in read]

    def _read(self, items: Sequence[TokenItem], use: Use) -> list[Read]:
        found: list[Any] = [None] * len(items)
        for batch in self.packing.batches(items, with_last=use == "states"):
            some, work = [items[index] for index in batch], partial(self._batch, use=use)
            # with gradients the graphs of both halves would be alive: the trainer halves
            values = work(some) if use == "with" else self.in_memory(work, some)
            for index, value in zip(batch, values, strict=True):
                found[index] = value
        return found

    def in_memory(self, work: Callable[[Sequence[T]], list[R]], batch: Sequence[T]) -> list[R]:
        """What `work` gives of each part of a batch, in halves where all of it does not fit.

        `batch_tokens` is halved as well, so that later batches are smaller.
        """
        try:
            return work(batch)
        except (RuntimeError, MemoryError) as error:
            if len(batch) < 2 or not out_of_memory(error):
                raise
        self.packing = replace(self.packing, batch_tokens=max(1, self.packing.batch_tokens // 2))
        middle = len(batch) // 2
        return self.in_memory(work, batch[:middle]) + self.in_memory(work, batch[middle:])

    def batches(self, items: Sequence[TokenItem], processes: int = 1) -> list[list[int]]:
        """Indices of `items` in groups that one forward pass takes, the longest first.

        Cut further where several `processes` are to have work (`Packing.shared`).
        """
        return self.packing.shared(items, processes)

    def _batch(self, items: Sequence[TokenItem], use: Use) -> list[Read]:
        while True:
            path = self.path
            if (path, use == "states") in self._checked or self._holds(path, items, use):
                self.used[use] = path
                return self._reader(path, use)(self.model, items)

    @property
    def path(self) -> Path:
        """The fastest path that the configuration allows and no check has ruled out.

        Raises:
            SettingsError: the named path does not fit the model any more.
        """
        reasons = []
        for path in self._left:
            reason = unfit(self.model, path)
            if reason is None:
                return path
            reasons.append(reason)
        raise SettingsError(f"scoring path '{self._left[0]}' does not fit: {reasons[0]}")

    def _reader(self, path: Path, use: Use) -> Callable[[Any, Items], list[Read]]:
        """The function of (model, items) that takes a path, unchecked; states are None but for
        `states`.
        """
        most = self.packing.batch_tokens
        if use == "states":
            states: dict[Path, Callable[[Any, Items], list[Read]]] = {
                "packed": packed_states,
                "padded": partial(padded_states, batch_tokens=most),
                "naive": naive_states,
            }
            return self._cast(states[path])
        runs: dict[Path, Callable[[Any, Items], list[Tensor]]] = {
            "packed": packed,
            "padded": partial(padded, batch_tokens=most),
            "naive": naive,
        }
        run = self._cast(runs[path])
        return lambda model, items: [(value, None) for value in run(model, items)]

    def _cast(self, run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """`run` in half precision over weights of float32, where there are any."""

        def cast(model: Any, items: Items, **more: Any) -> list[Any]:
            torch = load_torch()
            kept = torch.is_grad_enabled()  # copies of weights are of use to a backward pass alone
            with torch.autocast(model.device.type, dtype=model.dtype, cache_enabled=kept):
                return run(model, items, **more)

        return cast if self._mixed else run

    def _holds(self, path: Path, items: Items, use: Use) -> bool:
        """Check a path against the naive one; drop it where it fails."""
        some = items[: _HALF_CHECKED if self._half else _CHECKED]
        with load_torch().no_grad(), evaluating(self.model):
            expected = self._reader("naive", use)(self.model, some)
            if not all(
                each.isfinite().all() for both in expected for each in both if each is not None
            ):
                raise FeatureError(
                    "the model's log-likelihoods or states are not finite: load it in another "
                    "dtype, or take weights that were trained to the end"
                )
            fault = self._fault(path, some, use, expected)
        if fault is None:
            self._checked.add((path, use == "states"))
            return True
        if self._named:
            raise SettingsError(f"scoring path '{path}' does not hold here: {fault}; take 'auto'")
        self._left.remove(path)
        warnings.warn(
            f"scoring path '{path}' does not hold for this model ({fault}): "
            f"'{self._left[0]}' is tried instead, which is slower",
            stacklevel=6,
        )
        return False

    def _fault(self, path: Path, items: Items, use: Use, expected: list[Read]) -> str | None:
        try:
            got = self._reader(path, use)(self.model, items)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            if out_of_memory(error):
                raise
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        half = self._half
        again = self._widened(use, items) if half else expected
        off, noise = (_nats_off(each, expected, items, half) for each in (got, again))
        most = max(_HALF_TOLERANCE if half else _TOLERANCE, _OF_ROUNDING * noise)
        if not off <= most:
            return f"{off:.2g} nats a token off, {most:.2g} allowed"
        if use != "states":
            return None
        off, noise = (_states_off(each, expected, half) for each in (got, again))
        most = max(_STATE_HALF_TOLERANCE if half else _STATE_TOLERANCE, _OF_ROUNDING * noise)
        return None if off <= most else f"states {off:.2g} of their size off, {most:.2g} allowed"

    def _widened(self, use: Use, items: Items) -> list[Read]:
        """The naive path by other kernels."""
        masked = unfit(self.model, "packed") is None
        run = self._cast(naive_states if use == "states" else naive)
        found = run(self.model, items, widened=True, masked=masked)
        return found if use == "states" else [(value, None) for value in found]


def _nats_off(got: list[Read], expected: list[Read], items: Items, half: bool) -> float:
    """The largest difference of a sum in nats a token; the mean one in half precision."""
    torch = load_torch()
    tokens = torch.tensor([len(option) for item in items for option in item.options])
    one, other = (torch.cat([value for value, _ in each]) for each in (got, expected))
    gaps = (one - other).abs().cpu() / tokens
    return float(gaps.mean() if half else gaps.max())


def _states_off(got: list[Read], expected: list[Read], half: bool) -> float:
    """The same for states, as a share of their root mean square."""
    torch = load_torch()
    one, other = (torch.cat([state for _, state in each]) for each in (got, expected))
    gaps = (one - other).abs() / other.square().mean().sqrt().clamp_min(1e-12)
    return float(gaps.mean() if half else gaps.max())


def unfit(model: Any, path: Path) -> str | None:
    """Why the model's configuration rules out a path, or None where it does not.

    Args:
        model: the model.
        path: the path.
    """
    if path in ("padded", "naive"):
        return None
    if reason := _not_plain(model):
        return reason
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


def _use_sdpa(model: Any) -> None:
    if attention(model) == "sdpa" or not hasattr(model, "set_attn_implementation"):
        return
    try:
        model.set_attn_implementation("sdpa")
    except (ValueError, ImportError):
        return  # the model has none: the configuration then rules the packed path out
