"""Pretrain the sample model: a small language model of Qwen3's shape on Python's own library.

The text is what ships with Python: the source of the standard library with its comments and
docstrings, tests left out, and for each documented function its first sentence as a comment above
its signature. Nothing else is read: no package, no download.

    python scripts/pretrain_sample.py --out sample-model --minutes 60

A GPU is used where there is one. The folder holds the weights in bf16 safetensors, the tokenizer
and `pretraining.json`, which says what it was made from; transformers loads it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import platform
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

END = "<|endoftext|>"
LEFT_OUT = ("test", "tests", "idle_test", "site-packages", "__pycache__", "ensurepip", "turtledemo")
HELD_OUT = 0.02  # share of modules whose loss is watched and never trained on


@dataclass(frozen=True)
class Shape:
    """The size of the model: some 5.8 million parameters, embeddings tied."""

    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    key_value_heads: int = 2
    head_dim: int = 64
    inner: int = 768
    context: int = 512


def modules() -> Iterator[tuple[str, str]]:
    """(name, source) of the standard library's modules, in a fixed order, tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if any(part in LEFT_OUT or part.startswith("test_") for part in parts):
            continue
        try:
            yield "/".join(parts), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def described(source: str) -> Iterator[str]:
    """Each documented function as its first sentence, a comment, above its signature."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if len(words) >= 15:
                head = "class" if isinstance(node, ast.ClassDef) else "def"
                yield f"# {words[:300]}\n{head} {node.name}("


def held_out(name: str) -> bool:
    """Whether a module is kept from training, by a hash of its name."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 1000 < 1000 * HELD_OUT


def train_tokenizer(texts: list[str], size: int) -> Any:
    """A byte-level BPE of `size` tokens, trained on the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(shape: Shape) -> Any:
    """A Qwen3 model of that shape with random weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return Qwen3ForCausalLM(config)


def encode(tokenizer: Any, texts: list[str]) -> np.ndarray:
    """All texts in one row of tokens, each ended."""
    rows = [np.array([*each.ids, 0], dtype=np.int32) for each in tokenizer.encode_batch(texts)]
    return np.concatenate(rows)


class Batches:
    """Windows of a source row and of a row of described functions, drawn by one generator.

    Three windows in four are source, the fourth is made of described functions.
    """

    def __init__(self, source: np.ndarray, pairs: np.ndarray, length: int, seed: int) -> None:
        self.rows, self.length = (source, pairs), length
        self.rng = np.random.default_rng(seed)

    def draw(self, count: int) -> torch.Tensor:
        """(count, length + 1) tokens."""
        windows = []
        for number in range(count):
            row = self.rows[number % 4 == 3]
            start = int(self.rng.integers(len(row) - self.length - 1))
            windows.append(row[start : start + self.length + 1])
        return torch.from_numpy(np.stack(windows).astype(np.int64))


def loss_of(model: Any, tokens: torch.Tensor, device: str) -> torch.Tensor:
    """Mean cross-entropy of the next token (nats), in bf16 autocast."""
    tokens = tokens.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(input_ids=tokens[:, :-1]).logits
    flat = logits.float().reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, tokens[:, 1:].reshape(-1))


def rate(share: float) -> float:
    """The learning rate at a share of the time: linear warm-up, then cosine decay to a tenth."""
    if share < 0.02:
        return share / 0.02
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (share - 0.02) / 0.98))


def train(model: Any, batches: Batches, watch: torch.Tensor, words: Any, device: str) -> dict:
    """Train for `words.minutes`; the last losses and how many tokens were seen."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=words.learning_rate, betas=(0.9, 0.95))
    begin, steps, mean = time.monotonic(), 0, math.log(model.config.vocab_size)
    while (share := (time.monotonic() - begin) / (60 * words.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = words.learning_rate * rate(share)
        loss = loss_of(model, batches.draw(words.batch), device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        mean += 0.02 * (float(loss.detach()) - mean)
        if steps % 50 == 0:
            print(f"{share:6.1%}  step {steps}  loss {mean:.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        watched = [loss_of(model, part, device).item() for part in watch.split(8)]
    tokens = steps * words.batch * batches.length
    return {
        "steps": steps,
        "tokens": tokens,
        "loss": mean,
        "held_out_loss": float(np.mean(watched)),
    }


def save(model: Any, tokenizer: Any, out: Path, record: dict[str, Any]) -> None:
    """The weights in bf16 safetensors, the tokenizer as transformers reads it, and the record."""
    from transformers import PreTrainedTokenizerFast

    model.to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, pad_token=END
    )
    wrapped.save_pretrained(out)
    (out / "pretraining.json").write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    """Read the library, train tokenizer and model, write the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=16, help="windows a step")
    parser.add_argument("--length", type=int, default=256, help="tokens a window")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    torch.manual_seed(words.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    everything = list(modules())
    texts = [text for name, text in everything if not held_out(name)]
    pairs = ["\n\n".join(described(text)) for text in texts]
    tokenizer = train_tokenizer(texts, Shape.vocabulary)
    source, described_row = encode(tokenizer, texts), encode(tokenizer, [p for p in pairs if p])
    watch_row = encode(tokenizer, [text for name, text in everything if held_out(name)])
    count = len(watch_row) // (words.length + 1)
    watch = torch.from_numpy(watch_row[: count * (words.length + 1)].astype(np.int64))
    watch = watch.reshape(count, -1)[:256]
    model = build(Shape()).to(device)
    size = sum(p.numel() for p in model.parameters())
    print(
        f"{len(texts)} modules, {len(source):,} tokens, {size:,} parameters, {device}", flush=True
    )
    batches = Batches(source, described_row, words.length, words.seed)
    result = train(model, batches, watch, words, device)
    record = {
        "python": platform.python_version(),
        "text": hashlib.sha256("\0".join(texts).encode()).hexdigest(),
        "modules": len(texts),
        "source_tokens": len(source),
        "parameters": size,
        "minutes": words.minutes,
        "batch": words.batch,
        "length": words.length,
        "learning_rate": words.learning_rate,
        "seed": words.seed,
        "device": device,
        **result,
    }
    save(model, tokenizer, words.out, record)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
