"""The size of a run: its memory by arithmetic, what is refused.

`benchmarks/lm_memory.py` holds the arithmetic against the measured peaks of processes.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.settings import LoraSettings, ModelChoices, TrainSettings
from stacksl.lm.size import Size, estimate, expect_fit, free_bytes, planned

from ..runs.lm_cases import questions, tiny_model

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

VOCABULARY = 600
LAYERS = 4


def config(kind: str = "qwen3", **changes: Any) -> Any:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    kinds = {"qwen3": tf.Qwen3Config, "llama": tf.LlamaConfig, "mistral": tf.MistralConfig}
    return kinds[kind](**shape | changes)


def rows(count: int = 40, seed: int = 5) -> list[TokenItem]:
    """Items of 10 to 90 tokens of prompt and 2 to 5 options of 1 to 9 tokens."""
    draw = random.Random(seed)

    def some(size: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(size))

    found = []
    for number in range(count):
        options = tuple((each, *some(draw.randrange(9))) for each in range(draw.randrange(2, 6)))
        prompt = some(draw.randrange(10, 90))
        found.append(TokenItem(str(number), prompt, options, tuple(map(len, options))))
    return found


def choices(**changes: Any) -> ModelChoices:
    training: dict[str, Any] = {"objective": "ce", "epochs": 1, "batch_size": 25}
    training |= changes.pop("training", {})
    given: dict[str, Any] = {"model": "tiny", "dtype": "float32", "batch_tokens": 1024}
    return ModelChoices(**given | changes, training=TrainSettings(**training))


@pytest.fixture(scope="module")
def needs() -> Size:
    return estimate(config(), rows(), choices())


def test_parts_are_those_of_the_shapes(needs: Size) -> None:
    """Counted by hand: embeddings, layers, norms; LoRA of rank 16 on the seven matrices."""
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64
    layer = attention + 3 * 64 * 160 + 2 * 64 + 2 * 16
    assert needs.parameters == VOCABULARY * 64 + LAYERS * layer + 64
    shapes = [(64, 64), (64, 32), (64, 32), (64, 64), (64, 160), (64, 160), (160, 64)]
    assert needs.moving == LAYERS * sum(16 * (a + b) for a, b in shapes)
    assert needs.weights == 4 * needs.parameters
    # the adapter with the copy that it is reset to, its gradients, two moments
    assert needs.fixed == needs.weights + (2 + 1 + 2) * 4 * needs.moving


def test_activations_are_those_of_one_row() -> None:
    """A row of 10 tokens: twice what the matrices give and its mask, in four layers and in one."""
    item = TokenItem("a", (7,) * 6, ((1, 2), (3, 4)), (1, 1))
    given = 64 + 2 * 32 + 64 + 2 * 160 + 64
    layer = 4 * (2 * given + 10) * 10
    found = estimate(config(), [item], choices())
    assert found.training == found.fixed + LAYERS * layer + layer
    assert found.scoring == found.weights + 2 * 4 * found.moving + layer
    wide, logits = estimate(config(vocab_size=50_000), [item], choices()), 4 * 3 * 4 * 50_000
    assert wide.training == wide.fixed + LAYERS * layer + logits
    assert wide.scoring == wide.weights + 2 * 4 * wide.moving + logits
    again = estimate(config(), [item], choices(training={"gradient_checkpointing": True}))
    assert again.training == again.fixed + LAYERS * 4 * 64 * 10 + 2 * layer


def test_options_that_are_not_packed_bring_their_prompts() -> None:
    sliding = estimate(config("mistral", sliding_window=16), rows(), choices())
    packed = estimate(config("mistral", sliding_window=None), rows(), choices())
    assert (sliding.path, packed.path) == ("padded", "packed")
    assert sliding.training - sliding.fixed > 2 * (packed.training - packed.fixed)


def test_no_weight_is_made() -> None:
    """A model of 430 billion parameters: weights of 0.86 terabytes."""
    huge = config(hidden_size=2**17, intermediate_size=2**18, num_attention_heads=2**10)
    found = estimate(huge, rows(3), choices(dtype="bfloat16", lora=LoraSettings(rank=1)))
    assert found.weights > 8e11


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def test_a_mixture_of_experts_has_a_size() -> None:
    shape = tf.Qwen3MoeConfig(**{**config().to_dict(), "layer_types": None, **EXPERTS})
    found = estimate(shape, rows(12), choices(dtype="bfloat16"))
    alike = estimate(config(), rows(12), choices(dtype="bfloat16"))
    assert 0.3 < found.training / alike.training < 3.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("size") / "model"))


@pytest.fixture(scope="module")
def size(folder: str) -> Size:
    return planned(choices(model=folder), questions(8)[0])[0]


def test_a_premise_is_as_long_as_its_text(folder: str, size: Size) -> None:
    items = questions(8)[0]
    pmi, _ = planned(choices(model=folder, normalization="pmi", pmi_context="empty"), items)
    auto, _ = planned(choices(model=folder, normalization="auto"), items)
    sizes = [each.training - each.fixed for each in (size, pmi, auto)]
    assert sizes[0] < sizes[1] < sizes[2] <= 2 * sizes[0]


def test_a_run_that_fits_is_let_through_and_a_refusal_says_what_to_change(folder, size) -> None:
    items, fits = questions(8)[0], int(size.memory / 0.9)
    expect_fit(choices(model=folder), items, fits + 1)
    for free, lora, said in (
        (fits - 1, {}, r"more than 90% of the .*: turn lm.gradient_checkpointing on, set a lower"),
        (2**40, {"targets": ("x",)}, "no linear layer"),
    ):
        with pytest.raises(SettingsError, match=said):
            expect_fit(choices(model=folder, lora=LoraSettings(**lora)), items, free)


def test_memory_of_a_gpu_is_its_own(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little of it is a warning, as running out there ends in a sentence."""
    from stacksl.runs.session.language import expect_room
    from stacksl.runs.settings.resolve import resolve

    free = {"cuda:0": 80 * 10**9, "cuda:1": 10**5}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device], 80 * 10**9))
    assert {device: free_bytes(device) for device in free} == free
    items, _ = questions(12)

    def said(device: str) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            expect_room(resolve({"lm.model": folder, "lm.device": device}).settings, items)
        return [str(each.message) for each in seen if "this run needs" in str(each.message)]

    assert said("auto") == []
    assert said("cuda:0") == []
    (sentence,) = said("cuda:1")
    assert sentence.startswith("on cuda:1 this run needs about ")
    assert "more than 90% of the 0.0954 MiB that are free" in sentence
