"""The models, questions and lessons of `gpu_check.py`, and how scores and memory are read."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _gpu_tables import Row

SHAPES: dict[str, dict[str, int]] = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
             "num_attention_heads": 16},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
           "num_attention_heads": 32},
    "tiny": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "head_dim": 8, "vocab_size": 256},
}  # fmt: skip
KINDS = (
    "llama", "mistral", "gemma2", "gemma3", "gpt_oss", "phi3", "opt", "gpt2", "bloom", "falcon",
)  # fmt: skip
COMMON: dict[str, Any] = {
    "vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
_TEXT = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book eye
job word business issue side kind head house service friend father power hour game line end
member law car city community name president team minute idea body information back parent
face level office door health person art war history party result change morning
"""
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True)
class Case:
    """A model, where its files are, and how much is done with it.

    Attributes:
        name: as the tables have it.
        model: a folder, or a name on the hub.
        work: a folder for questions and runs.
        words: of a question's prompt; an option has ten.
        scored, learned: items that are scored for the time, and labels of the timed refit.
        window: tokens of the sliding window of the job `window`.
        questions, budget: of a run.
        settings: of a run, next to the recipe.
    """

    name: str
    model: str
    work: str
    words: int = 467
    scored: int = 512
    learned: int = 32
    window: int = 512
    questions: int = 60
    budget: int = 20
    settings: tuple[tuple[str, Any], ...] = ()


def case_of(size: str, work: Path, *, hub: bool) -> Case:
    """The model of a size, made of random weights unless the `hub` has it."""
    name = f"Qwen3-{size}"
    work.mkdir()
    if size == "tiny":
        small = {
            "words": 12,
            "scored": 4,
            "learned": 4,
            "questions": 16,
            "budget": 12,
            "window": 32,
        }
        model = make(size, work / "model")
        settings = (("batch_size", 4), ("epochs", 1), ("lora_rank", 2), ("state_dim", 8))
        return Case(name, model, str(work), **small, settings=settings)
    if hub:
        from stacksl.errors import StackslError
        from stacksl.lm.loading import open_base

        try:
            _ = open_base(f"Qwen/{name}-Base").weights
            return Case(name, f"Qwen/{name}-Base", str(work))
        except StackslError as error:
            print(f"random weights of its shape stand for {name}: {error}", flush=True)
    return Case(f"{name}, random", make(size, work / "model"), str(work))


def make(size: str, folder: Path, window: int | None = None) -> str:
    """Leave random weights in bfloat16 and a tokenizer of words in `folder`.

    With a sliding `window` they are of Mistral's kind.
    """
    import transformers as tf

    shape = COMMON | SHAPES[size]
    if window is None:
        config = tf.Qwen3Config(**shape)
    else:
        config = tf.MistralConfig(**shape, sliding_window=window)
    if size == "tiny":
        config.num_key_value_heads, config.initializer_range = 2, 0.3
    return saved(tf.AutoModelForCausalLM, config, folder)


