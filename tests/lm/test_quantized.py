"""A base in 4 bits: what is asked of transformers, refused, estimated; and, where bitsandbytes
is installed, what comes out of it on the CPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl.lm.export.folder import card_text, model_arguments
from stacksl.lm.loading import open_base
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.quantized import computed_in, quantization, quantized_bytes
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.settings import LoraSettings
from stacksl.lm.size import estimate
from stacksl.lm.training.adapters import Adapter

from .test_handover import FACTS, about_of
from .test_size import choices, config, rows
from .training_cases import moved

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")
HERE = find_spec("bitsandbytes") is not None
with_library = pytest.mark.skipif(not HERE, reason="bitsandbytes is not installed")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A bitsandbytes that quantizes nothing."""
    made = SimpleNamespace(supported_torch_devices={"cpu", "cuda"}, __version__="0.50.2")
    monkeypatch.setitem(sys.modules, "bitsandbytes", made)
    return made


def test_a_run_without_the_library_writes_nothing(monkeypatch, tmp_path) -> None:
    from stacksl import run

    from ..runs.lm_cases import QUICK, questions

    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    named = {"lm.model": "sample", "lm.dtype": "nf4"}
    with pytest.raises(SettingsError, match="needs the library bitsandbytes"):
        run(*questions(12), out=tmp_path / "run", budget=3, **named, **QUICK)
    assert not (tmp_path / "run").exists()


def test_what_transformers_is_asked_for(monkeypatch, library: SimpleNamespace) -> None:
    monkeypatch.setattr("transformers.BitsAndBytesConfig", lambda **given: given)
    assert quantization("float16") == {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": torch.float16,
    }
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert [computed_in("nf4", place) for place in ("cpu", "cuda:0")] == ["bfloat16", "float16"]


def test_quantized_weights_are_not_quantized_again(
    library: SimpleNamespace, model_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stacksl.lm import loading

    real = loading.read_config

    def told(*given: Any) -> Any:
        found = real(*given)
        found.quantization_config = {"quant_method": "gptq"}
        return found

    monkeypatch.setattr(loading, "read_config", told)
    with pytest.raises(SettingsError, match="are quantized already, and dtype 'nf4' would"):
        _ = open_base(str(model_folders["qwen3"]), device="cpu", dtype="nf4").model


def test_card_and_command_say_what_the_scores_are_of(open_model: Any) -> None:
    about = about_of(open_model(), dtype="nf4")
    text = card_text(about, FACTS)
    assert "| Computed in | nf4 |" in text
    assert "over a base quantized to nf4 by bitsandbytes" in text
    assert 'dtype="bfloat16"' in text
    assert model_arguments(about, "x")["dtype"] == "bfloat16"
    assert "quantized" not in card_text(replace(about, dtype="bfloat16"), FACTS)


def test_the_estimate_has_the_base_in_fewer_bytes() -> None:
    items, of = rows(), config(hidden_size=128, intermediate_size=512)
    half, small = (
        estimate(of, items, choices(dtype=name, batch_tokens=200)) for name in ("bfloat16", "nf4")
    )
    shapes = [(64, 128), (32, 128), (32, 128), (128, 64), (512, 128), (512, 128), (128, 512)]
    saved = sum(2 * r * c - quantized_bytes(r * c) for r, c in shapes)
    assert small.weights == half.weights - 4 * saved
    transient = 2 * 128 * 512  # the largest layer, made whole for its pass
    fixed = [each.fixed - each.weights for each in (small, half)]
    assert fixed == [fixed[1] + transient, fixed[1]]
    assert small.parameters == half.parameters


@with_library
def test_weights_take_the_bytes_of_the_estimate() -> None:
    model = open_base("sample", device="cpu", dtype="nf4").model
    found = estimate(model.config, rows(), choices(model="sample", dtype="nf4"))
    assert model.get_memory_footprint() == pytest.approx(found.weights, rel=0.05)


@with_library
def test_gradients_are_those_over_the_weights_made_whole_again(items: list[TokenItem]) -> None:
    from bitsandbytes.functional import dequantize_4bit

    small, whole = (open_base("sample", device="cpu", dtype=name) for name in ("nf4", "bfloat16"))
    layers = dict(small.model.named_modules())
    with torch.no_grad():
        for name, module in whole.model.named_modules():
            state = getattr(getattr(layers[name], "weight", None), "quant_state", None)
            if state is not None:
                module.weight.copy_(dequantize_4bit(layers[name].weight.data, state))
        Likelihood(small.model).sums(items)  # a pass without gradients, as before every refit
    found = []
    for loaded in (small, whole):
        adapter = moved(Adapter(loaded, LoraSettings(), seed=1))
        sums = Likelihood(adapter.model).sums(items)
        torch.stack([each.log_softmax(-1)[0] for each in sums]).sum().backward()
        found.append([torch.cat(sums), *(each.grad for each in adapter.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=1e-3)
