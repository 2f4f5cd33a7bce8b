"""Memory that a run with a language model needs, before it is started.

It is an arithmetic over the shapes of the model's layers. No pass is made and no weight is read for
it: the model is built on torch's device `meta`, where tensors have shapes and no contents. What a
pass keeps follows from how many numbers its linear layers give, which is right within a quarter
(docs/lm.md has estimates next to measured peaks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from stacksl.errors import SettingsError, warn_user
from stacksl.features.sentences import quiet
from stacksl.lm.loading import Base, open_base
from stacksl.lm.prompt.tokens import TokenItem, Tokenizing
from stacksl.lm.quantized import NF4, computed_in, not_quantized, quantization, quantized_bytes
from stacksl.lm.reading import load_transformers
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.adapters import adapted_layers, expect_size, linear_layers, stacks
from stacksl.report.wording import memory
from stacksl.types import Item

SHARE = 0.9  # of the free memory, at most, that a run may plan for
_FLOAT = 4  # bytes of a trained number, in every dtype of the base
_TRAINED = 2 + 1 + 2  # of each: with the copy of its start, its gradient, the moments of AdamW
_SAVED = 2  # numbers that a layer keeps for its backward pass for each one that a matrix gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a run needs, in bytes of tensors at the fullest moment.

    Attributes:
        moving: numbers that are trained.
        tokens: of one pass over the items.
        weights: bytes of the base alone.
        fixed: bytes of training in any batch: base, adapter, gradients and optimizer.
        scoring, training: all bytes.
    """

    parameters: int
    moving: int
    path: str
    weights: int
    fixed: int
    scoring: int
    training: int
    tokens: int
    dtype: str

    @property
    def memory(self) -> int:
        """Bytes at the fullest moment of the run."""
        return max(self.scoring, self.training)


def row_tokens(item: TokenItem) -> int:
    """Tokens of a packed row with every option's last one: P + Σ L_i."""
    return len(item.prompt) + sum(map(len, item.options))