def make_kind(kind: str, folder: Path, window: int, *, tiny: bool) -> str:
    """The same for a small model of another architecture, one of `KINDS`."""
    import transformers as tf

    wide, head, layers, longest = (32, 8, 2, 256) if tiny else (512, 64, 4, 1024)
    words = 256 if tiny else 4096
    common: dict[str, Any] = {
        "vocab_size": words, "hidden_size": wide, "num_hidden_layers": layers,
        "num_attention_heads": wide // head, "max_position_embeddings": longest,
    }  # fmt: skip
    shape = common | {"intermediate_size": 2 * wide, "num_key_value_heads": 2}
    spread = {"initializer_range": 0.3 if tiny else 0.06}  # so that options differ by nats
    with_heads = shape | spread | {"head_dim": head, "sliding_window": window}
    vision = {"hidden_size": 16, "intermediate_size": 16, "image_size": 28, "num_hidden_layers": 1,
              "num_attention_heads": 2, "patch_size": 14}  # fmt: skip
    old = {"vocab_size": words, "n_embd": wide, "n_head": wide // head, "n_layer": layers}
    makers: dict[str, Callable[[], Any]] = {
        "llama": lambda: tf.LlamaConfig(**shape, **spread),
        "mistral": lambda: tf.MistralConfig(**with_heads),
        "gemma2": lambda: tf.Gemma2Config(**with_heads),
        "gemma3": lambda: tf.Gemma3Config(
            text_config=with_heads, vision_config=vision, mm_tokens_per_image=4,
            image_token_index=words - 1,
        ),
        "gpt_oss": lambda: tf.GptOssConfig(**with_heads, num_local_experts=4),
        "phi3": lambda: tf.Phi3Config(**shape, **spread, pad_token_id=0),
        "opt": lambda: tf.OPTConfig(
            **common, ffn_dim=2 * wide, word_embed_proj_dim=wide, init_std=0.3 if tiny else 0.06
        ),
        "gpt2": lambda: tf.GPT2Config(**old, **spread, n_positions=longest),
        "bloom": lambda: tf.BloomConfig(
            **spread, vocab_size=words, hidden_size=wide, n_head=wide // head, n_layer=layers
        ),
        "falcon": lambda: tf.FalconConfig(**common, **spread),
    }  # fmt: skip
    of = tf.Gemma3ForConditionalGeneration if kind == "gemma3" else tf.AutoModelForCausalLM
    return saved(of, makers[kind](), folder)


def saved(of: Any, config: Any, folder: Path) -> str:
    """Leave random weights of a configuration and the tokenizer of words in `folder`."""
    import tokenizers as tk
    import torch
    import transformers as tf

    from stacksl.lm.loading import place_of

    torch.manual_seed(0)
    make = of._from_config if of is tf.Gemma3ForConditionalGeneration else of.from_config
    with torch.device(place_of("auto")):  # four billion normal numbers take minutes on a CPU
        model = make(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    known = {word: n for n, word in enumerate(["<end>", "Answer", *":.ABCD", *WORDS])}
    tokenizer = tk.Tokenizer(tk.models.WordLevel(known, unk_token="<end>"))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Whitespace()
    tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(
        folder
    )
    return str(folder)


def questions(case: Case, name: str, count: int, seed: int, options: int = 4) -> Path:
    """A file of questions of random words with four `options` each, or another number."""
    path, draw = Path(case.work) / f"{name}.jsonl", random.Random(seed)

    def some(size: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(size))

    rows = [
        {
            "id": f"{name}{n}",
            "prompt": some(case.words),
            "candidates": [some(10) for _ in range(options)],
            "answer": draw.randrange(options),
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def values(likelihood: Any, items: list[Any]) -> Row:
    """Nats a token of every option in one list, and their standard deviation within an item."""
    import torch

    with torch.no_grad():
        sums = [each.double().cpu() for each in likelihood.sums(items)]
    means = [
        each / torch.tensor([len(option) for option in item.options])
        for each, item in zip(sums, items, strict=True)
    ]
    spread = sum(float(each.std()) for each in means) / len(means)
    return {"nats": torch.cat(means).tolist(), "spread": spread}


def off(mine: list[float], others: list[float], name: str) -> Row:
    """The largest and the mean difference of two lists."""
    gaps = [abs(a - b) for a, b in zip(mine, others, strict=True)]
    return {f"{name}_largest": max(gaps), f"{name}_mean": sum(gaps) / len(gaps)}


def recipe(case: Case) -> Any:
    """The settings of a refit."""
    from stacksl.lm.settings import TrainSettings

    known = TrainSettings.__dataclass_fields__
    return TrainSettings(**{k: v for k, v in case.settings if k in known})


def opened(case: Case, count: int, options: int = 4, **choices: Any) -> tuple[Any, list[Any]]:
    """The model of a case, its weights not read yet, and token rows of `count` questions."""
    from stacksl.data import read
    from stacksl.lm.prompt.format import PromptFormat
    from stacksl.lm.prompt.tokens import Limits, Tokenizing
    from stacksl.lm.settings import ModelChoices
    from stacksl.lm.worker import Worker

    worker = Worker()
    worker.open(ModelChoices(case.model, training=recipe(case), **choices), 0)
    items = read(questions(case, "items", count, 3, options)).items
    prompts = [PromptFormat().render(item) for item in items]
    return worker, Tokenizing(worker.base.tokenizer, Limits()).items(prompts)


def lessons(items: list[Any]) -> list[Any]:
    """Items with their first option as the label."""
    from stacksl.lm.training.refit import Example

    return [Example(item, None, 0, tuple(range(4)), (0.0,) * 4) for item in items]


def peak() -> int | None:
    """The peak of torch's tensors on the GPU in bytes since it was last asked for."""
    import torch

    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated()
    free()
    torch.cuda.reset_peak_memory_stats()
    return int(most)


def free() -> None:
    """Give back the memory of what is no longer used."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
