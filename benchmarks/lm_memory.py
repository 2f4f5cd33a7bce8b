"""The arithmetic of memory next to the measured peak of processes, and for a model of 4 billion.

    python benchmarks/lm_memory.py
    python benchmarks/lm_memory.py --estimates

Random models of some 20 million parameters score four items or take two training steps on them,
each in a process of its own; a row takes a minute on a quiet core. Measured is the largest resident
set above that after the imports (Linux). glibc keeps freed blocks of less than 32 MB for itself,
which tensors this small are and those of larger models are not, so it is told to give them back.

`--estimates` leaves the measuring out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COMMON: dict[str, Any] = {"vocab_size": 16_000, "hidden_size": 384, "num_hidden_layers": 8}
COMMON |= {"num_attention_heads": 6, "max_position_embeddings": 2048}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {"intermediate_size": 1024},
    "GPTNeoX": {"intermediate_size": 1536},
    "Qwen3": {"intermediate_size": 1152, "num_key_value_heads": 2, "head_dim": 64,
              "tie_word_embeddings": True},
}  # fmt: skip
PASSES = ("score", "train", "train, checkpointing")
LARGE: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 2560, "intermediate_size": 9728,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
LARGE_ROWS = [
    (dtype, *rest)
    for dtype in ("float32", "bfloat16")
    for rest in (("no", 4096), ("no", 1024), ("yes", 4096))
]
LARGE_ROWS.append(("nf4", "yes", 4096))


def items_of(count: int, prompt: int, option: int, vocabulary: int) -> list[Any]:
    """Items of five options of so many tokens each."""
    from stacksl.lm.prompt.tokens import TokenItem

    return [
        TokenItem(
            str(n),
            tuple((n + 7 * place) % vocabulary for place in range(prompt)),
            tuple((k, *range(n + 1, n + option)) for k in range(5)),
            (1,) * 5,
        )
        for n in range(count)
    ]


def make(kind: str, folder: Path) -> None:
    """Leave a random model and a tokenizer of bytes in `folder`."""
    import tokenizers as tk
    import transformers as tf

    config = getattr(tf, f"{kind}Config")(**COMMON | MODELS[kind])
    tf.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = tk.pre_tokenizers.ByteLevel.alphabet()
    trainer = tk.trainers.BpeTrainer(
        special_tokens=["<end>"], initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(["a b c"], trainer)
    tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(
        folder
    )


def measure(folder: str, what: str) -> None:
    """Print parameters, estimate and measured peak of one kind of pass, in bytes, as JSON."""
    import peft
    import torch
    import transformers as tf

    from stacksl.lm.settings import ModelChoices, TrainSettings
    from stacksl.lm.size import estimate
    from stacksl.lm.training.refit import Example
    from stacksl.lm.worker import Worker

    torch.set_num_threads(1)
    assert peft.LoraConfig
    config = tf.AutoConfig.from_pretrained(folder)
    tf.AutoModelForCausalLM._model_mapping[type(config)]  # its module is an import, too
    training = TrainSettings(gradient_checkpointing=what != "train", batch_size=4, epochs=2)
    choices = ModelChoices(
        folder, device="cpu", dtype="float32", batch_tokens=1024, training=training
    )
    items = items_of(4, 200, 10, COMMON["vocab_size"])
    needs = estimate(config, items, choices)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is resident now
    worker = Worker()
    worker.open(choices, 0)
    if what == "score":
        worker.states(items)
    else:
        some = [Example(item, None, 0, tuple(range(5)), (0.0,) * 5) for item in items]
        worker.train(some, training, 0, 0)
    peak = status("VmHWM") - before
    memory = needs.scoring if what == "score" else needs.training
    print(json.dumps([needs.parameters, memory, peak]))


def status(name: str) -> int:
    """A size of this process in bytes, as Linux tells it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(name))
    return 1024 * int(found.split()[1])


def measured() -> None:
    """Print the table of measured peaks."""
    print("| model | parameters | pass | estimated, MB | measured, MB | estimate is |")
    print("|---|---|---|---|---|---|")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 16)}
    for kind in MODELS:
        with TemporaryDirectory() as folder:
            make(kind, Path(folder))
            for what in PASSES:
                words = [sys.executable, __file__, folder, what]
                done = subprocess.run(
                    words, env=environment, capture_output=True, text=True, check=True
                )
                count, planned, peak = json.loads(done.stdout)
                cells = f"{planned / 1e6:.0f} | {peak / 1e6:.0f} | {planned / peak - 1:+.0%}"
                print(f"| {kind} | {count / 1e6:.1f} million | {what} | {cells} |", flush=True)


def estimates() -> None:
    """Print the table of a model of Qwen3-4B's shape, in steps of eight items of 512 tokens."""
    import transformers as tf

    from stacksl.lm.settings import ModelChoices, TrainSettings
    from stacksl.lm.size import estimate

    items = items_of(32, 472, 8, LARGE["vocab_size"])
    print("| dtype | checkpointing | `batch_tokens` | weights | to train | to score |")
    print("|---|---|---|---|---|---|")
    for dtype, again, most in LARGE_ROWS:
        training = TrainSettings(gradient_checkpointing=again == "yes")
        choices = ModelChoices("shape", dtype=dtype, batch_tokens=most, training=training)
        needs = estimate(tf.Qwen3Config(**LARGE), items, choices)
        counts = (needs.weights, needs.training, needs.scoring)
        cells = " | ".join(f"{count / 1e9:.1f}" for count in counts)
        print(f"| {dtype} | {again} | {most:,} | {cells} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--estimates"]:
        estimates()
    elif sys.argv[1:]:
        measure(*sys.argv[1:])
    else:
        measured()
        print()
        estimates()
