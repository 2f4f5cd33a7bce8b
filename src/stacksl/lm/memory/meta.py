"""The memory of a language model's passes, counted on tensors that have shapes but no contents.

The model is built on torch's device `meta`, and the fullest batch of scoring and of training runs
through the same code as in a run, on torch's fake tensors. These take the decisions of the device
they stand for (which attention kernel, what the backward pass keeps), so the bytes alive at any
moment are those of the real pass, and no weight is read or computed.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from stacksl.lm.distributed import blocks
from stacksl.lm.loading import Loaded
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.quantised import QUANTISED, computed_in, linear_bytes
from stacksl.lm.reading import load_transformers, quiet
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.packing import Packing
from stacksl.lm.scoring.paths import Rows, Tensor, load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.lora import linear_layers, lora_model
from stacksl.lm.worker import BLOCK

Batch: TypeAlias = list[list[TokenItem]]

FLOAT = 4  # bytes of a trained number, in every dtype of the base
MOMENTS = 2  # of AdamW, each as large as what is trained
PREMISED = ("pmi", "auto")  # normalisations that may score behind a premise


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of tensors at the fullest moment, by what they are for.

    Attributes:
        weights: of the base model, buffers included.
        adapter: LoRA weights, with the copies that the run keeps of them; 0 for full fine-tuning.
        gradients, optimiser: of what is trained.
        activations: what the passes hold besides.
        logits: tensors as wide as the vocabulary.
        copies: what writing a training checkpoint needs beyond all that.
    """

    weights: int
    adapter: int = 0
    gradients: int = 0
    optimiser: int = 0
    activations: int = 0
    logits: int = 0
    copies: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        parts = (self.weights, self.adapter, self.gradients, self.optimiser)
        return sum(parts) + self.activations + self.logits + self.copies


@dataclass(frozen=True, slots=True)
class Counted:
    """What the passes of a run hold.

    Attributes:
        parameters: of the base model.
        moving: of those and of the adapter's, how many are trained.
        path: how options are scored.
        scoring, training: the memory of either.
    """

    parameters: int
    moving: int
    path: str
    scoring: Memory
    training: Memory


def count(config: Any, items: Sequence[TokenItem], choices: ModelChoices) -> Counted:
    """The memory of the largest batch of scoring and of the largest that a training step can meet.

    Args:
        config: the model's configuration, of transformers.
        items: everything that is to be scored, in its order, and may be trained on.
        choices: the rest; `dtype` is not `auto`.

    Raises:
        SettingsError: a LoRA target that the model lacks, or a path that does not fit.
        MissingExtra: torch, transformers or peft is not installed.
    """
    text = config.get_text_config()
    base, model = _meta_models(config, choices)
    packing = Packing(batch_tokens=choices.batch_tokens)
    likelihood = Likelihood(model, path=choices.path, packing=packing)
    named = model.named_parameters()
    parameters = sum(each.numel() for name, each in named if "lora_" not in name)
    moving = [each for each in model.parameters() if each.requires_grad]
    added = sum(each.nbytes for each in moving) if choices.adapt == "lora" else 0
    with _counting(model, int(text.vocab_size)) as alive:
        weights = alive.total - added
        adapter = Adapter(base, choices.adapt, model)
        if choices.training.pulls and choices.training.reference != "frozen":
            adapter.reference()
        saved, layer = _quantised(base.model, choices.dtype)
        at_rest = Memory(weights - saved, alive.total - weights)
        scored = _heaviest(items, likelihood, text)
        stepped = _heaviest(items, likelihood, text, choices.training.batch_size)
        return Counted(
            parameters=parameters,
            moving=sum(each.numel() for each in moving),
            path=likelihood.path,
            scoring=_with_layer(_scoring(likelihood, alive, at_rest, scored), layer),
            training=_with_layer(
                _training(adapter, likelihood, alive, at_rest, stepped, choices), layer
            ),
        )


def _quantised(model: Any, dtype: str) -> tuple[int, int]:
    """Bytes that a quantised dtype saves, and those of the layer that is largest in a pass.

    Passes are counted over unquantised weights; a real one makes each layer's anew and drops them.
    """
    if dtype not in QUANTISED:
        return 0, 0
    layers = linear_layers(model).items()
    weights = [layer.weight for name, layer in layers if ".lora_" not in name]
    sizes = [linear_bytes(each.shape[0], each.shape[1], dtype) for each in weights]
    return sum(each.nbytes for each in weights) - sum(sizes), max(each.nbytes for each in weights)


