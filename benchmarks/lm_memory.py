"""The memory that a run on a model of Qwen3-4B's shape needs by the estimator; no weight is read.

    python benchmarks/lm_memory.py

LoRA on every linear layer, steps of eight items of 512 tokens each: a prompt of 472 and five
options of 8. A row takes half a minute.
"""

from __future__ import annotations

from typing import Any

SHAPE: dict[str, Any] = {
    "vocab_size": 151_936, "hidden_size": 2560, "intermediate_size": 9728,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
ROWS = [
    (dtype, *rest)
    for dtype in ("float32", "bfloat16")
    for rest in (("no", 4096), ("no", 1024), ("yes", 4096))
]
ROWS.append(("nf4", "yes", 4096))


def main() -> None:
    """Print the table."""
    import transformers as tf

    from stacksl.lm import ModelChoices, TokenItem, TrainSettings
    from stacksl.lm.memory.size import plan

    items = [
        TokenItem(str(n), (7,) * 472, tuple((k, *(7,) * 7) for k in range(5)), (1,) * 5)
        for n in range(32)
    ]
    print(
        "| dtype | checkpointing | `batch_tokens` | weights | activations | to train | to score |"
    )
    print("|---|---|---|---|---|---|---|")
    for dtype, again, most in ROWS:
        training = TrainSettings(checkpointing=again == "yes", save_every=200)
        choices = ModelChoices("shape", dtype=dtype, batch_tokens=most, training=training)
        size = plan(tf.Qwen3Config(**SHAPE), items, choices, (100,))
        counts = (size.training.weights, size.training.activations, size.training.total,
                  size.scoring.total)  # fmt: skip
        cells = " | ".join(f"{count / 1e9:.1f}" for count in counts)
        print(f"| {dtype} | {again} | {most:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
