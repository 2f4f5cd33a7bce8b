"""log p(option | prompt), and states, by the fastest path that is right for the model.

Packed rows are taken if the model's configuration allows them, and then checked: the first options
are also scored in a pass each, and where the two differ padded rows take over, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, TypeAlias, TypeVar

from stacksl.errors import FeatureError, RunError, warn_user
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import BATCH_TOKENS, batches
from stacksl.lm.scoring.paths import (
    MASKED,
    Items,
    Path,
    Read,
    Tensor,
    accepts,
    attention,
    evaluating,
    load_torch,
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
_NOISE_FACTOR = 4.0  # packed rows may differ by so many times what padded ones differ by


class Likelihood:
    """A causal language model as a function from token rows to option log-likelihoods.

    Args:
        model: of transformers, with or without a PEFT adapter. Its attention is set to `sdpa`
            where it can be, since a tree mask is only right there.
        batch_tokens: tokens of one forward pass, at most, unless one item has more.
        verdict: on packed rows that were checked before, which holds with the same versions,
            device and dtype.

    Through a sliding window `packed` reads the items that fit into it, whose tokens see all earlier
    ones then; batches with longer ones are padded.

    Passes compute in the model's dtype. Where that is half precision and what is trained is
    float32, as LoRA's weights are, they run under `torch.autocast`.

    Attributes:
        path: `packed`, unless the configuration or a check has ruled it out, else `padded`.
        used: the path by which `sums` and `states` were read, as far as anything was.
        window: tokens that fit into the model's sliding window; None where it has none.

    Raises:
        MissingExtra: torch is not installed.
    """

    def __init__(
        self,
        model: Any,
        *,
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
        _use_sdpa(model)
        fits = packs(model)
        checked, _, circumstances = verdict.partition(" ")
        self._held = circumstances == self._circumstances  # whether the verdict does
        self.path: Path = "padded" if not fits or (self._held and checked == "padded") else "packed"
        self.window = _window(model) if fits else None

    @property
    def verdict(self) -> str:
        """Which path is right, and with which versions; empty where none was checked."""
        is_settled = self._held or self.path == "padded"
        return f"{self.path} {self._circumstances}" if is_settled else ""

    @property
    def _circumstances(self) -> str:
        """What the numbers of a path depend on besides the model."""
        torch = load_torch()
        device = self.model.device
        device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        versions = f"torch {torch.__version__} transformers {version('transformers')}"
        return f"{versions} {device_name} {self.model.dtype}"

    def path_for(self, items: Items) -> Path:
        """The path that is taken for a batch of items."""
        longest = max(len(item.prompt) + max(map(len, item.options)) for item in items)
        return "padded" if self.window is not None and longest > self.window else self.path

    def sums(self, items: Sequence[TokenItem]) -> list[Tensor]:
        """Nats of every option, log p(option | prompt): a float32 tensor (k,) an item.

        With gradients where torch records them: the graphs of all items are then alive at once, so
        a trainer goes through batches and steps backward after each. An item's numbers depend on
        the other items only in the last bits.

        Raises:
            FeatureError: the model gives numbers that are not finite.
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
        """
        with load_torch().no_grad(), evaluating(self.model):
            pairs = self._read(items, "states")
        return [value for value, _ in pairs], [state for _, state in pairs]

    def _read(self, items: Sequence[TokenItem], quantity: Quantity) -> list[Read]:
        results: list[Any] = [None] * len(items)
        work = partial(self._batch, quantity=quantity)
        off_path = {n for n, item in enumerate(items) if self.path_for([item]) != self.path}
        for indices in (sorted(off_path), [n for n in range(len(items)) if n not in off_path]):
            group = [items[n] for n in indices]
            for batch in batches(group, self.batch_tokens, with_last=quantity == "states"):
                batch_items = [group[index] for index in batch]
                # with gradients the graphs of both halves would be alive: the trainer halves
                alive = load_torch().is_grad_enabled()
                values = work(batch_items) if alive else self.in_memory(work, batch_items)
                for index, value in zip(batch, values, strict=True):
                    results[indices[index]] = value
        return results

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
        if self.path_for(items) == "packed" and not self._held:
            self._check(items)
        results = self._run(self.path_for(items), items, quantity)
        tensors = (value for pair in results for value in pair if value is not None)
        if quantity not in self.used and not all(bool(t.isfinite().all()) for t in tensors):
            raise FeatureError(
                "the model's log-likelihoods or states are not finite: load it in another dtype, or"
                " take weights that were trained to the end"
            )
        self.used[quantity] = self.path
        return results

    def _run(self, path: Path, items: Items, quantity: Quantity, **options: Any) -> list[Read]:
        """What a path reads, unchecked; in half precision over weights of float32, if any."""
        run = partial(packed, self.model, items, states=quantity == "states")
        if path == "padded":
            options = {"batch_tokens": self.batch_tokens, **options}
            run = partial(padded, self.model, items, states=quantity == "states", **options)
        if not self._mixed:
            return run()
        torch = load_torch()
        grad = torch.is_grad_enabled()  # copies of weights are of use to a backward pass alone
        kind = self.model.device.type
        with torch.autocast(kind, dtype=self.model.dtype, cache_enabled=grad):
            return run()

    def _check(self, items: Items) -> None:
        """Compare packed rows with a pass for each option; go on with padded rows if they differ.

        States are of the same passes, and not compared.
        """
        checked, options_left = list[TokenItem](), _OPTIONS_CHECKED
        for item in items[: _HALF_CHECKED if self._half else _CHECKED]:
            if options_left > 0:
                checked.append(item.among(range(min(options_left, len(item.options)))))
                options_left -= len(item.options)
        with load_torch().no_grad(), evaluating(self.model):
            fault = self._deviation(checked)
        self._held = fault is None
        if fault is None:
            return
        self.path = "padded"
        warn_user(
            f"scoring path 'packed' does not hold for this model ({fault}): 'padded' is taken"
            " instead, which is slower"
        )

    def _deviation(self, items: Items) -> str | None:
        """How packed rows fail or differ from a pass for each option; None where they hold.

        The largest difference of a log-likelihood counts, in nats a token; in half precision the
        mean one, which may be a multiple of what rounding does to padded rows.
        """
        torch = load_torch()
        tokens = torch.tensor([len(option) for item in items for option in item.options])

        def sums(path: Path, **options: Any) -> Tensor:
            return torch.cat([value for value, _ in self._run(path, items, "sums", **options)])

        expected = sums("padded", batch_tokens=1)
        try:
            gaps = (sums("packed") - expected).abs().cpu() / tokens
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            if out_of_memory(error):
                raise
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        gap, allowed = float(gaps.max()), _TOLERANCE
        if self._half:
            noise = ((sums("padded") - expected).abs().cpu() / tokens).mean()
            gap, allowed = float(gaps.mean()), max(_HALF_TOLERANCE, _NOISE_FACTOR * float(noise))
        # numbers that are not finite are refused later
        return f"{gap:.2g} nats a token off, {allowed:.2g} allowed" if gap > allowed else None


def packs(model: Any) -> bool:
    """Whether the model's configuration allows packed rows under a mask of ours."""
    layers = {*(getattr(model.config.get_text_config(), "layer_types", None) or ())}
    return (
        not getattr(model, "_is_stateful", False)  # old Jambas name no types of layers
        and layers <= {"full_attention", "sliding_attention"}
        and not ("sliding_attention" in layers and _window(model) is None)
        and attention(model) in MASKED
        and all(accepts(model, argument) for argument in ("position_ids", "logits_to_keep"))
    )


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
def within_memory(task: str, *, checkpointing: bool = True) -> Iterator[None]:
    """Turn running out of memory for one item into a sentence.

    Args:
        task: what there was not enough memory to do.
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
            f"there was not enough memory to {task}, one item at a time: {way}; the labels are kept"
        ) from None