def _with_layer(memory: Memory, layer: int) -> Memory:
    return replace(memory, activations=memory.activations + layer)


def bound(config: Any, items: Sequence[TokenItem], choices: ModelChoices) -> float:
    """More bytes than `count` would find, from shapes alone and without a pass.

    Several times as many, and infinite where options are not packed. A model whose bound is free
    needs no count, which costs seconds.

    Raises:
        SettingsError, MissingExtra: as `count`.
    """
    text = config.get_text_config()
    _, model = _meta_models(config, choices)
    if Likelihood(model, path=choices.path).path != "packed":
        return math.inf
    parameters = list(model.parameters())
    moving = sum(each.numel() for each in parameters if each.requires_grad)
    longest = max(map(row_tokens, items))
    tokens = max(longest, min(choices.batch_tokens, BLOCK * longest))
    if choices.normalisation in PREMISED:  # a second pass holds its activations beside the first's
        tokens *= 2
    matrices = [each.shape for each in parameters if each.ndim > 1]
    inputs_and_outputs = sum(math.prod(shape[:-2]) * sum(shape[-2:]) for shape in matrices)
    attention = longest * int(text.num_attention_heads) * int(text.num_hidden_layers)
    a_token = 3 * inputs_and_outputs + 3 * attention + 6 * int(text.vocab_size)
    weights = sum(int(each.nbytes) for each in parameters)
    # copy, reference, gradient and moments, and a checkpoint of weights and moments
    return float(weights + FLOAT * (moving * (4 + 2 * MOMENTS) + tokens * a_token))


def _premise(item: TokenItem, choices: ModelChoices) -> TokenItem:
    """The item behind as many tokens as the premise of `pmi` has at most."""
    most = len(item.prompt)
    if choices.normalisation == "auto":
        return item  # any premise may be chosen
    if choices.pmi_context == "empty":
        most = 1
    elif (choices.pmi_context, choices.protocol, choices.chat) == ("template", "option", False):
        most = max(1, len(choices.template))  # a token has a character or more
    return replace(item, prompt=item.prompt[:most])


def row_tokens(item: TokenItem) -> int:
    """Tokens of a packed row with every option's last one: P + Σ L_i."""
    return len(item.prompt) + _tail(item)


@dataclass(slots=True)
class _Alive:
    """Bytes of the tensors that are alive, and how many there were at the fullest moment.

    Attributes:
        vocabulary: tensors of so many columns are counted as logits too.
        total, logits: now.
        most, most_logits: at the moment when `total` was highest.
    """

    vocabulary: int
    total: int = 0
    logits: int = 0
    most: int = 0
    most_logits: int = 0
    _seen: dict[int, weakref.ref[Any]] = field(default_factory=dict, repr=False)

    def see(self, tensor: Tensor) -> None:
        """Count the memory behind a tensor, once, until nothing refers to it."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._seen:
            return
        size = int(storage.nbytes())
        logits = size if tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary else 0

        def released(_: Any) -> None:
            del self._seen[key]
            self._add(-size, -logits)

        self._seen[key] = weakref.ref(storage, released)
        self._add(size, logits)

    def restart(self) -> None:
        """Look for the fullest moment from now on."""
        self.most, self.most_logits = self.total, self.logits

    def _add(self, size: int, logits: int) -> None:
        self.total += size
        self.logits += logits
        if self.total > self.most:
            self.restart()


def _meta_models(config: Any, choices: ModelChoices) -> tuple[Loaded, Any]:
    """The base model of a configuration on `meta`, and the one to train."""
    torch, tf = load_torch(), load_transformers()
    with quiet(), torch.device("meta"):
        dtype = getattr(torch, computed_in(choices.dtype, "cpu"))
        model = tf.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.eval().requires_grad_(False)
    base = Loaded(
        model, None, "of this configuration", "", None, "", None, None, "meta", choices.dtype
    )
    if choices.adapt == "full":
        return base, model.float().requires_grad_(True)
    return base, lora_model(base, choices.lora, 0)


@contextmanager
def _counting(model: Any, vocabulary: int) -> Iterator[_Alive]:
    """The bytes of every tensor made within it, and of the model's, which can run within it."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    torch, alive = load_torch(), _Alive(vocabulary)
    experts = getattr(torch.ops.aten, "_grouped_mm", None)

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if experts is not None and function in (experts, experts.default):
                out = _grouped(function, args, kwargs or {})
            else:
                out = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    alive.see(leaf)
            return out

    made: dict[int, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), Watch():
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, own in table.items():
                    if own is not None and id(own) not in made:  # tied weights stay one
                        empty = torch.empty(own.shape, dtype=own.dtype, device="cpu")
                        if isinstance(own, torch.nn.Parameter):
                            empty = torch.nn.Parameter(empty, requires_grad=own.requires_grad)
                        made[id(own)] = empty
                    table[name] = None if own is None else made[id(own)]
        del made
        yield alive


