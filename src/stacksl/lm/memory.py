"""The memory that passes of a language model need, by an arithmetic over the shapes of its layers.

No pass is made and no weight is read: the model is built on torch's device `meta`, where tensors
have shapes and no contents. What a pass keeps follows from how many numbers its linear layers give,
which is right within a quarter (docs/lm.md has estimates beside measured peaks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.quantised import QUANTISED, computed_in, linear_bytes
from stacksl.lm.reading import load_transformers, quiet
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.settings import ModelChoices
from stacksl.lm.training.adapters import adapted_layers, linear_layers, stacks

FLOAT = 4  # bytes of a trained number, in every dtype of the base
_MOMENTS = 2  # of AdamW, each as large as what is trained
_KEPT = 2  # numbers that a layer keeps for its backward pass for each one that a matrix gives


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of tensors at the fullest moment, by what they are for.

    Attributes:
        weights: of the base model.
        adapter: LoRA weights, with the copies that the run keeps of them.
        gradients, optimiser: of what is trained.
        activations: what the passes hold besides.
        logits: tensors as wide as the vocabulary.
    """

    weights: int
    adapter: int = 0
    gradients: int = 0
    optimiser: int = 0
    activations: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        held = self.weights + self.adapter + self.gradients + self.optimiser
        return held + self.activations + self.logits


@dataclass(frozen=True, slots=True)
class Needs:
    """What the passes of a run hold.

    Attributes:
        parameters: of the base model.
        moving: numbers that are trained.
        path: how options are scored.
        scoring, training: the memory of either.
    """

    parameters: int
    moving: int
    path: str
    scoring: Memory
    training: Memory


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rows that go through the model at a time, each as long as the longest.

    Attributes:
        tokens: of all rows.
        masks: numbers of their masks.
        scored: tokens that logits are made for.
    """

    tokens: int
    masks: int
    scored: int

    @classmethod
    def of(cls, rows: int, prompt: int, items: Sequence[TokenItem], path: str) -> _Batch:
        tail = max(sum(map(len, item.options)) for item in items)
        if path == "packed":
            return cls(rows * (prompt + tail), rows * (prompt + tail) ** 2, rows * tail)
        options = max(len(item.options) for item in items)
        return cls(rows * (options * prompt + tail), 0, rows * tail)


def row_tokens(item: TokenItem) -> int:
    """Tokens of a packed row with every option's last one: P + Σ L_i."""
    return len(item.prompt) + sum(map(len, item.options))


def estimate(
    config: Any, items: Sequence[TokenItem], choices: ModelChoices, premise: int = 0
) -> Needs:
    """The memory of the fullest batch of scoring, and of the fullest of a training step.

    Args:
        config: the model's configuration, of transformers.
        items: the token rows of everything that is to be scored, one at least.
        choices: the rest; `dtype` is not `auto`.
        premise: tokens behind which `pmi` scores the options once more; 0 where it does not.

    Raises:
        SettingsError: a LoRA target that the model lacks, or a path that does not fit.
        MissingExtra: torch or transformers is not installed.
    """
    torch, text = load_torch(), config.get_text_config()
    kind = getattr(torch, computed_in(choices.dtype, "cpu"))
    with quiet(), torch.device("meta"):
        model = load_transformers().AutoModelForCausalLM.from_config(config, dtype=kind)
    path = Likelihood(model, path=choices.path).path
    adapted = adapted_layers(model, choices.lora.targets).values()
    moving = choices.lora.rank * sum(sum(layer.weight.shape) for layer in adapted)
    weights, transient = _weights(model, choices.dtype)

    number, layers = kind.itemsize, int(text.num_hidden_layers)
    hidden = int(text.hidden_size)
    layer = _KEPT * number * _outputs(model, text) // layers  # bytes of one layer for a token
    if number < FLOAT:  # the inputs of its two norms
        layer += 2 * FLOAT * hidden
    # bytes of the logits of a token, of their log-softmax and of a gradient or a copy in float32
    word = (number + 2 * FLOAT) * int(text.vocab_size)
    longest = max(map(row_tokens, items))
    prompt = max(len(item.prompt) for item in items)
    most = min(len(items), max(1, choices.batch_tokens // longest))

    batch = _Batch.of(min(most, BLOCK), prompt, items, path)
    scoring = _fullest(
        Memory(weights, adapter=2 * FLOAT * moving, activations=transient),
        layer * batch.tokens + FLOAT * batch.masks,
        # the plain pass that a path is checked against makes logits of a whole row
        max(word * batch.scored, number * int(text.vocab_size) * longest),
    )

    recipe, rows = choices.training, min(most, choices.training.batch_size)
    passes = [_Batch.of(rows, length, items, path) for length in (prompt, premise) if length]
    tokens, masks, scored = (
        sum(getattr(each, name) for each in passes) for name in ("tokens", "masks", "scored")
    )
    kept, passing = layers * (layer * tokens + number * masks), layer * tokens
    if recipe.checkpointing:  # what goes into each layer; one layer's are made again
        kept = layers * number * hidden * tokens
        passing = 2 * layer * tokens + number * masks
    second = recipe.pulls and recipe.reference != "frozen"
    training = _fullest(
        Memory(
            weights,
            adapter=(2 + second) * FLOAT * moving,
            gradients=FLOAT * moving,
            optimiser=_MOMENTS * FLOAT * moving,
            activations=kept + transient,
        ),
        passing,
        word * scored,
    )
    parameters = sum(int(each.numel()) for each in model.parameters())
    return Needs(parameters, moving, path, scoring, training)


def _fullest(held: Memory, layer: int, logits: int) -> Memory:
    """What is held with the larger of one layer's numbers and the logits, which are not at once."""
    if logits > layer:
        return replace(held, logits=logits)
    return replace(held, activations=held.activations + layer)


def _weights(model: Any, dtype: str) -> tuple[int, int]:
    """Bytes of the weights, and those of the largest quantised one, which a pass makes whole."""
    whole = sum(int(each.nbytes) for each in model.parameters())
    if dtype not in QUANTISED:
        return whole, 0
    matrices = [layer.weight for layer in linear_layers(model).values()]
    small = sum(linear_bytes(each.shape[0], each.shape[1], dtype) for each in matrices)
    return (
        whole - sum(int(each.nbytes) for each in matrices) + small,
        max(int(each.nbytes) for each in matrices),
    )


def _outputs(model: Any, text: Any) -> int:
    """How many numbers all linear layers together give for a token, those of its experts too."""
    given = sum(
        int(each.nf if hasattr(each, "nf") else each.out_features)
        for each in linear_layers(model).values()
    )
    experts = int(getattr(text, "num_experts_per_tok", None) or 1)
    return given + experts * sum(int(sum(each.shape[1:])) // 2 for each in stacks(model))
