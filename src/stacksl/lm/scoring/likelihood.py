"""log p(option | prompt), and states, by the fastest path that is right for the model.

The path is chosen from the model's configuration and then checked: the first items are scored by
the naive path too, and where the two differ a slower path takes over, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, TypeAlias, TypeVar

from stacksl.errors import FeatureError, RunError, SettingsError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import BATCH_TOKENS, batches
from stacksl.lm.scoring.paths import (
    MASKED,
    PATHS,
    Items,
    Path,
    Read,
    Tensor,
    accepts,
    attention,
    evaluating,
    load_torch,
    naive,
    packed,
    padded,
)

Quantity: TypeAlias = Literal["sums", "states"]
T = TypeVar("T")
R = TypeVar("R")

_CHECKED = 4  # items of the first batch that are scored both ways
_HALF_CHECKED = 16  # the same in half precision, where the mean counts
_OPTIONS_CHECKED = 64  # options of these items, at most: each has a pass of its own
_TOLERANCE = 1e-4  # nats a token, the largest difference, in float32 and float64
_HALF_TOLERANCE = 2e-2  # nats a token, the mean difference, in bfloat16 and float16
_STATE_TOLERANCE = 1e-3  # of the states' root mean square, the largest difference, in float32
_STATE_HALF_TOLERANCE = 5e-2  # the same, the mean difference, in half precision
_NOISE_FACTOR = 4.0  # a path may differ by so many times what two naive passes differ by


class Likelihood:
    """A causal language model as a function from token rows to option log-likelihoods.

    Args:
        model: of transformers, with or without a PEFT adapter. Its attention is set to `sdpa`
            where it can be, since a tree mask is only right there.
        path: one of `PATHS`, or `auto`. A named path is used or refused, never replaced.
        batch_tokens: tokens of one forward pass, at most, unless one item has more.
        verdict: what was found of a path before; it is not checked again where it held with the
            same versions, device and dtype.

    Through a sliding window `packed` reads the items that fit into it, whose tokens see all earlier
    ones then; batches with longer ones are padded.

    Passes compute in the model's dtype. Where that is half precision and what is trained is
    float32, as LoRA's weights are, they run under `torch.autocast`.

    Attributes:
        path: the fastest path that the configuration allows and no check has ruled out.
        used: the path by which `sums` and `states` were read, as far as anything was.
        window: tokens that fit into the model's sliding window; None where it has none.

    Raises:
        SettingsError: a path that this model cannot take.
        MissingExtra: torch is not installed.
    """

    def __init__(
        self,
        model: Any,
        *,
        path: str = "auto",
        batch_tokens: int = BATCH_TOKENS,
        verdict: str = "",
    ) -> None:
        torch = load_torch()
        self.model = model
        self.batch_tokens = batch_tokens
        self.used: dict[Quantity, Path] = {}
        trained = {weight.dtype for weight in model.parameters() if weight.requires_grad}
        self._half = model.dtype in (torch.bfloat16, torch.float16)
        self._mixed = self._half and bool(trained - {model.dtype})
        self._named = path != "auto"
        self._held: dict[Path, str] = {"naive": "states"}  # what holds; states are read with sums
        _use_sdpa(model)
        reason = unfit(model)
        if reason is not None and path == "packed":
            raise SettingsError(f"scoring path '{path}' does not fit: {reason}; take 'auto'")
        allowed = PATHS if reason is None else PATHS[1:]
        self._paths = [name for name in allowed if path in ("auto", name)]
        self.window = _window(model) if reason is None else None
        before, what, here = [*verdict.split(" ", 2), "", ""][:3]
        if here == self._circumstances and before in self._paths:
            del self._paths[: self._paths.index(before)]
            self._held[self.path] = what

    @property
    def path(self) -> Path:
        """The path that is taken next."""
        return self._paths[0]

    @property
    def verdict(self) -> str:
        """Which path has held, for what and with which versions; empty where none was checked."""
        held = self._held.get(self.path)
        return f"{self.path} {held} {self._circumstances}" if held else ""

    @property
    def _circumstances(self) -> str:
        """What the numbers of a path depend on besides the model."""
        torch = load_torch()
        device = self.model.device
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        versions = f"torch {torch.__version__} transformers {version('transformers')}"
        return f"{versions} {named} {self.model.dtype}"

    def path_for(self, items: Items) -> Path:
        """The path that is taken for a batch of items."""
        longest = max(len(item.prompt) + max(map(len, item.options)) for item in items)
        if self.path != "packed" or self.window is None or longest <= self.window:
            return self.path
        return self._paths[1] if len(self._paths) > 1 else "padded"

    def sums(self, items: Sequence[TokenItem]) -> list[Tensor]:
        """Nats of every option, log p(option | prompt): a float32 tensor (k,) an item.

        With gradients where torch records them: the graphs of all items are then alive at once, so
        a trainer goes through batches and steps backward after each. An item's numbers depend on
        the other items only in the last bits.

        Raises:
            FeatureError: the model gives numbers that are not finite.
            SettingsError: a named path differs from the naive one.
        """
        return [value for value, _ in self._read(items, "sums")]

    def sums_and_states(self, items: Sequence[TokenItem]) -> tuple[list[Tensor], list[Tensor]]:
        """Log-likelihoods and pooled states of every option, without gradients or dropout.

        h_i = mean over the tokens of option i of the last hidden state behind the last norm, its
        last token included.

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

    def _read(self, items: Sequence[TokenItem], quantity: Quantity) -> list[Read]:
        reads: list[Any] = [None] * len(items)
        work = partial(self._batch, quantity=quantity)
        long = {n for n, item in enumerate(items) if self.path_for([item]) != self.path}
        for places in (sorted(long), [n for n in range(len(items)) if n not in long]):
            group = [items[place] for place in places]
            for batch in batches(group, self.batch_tokens, with_last=quantity == "states"):
                some = [group[index] for index in batch]
                # with gradients the graphs of both halves would be alive: the trainer halves
                alive = load_torch().is_grad_enabled()
                values = work(some) if alive else self.in_memory(work, some)
                for index, value in zip(batch, values, strict=True):
                    reads[places[index]] = value
        return reads

    def in_memory(self, work: Callable[[Sequence[T]], list[R]], batch: Sequence[T]) -> list[R]:
        """What `work` gives of each part of a batch, in halves where all of it does not fit.

        `batch_tokens` is halved as well, so that later batches are smaller.
        """
        try:
            return work(batch)
        except (RuntimeError, MemoryError) as error:
            if len(batch) < 2 or not out_of_memory(error):
                raise
        self.batch_tokens = max(1, self.batch_tokens // 2)
        middle = len(batch) // 2
        return self.in_memory(work, batch[:middle]) + self.in_memory(work, batch[middle:])

    def _batch(self, items: Sequence[TokenItem], quantity: Quantity) -> list[Read]:
        while self._held.get(path := self.path_for(items)) not in (quantity, "states"):
            self._check(items, quantity)
        self.used[quantity] = self.path
        return self._run(path, items, quantity)

    def _run(self, path: Path, items: Items, quantity: Quantity, **options: Any) -> list[Read]:
        """What a path reads, unchecked; in half precision over weights of float32, if any."""
        if path == "padded":
            options["batch_tokens"] = self.batch_tokens
        run = {"packed": packed, "padded": padded, "naive": naive}[path]
        read = partial(run, self.model, items, states=quantity == "states", **options)
        if not self._mixed:
            return read()
        torch = load_torch()
        grad = torch.is_grad_enabled()  # copies of weights are of use to a backward pass alone
        kind = self.model.device.type
        with torch.autocast(kind, dtype=self.model.dtype, cache_enabled=grad):
            return read()

    def _check(self, items: Items, quantity: Quantity) -> None:
        """Hold the path against the naive one; drop it where it fails."""
        path, some, left = self.path_for(items), list[TokenItem](), _OPTIONS_CHECKED
        for item in items[: _HALF_CHECKED if self._half else _CHECKED]:
            if left > 0:
                some.append(item.among(range(min(left, len(item.options)))))
                left -= len(item.options)
        with load_torch().no_grad(), evaluating(self.model):
            expected = self._run("naive", some, quantity)
            if not all(
                value.isfinite().all() for read in expected for value in read if value is not None
            ):
                raise FeatureError(
                    "the model's log-likelihoods or states are not finite: load it in another "
                    "dtype, or take weights that were trained to the end"
                )
            fault = self._deviation(path, some, quantity, expected)
        if fault is None:
            self._held[path] = quantity
            return
        if self._named:
            raise SettingsError(f"scoring path '{path}' does not hold here: {fault}; take 'auto'")
        self._paths.remove(path)
        warnings.warn(
            f"scoring path '{path}' does not hold for this model ({fault}): "
            f"'{self.path_for(items)}' is tried instead, which is slower",
            stacklevel=6,
        )

    def _deviation(
        self, path: Path, items: Items, quantity: Quantity, expected: list[Read]
    ) -> str | None:
        """How a path fails or differs from `expected`, the naive one; None where it holds.

        In half precision the naive path itself gives other numbers by other kernels; a path may
        differ by a multiple of that noise.
        """
        try:
            actual = self._run(path, items, quantity)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            if out_of_memory(error):
                raise
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        rounded = self._by_other_kernels(items, quantity) if self._half else expected
        off, noise = (self._nats_apart(reads, expected, items) for reads in (actual, rounded))
        allowed = max(_HALF_TOLERANCE if self._half else _TOLERANCE, _NOISE_FACTOR * noise)
        if not off <= allowed:
            return f"{off:.2g} nats a token off, {allowed:.2g} allowed"
        if quantity != "states":
            return None
        share, noise = (self._states_apart(reads, expected) for reads in (actual, rounded))
        tolerance = _STATE_HALF_TOLERANCE if self._half else _STATE_TOLERANCE
        allowed = max(tolerance, _NOISE_FACTOR * noise)
        if share <= allowed:
            return None
        return f"states {share:.2g} of their size off, {allowed:.2g} allowed"

    def _by_other_kernels(self, items: Items, quantity: Quantity) -> list[Read]:
        """The naive path by other kernels."""
        masked = unfit(self.model) is None and self.path_for(items) == self.path
        return self._run("naive", items, quantity, widened=True, masked=masked)

    def _nats_apart(self, got: list[Read], expected: list[Read], items: Items) -> float:
        """The largest difference of a sum in nats a token; the mean one in half precision."""
        torch = load_torch()
        tokens = torch.tensor([len(option) for item in items for option in item.options])
        actual, reference = (torch.cat([value for value, _ in reads]) for reads in (got, expected))
        gaps = (actual - reference).abs().cpu() / tokens
        return float(gaps.mean() if self._half else gaps.max())

    def _states_apart(self, got: list[Read], expected: list[Read]) -> float:
        """The same for states, as a share of their root mean square."""
        torch = load_torch()
        actual, reference = (torch.cat([state for _, state in reads]) for reads in (got, expected))
        gaps = (actual - reference).abs() / reference.square().mean().sqrt().clamp_min(1e-12)
        return float(gaps.mean() if self._half else gaps.max())


def unfit(model: Any) -> str | None:
    """Why the model's configuration rules packed rows out, or None where it does not."""
    config = model.config.get_text_config()
    if getattr(model, "_is_stateful", False):
        return "it carries a state from token to token"
    listed = getattr(config, "layer_types", None)
    if layers := set(listed or ()) - {"full_attention", "sliding_attention"}:
        return f"it has layers of the kind {', '.join(sorted(layers))}"
    if "sliding_attention" in set(listed or ()) and _window(model) is None:
        return "its configuration does not say how long its sliding window is"
    if attention(model) not in MASKED:
        return f"its attention '{attention(model)}' takes no mask of ours"
    for argument in ("position_ids", "logits_to_keep"):
        if not accepts(model, argument):
            return f"its forward pass takes no {argument}"
    return None


def _window(model: Any) -> int | None:
    """Tokens of the sliding window of a model's attention; None where it has none."""
    config = model.config.get_text_config()
    slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    return getattr(config, "sliding_window", None) if slides else None


def _use_sdpa(model: Any) -> None:
    if attention(model) == "sdpa" or not hasattr(model, "set_attn_implementation"):
        return
    try:
        model.set_attn_implementation("sdpa")
    except (ValueError, ImportError):
        return  # the model has none: the configuration then rules the packed path out


def out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left, on a GPU or the CPU."""
    if isinstance(error, MemoryError | load_torch().OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def within_memory(what: str, *, checkpointing: bool = True) -> Iterator[None]:
    """Turn running out of memory for one item into a sentence.

    Args:
        what: what there was not enough memory to do.
        checkpointing: whether gradient checkpointing is on or of no use, so that it is not advised.

    Raises:
        RunError: there was not enough memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        way = "start a run with a smaller max_len_prompt or another model"
        if not checkpointing:
            way = f"go on with `stacksl change RUN --set lm.gradient_checkpointing=true`, or {way}"
        raise RunError(
            f"there was not enough memory to {what}, one item at a time: {way}; the labels are kept"
        ) from None