def _grouped(function: Any, args: Sequence[Any], given: dict[str, Any]) -> Tensor:
    """The product of experts, whose shape torch gives on fake tensors in bfloat16 alone."""
    torch = load_torch()
    dtype = args[0].dtype
    half = [each.bfloat16() if torch.is_tensor(each) and each.is_floating_point() else each
            for each in args]  # fmt: skip
    return function(*half, **(given | {"out_dtype": None})).to(dtype)


def _scoring(likelihood: Likelihood, alive: _Alive, at_rest: Memory, rows: Rows) -> Memory:
    """A pass that takes scores and states."""
    before = alive.total
    alive.restart()
    with load_torch().no_grad():
        likelihood.reader(likelihood.path, "states")(likelihood.model, rows)
    held = alive.most - alive.most_logits - before
    return replace(at_rest, activations=held, logits=alive.most_logits)


def _training(
    adapter: Adapter,
    likelihood: Likelihood,
    alive: _Alive,
    at_rest: Memory,
    rows: Batch,
    choices: ModelChoices,
) -> Memory:
    """A backward pass that adds to gradients which are there already."""
    torch, before = load_torch(), alive.total
    for parameter in adapter.parameters():
        parameter.grad = torch.zeros_like(parameter)
    gradients = alive.total - before
    adapter.model.train()
    adapter.checkpointing(choices.training.checkpointing)
    alive.restart()
    read = likelihood.reader(likelihood.path, "with")
    sums = [each for each, _ in read(adapter.model, rows)]
    if choices.normalisation in PREMISED:
        alone = [[_premise(item, choices) for item in row] for row in rows]
        pairs = zip(sums, read(adapter.model, alone), strict=True)
        sums = [each - own for each, (own, _) in pairs]
    terms = [each.log_softmax(-1)[0] for each in sums]
    torch.stack(terms).sum().backward()
    passes = alive.most - before - gradients
    own = FLOAT * sum(parameter.numel() for parameter in adapter.parameters())
    copies = own * (1 + MOMENTS) if choices.training.save_every else 0
    return replace(
        at_rest,
        gradients=gradients,
        optimiser=MOMENTS * own,
        activations=passes - alive.most_logits,
        logits=alive.most_logits,
        copies=max(0, copies - gradients - passes),  # made when passes and gradients are gone
    )


def _heaviest(
    items: Sequence[TokenItem], likelihood: Likelihood, text: Any, step: int = 0
) -> Batch:
    """The batch that will hold most: of any block in scoring, of the `step` longest in training."""
    training = step > 0
    if training:
        orders = (row_tokens, _tail)
        groups = [sorted(items, key=order, reverse=True)[:step] for order in orders]
    else:
        groups = [[items[i] for i in block] for block in blocks(len(items), BLOCK)]
    batches = [
        [[group[i] for i in row] for row in batch]
        for group in groups
        for batch in likelihood.packing.batches(group, with_last=not training)
    ]
    return max(batches, key=lambda rows: _weight(rows, text, training))


def _weight(rows: Batch, text: Any, training: bool) -> float:
    """Roughly how many numbers a packed batch holds."""
    tail = max(sum(map(_tail, row)) for row in rows)
    width = tail + max(sum(len(item.prompt) for item in row) for row in rows)
    layers = int(text.num_hidden_layers) if training else 1
    each = layers * (16 * int(text.hidden_size) + width)  # what a column keeps, with its mask
    return len(rows) * float(width * each + 3 * tail * int(text.vocab_size))


def _tail(item: TokenItem) -> int:
    return sum(map(len, item.options))
