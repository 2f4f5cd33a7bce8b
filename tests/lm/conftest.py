"""Tiny random models of real shapes, a tokenizer trained on the fly, and one real small model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.lm.prompt.tokens import TokenItem

VOCABULARY = 101
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # wide enough that options differ by nats and a wrong mask cannot hide
    "initializer_range": 0.3,
}
TEXTS = [
    "Which vitamin is lacking in scurvy? The answer is vitamin C, ascorbic acid.",
    "def median(values): return the middle of the sorted values, or the mean of two.",
    "Question: what is the capital of France?\nA. Paris\nB. London\nAnswer: A",
    "naïve café, 東京, emoji 🙂 and tabs\tare all bytes in the end.",
]


def random_model(kind: str, **changes: Any) -> Any:
    """A random model of `kind` with its weights drawn from a fixed seed."""
    torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
    tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")

    torch.manual_seed(7)
    kinds: dict[str, Callable[[], Any]] = {
        "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**{**SHAPE, "head_dim": 8} | changes)),
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SHAPE | changes)),
        "mistral": lambda: tf.MistralForCausalLM(
            tf.MistralConfig(**SHAPE | {"sliding_window": 6} | changes)
        ),
        "gemma2": lambda: tf.Gemma2ForCausalLM(
            tf.Gemma2Config(**{**SHAPE, "head_dim": 8} | changes)
        ),
        "gemma3": lambda: tf.Gemma3ForConditionalGeneration(
            tf.Gemma3Config(
                text_config={**SHAPE, "head_dim": 8},
                vision_config={"hidden_size": 16, "intermediate_size": 16, "image_size": 28,
                               "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14},
                mm_tokens_per_image=4, image_token_index=90,
            )
        ),
        "gpt_oss": lambda: tf.GptOssForCausalLM(
            tf.GptOssConfig(**{**SHAPE, "head_dim": 8, "num_local_experts": 4} | changes)
        ),
        "opt": lambda: tf.OPTForCausalLM(
            tf.OPTConfig(vocab_size=VOCABULARY, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48,
                         num_hidden_layers=2, num_attention_heads=4, init_std=0.3)
        ),
        "gpt2": lambda: tf.GPT2LMHeadModel(
            tf.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256,
                          initializer_range=0.3)
        ),
        "bloom": lambda: tf.BloomForCausalLM(
            tf.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4,
                           initializer_range=0.3)
        ),
        "mamba": lambda: tf.MambaForCausalLM(
            tf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                           state_size=4, initializer_range=0.3)
        ),
        "t5": lambda: tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1,
                        num_heads=2)
        ),
    }  # fmt: skip
    return kinds[kind]().eval()


def adapted_model(model: Any) -> Any:
    """The model with a LoRA adapter that changes its output."""
    import torch

    peft = pytest.importorskip("peft", reason="peft is not installed (the extra lm)")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    with warnings.catch_warnings():  # peft asks transformers by a name that is on its way out
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        adapted = peft.get_peft_model(model, config)
    torch.manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:  # zero at the start: the adapter would be invisible
            torch.nn.init.normal_(parameter, std=0.2)
    return adapted


def make_items() -> list[TokenItem]:
    """Items of many shapes: long and short prompts, one-token options, shared beginnings."""
    import random

    draw = random.Random(5)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(1, VOCABULARY) for _ in range(count))

    shapes = [(20, (3, 5, 4)), (1, (2, 2)), (7, (1, 1, 1, 1)), (33, (6, 1)), (12, (4, 4, 4, 4, 4))]
    found = []
    for number, (prompt, lengths) in enumerate(shapes):
        options = [tokens(length) for length in lengths]
        if number == 4:  # two options that part at their last token
            options[1] = (*options[0][:-1], options[0][-1] % (VOCABULARY - 1) + 1)
        found.append(TokenItem(f"item {number}", tokens(prompt), tuple(options), lengths))
    return found


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    return random_model


@pytest.fixture(scope="session")
def with_lora() -> Callable[[Any], Any]:
    return adapted_model


@pytest.fixture
def items() -> list[TokenItem]:
    return make_items()


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level BPE with merges, without special tokens in front."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


@pytest.fixture(scope="session")
def model_folders(make_model: Any, tokenizer: Any, tmp_path_factory) -> dict[str, Path]:
    """Tiny models on disk, each with a tokenizer."""
    found = {}
    for kind in ("qwen3", "llama", "gpt2"):
        found[kind] = tmp_path_factory.mktemp("models") / kind
        model = make_model(kind, **({} if kind == "gpt2" else {"vocab_size": 400}))
        if kind == "gpt2":
            model.resize_token_embeddings(400)
        model.save_pretrained(found[kind])
        tokenizer.save_pretrained(found[kind])
    return found


@pytest.fixture
def open_model(model_folders: dict[str, Path]) -> Callable[..., Any]:
    """Loads one of them."""
    from stacksl.lm.loading import open_base

    def opened(kind: str = "qwen3", **settings: Any) -> Any:
        return open_base(str(model_folders[kind]), device="cpu", **settings)

    return opened


@pytest.fixture(scope="session")
def stories() -> Path:
    """A real pretrained model in the Llama format; the test is skipped where it is absent."""
    named = os.environ.get("STACKSL_DATA")
    root = Path(__file__).resolve().parents[3] / "shared"
    folder = (Path(named).parent if named else root) / "models" / "stories260K"
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"the model stories260K is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def folder(model_folders: dict[str, Path]) -> Path:
    """One of them."""
    return model_folders["qwen3"]