def estimate(
    config: Any, rows: Sequence[TokenItem], choices: ModelChoices, premise: int = 0
) -> Size:
    """The fullest batch of scoring, and the fullest of a training step.

    Args:
        rows: all that is to be scored, one at least.
        choices: the rest; `dtype` is not `auto`.
        premise: tokens behind which `pmi` scores the options once more; 0 where it does not.

    Raises:
        SettingsError: a LoRA target that the model lacks.
        MissingExtra: torch, transformers or peft is not installed.
    """
    torch = load_torch()
    kind = getattr(torch, computed_in(choices.dtype, "cpu"))
    with quiet(), torch.device("meta"):
        model = load_transformers().AutoModelForCausalLM.from_config(config, dtype=kind)
    path = Likelihood(model).path_for(rows)
    adapted = adapted_layers(model, choices.lora.targets).values()
    moving = choices.lora.rank * sum(sum(layer.weight.shape) for layer in adapted)
    if choices.lora.start is not None:
        expect_size(choices.lora.start, moving)
    text, number = model.config.get_text_config(), model.dtype.itemsize
    hidden, layers, vocabulary = text.hidden_size, text.num_hidden_layers, text.vocab_size
    weights, transient = _weights(model, choices.dtype)

    longest, tail = max(map(row_tokens, rows)), max(sum(map(len, row.options)) for row in rows)
    copies = 1 if path == "packed" else max(len(row.options) for row in rows)
    prompt = copies * max(len(row.prompt) for row in rows)
    max_rows = min(len(rows), max(1, choices.batch_tokens // longest))
    # bytes of one layer for a token: what its matrices give, its row of a mask and, in half
    # precision, the inputs of two norms; and of its logits, their log-softmax, a copy or gradient
    layer = number * (_SAVED * _outputs(model, text) // layers)
    layer += number * (prompt + tail) if path == "packed" else 0
    layer += 2 * _FLOAT * hidden if number < _FLOAT else 0
    word = (number + 2 * _FLOAT) * vocabulary

    side = min(max_rows, BLOCK)  # rows that are scored side by side
    scoring = max(layer * side * (prompt + tail), word * side * tail)

    recipe, step = choices.training, min(max_rows, choices.training.batch_size)
    passes = 2 if premise else 1
    tokens = step * (prompt + copies * premise + passes * tail)
    activations, passing = layers * layer * tokens, layer * tokens
    if recipe.gradient_checkpointing:
        # what goes into each layer; one layer's numbers are made again
        activations, passing = layers * number * hidden * tokens, 2 * layer * tokens
    # a layer's numbers and the logits are not there at once
    training = activations + max(passing, word * step * passes * tail)
    fixed = weights + transient + _TRAINED * _FLOAT * moving
    return Size(
        parameters=sum(int(weight.numel()) for weight in model.parameters()),
        moving=moving,
        path=path,
        weights=weights,
        fixed=fixed,
        scoring=weights + transient + 2 * _FLOAT * moving + scoring,
        training=fixed + training,
        tokens=sum(map(row_tokens, rows)),
        dtype=choices.dtype,
    )


def _weights(model: Any, dtype: str) -> tuple[int, int]:
    """Bytes of the weights, and those of the largest quantized one, which a pass makes whole."""
    total = sum(int(weight.nbytes) for weight in model.parameters())
    if dtype != NF4:
        return total, 0
    matrices = [layer.weight for layer in linear_layers(model).values()]
    matrix_bytes = [int(weight.nbytes) for weight in matrices]
    quantized = sum(quantized_bytes(weight.numel()) for weight in matrices)
    return total - sum(matrix_bytes) + quantized, max(matrix_bytes)


def _outputs(model: Any, text: Any) -> int:
    """How many numbers all linear layers together give for a token, those of its experts too."""
    layers = linear_layers(model).values()
    outputs = sum(int(layer.nf if hasattr(layer, "nf") else layer.out_features) for layer in layers)
    experts = int(getattr(text, "num_experts_per_tok", None) or 1)
    return outputs + experts * sum(int(sum(stack.shape[1:])) // 2 for stack in stacks(model))


def planned(
    choices: ModelChoices, items: Sequence[Item], test: Sequence[Item] = ()
) -> tuple[Size, Base]:
    """The size of a run over `items`, and its model, of which no weight is read.

    Args:
        items: one at least.
        test: items that are scored after the last label was paid, and must not fail then.

    Raises:
        SettingsError: there is no such model, device or dtype.
        DataError: an item cannot be made into tokens.
        MissingExtra: torch, transformers or peft is not installed.
    """
    base = open_base(choices.model, device=choices.device, dtype=choices.dtype)
    form = choices.form(base.tokenizer)
    tokenizing = Tokenizing(base.tokenizer, choices.limits(base.positions))
    rows = tokenizing.items([form.render(item) for item in (*items, *test)])[: len(items)]
    premise = 0
    if choices.normalization in ("pmi", "auto"):
        if choices.normalization == "auto":  # the longest premise that it may choose
            form = replace(form, pmi_context="last_line")
        longest = max(range(len(rows)), key=lambda n: row_tokens(rows[n]))
        premise = len(tokenizing.items([form.render_alone(items[longest])])[0].prompt)
    settled = replace(choices, device=base.device, dtype=base.dtype)
    return estimate(base.config, rows, settled, premise), base


def expect_fit(
    choices: ModelChoices, items: Sequence[Item], free: int, test: Sequence[Item] = ()
) -> None:
    """Refuse a run over `items` that would fill the memory.

    On a GPU it is a warning: no memory left there ends in a sentence, not in a machine that stands
    still.

    The bytes are those `free` before any weight was read.

    Raises:
        SettingsError, DataError, MissingExtra: as `planned`; the run needs more than 90% of the
            free memory of the CPU; or the base is to be quantized, and cannot be.
    """
    size, base = planned(choices, items, test)
    if base.dtype == NF4:
        not_quantized(base.name, base.config)
        quantization(computed_in(NF4, base.device))
    if size.memory <= SHARE * free:
        return
    sentence = (
        f"this run needs about {memory(size.memory)} of memory, more than 90% of the"
        f" {memory(free)} that are free ({memory(size.fixed)} by weights and what is trained):"
        " turn lm.gradient_checkpointing on, set a lower lm.batch_tokens or lm.max_len_prompt, or"
        " take a smaller dtype or model"
    )
    if base.device == "cpu":
        raise SettingsError(sentence)
    warn_user(f"on {base.device} {sentence}")


def free_bytes(device: str = "cpu") -> int:
    """Memory that a process could still take, of a GPU or of this machine."""
    if device.startswith("cuda"):
        return int(load_torch().cuda.mem_get_info(device)[0])
    return int(import_module("psutil").virtual_memory().available)  # a dependency of accelerate
