"""A mixture of experts on the CPU: it is scored and trained, its experts have no adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from stacksl import run

from ..runs.lm_cases import QUICK, questions, tiny_model

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

SHAPE: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 16,
    "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.slow
def test_a_run_on_a_mixture_of_experts(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "base")  # for its tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**SHAPE))
    model.save_pretrained(folder)
    made = run(
        *questions(12), out=tmp_path / "run", budget=3, **QUICK,
        **{"lm.model": str(folder), "lm.refit_at": "1", "lm.dtype": "bfloat16"},
    )  # fmt: skip
    assert made.status()["state"] == "finished"
    table = made.folder.resolved()
    assert table["lm_path"] == "packed"
    weights = load_file(made.path / "model" / "adapter_model.safetensors")
    assert not any(".experts." in name for name in weights)
