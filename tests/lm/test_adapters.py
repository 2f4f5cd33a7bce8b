"""What moves in a model: where it begins, which layers, in which precision, and back again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError, SettingsError
from stacksl.files.atomic import whole_folder
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.settings import LoraSettings
from stacksl.lm.training.adapters import Adapter

from .adapter_cases import SMALL, scores, train
from .plain import by
from .training_cases import attached, same

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")


def test_the_initial_weights_come_from_the_seed_alone(open_model: Any) -> None:
    """Uniform on ±1/sqrt(in), whose variance is 1/(3 in), and zeros for B."""
    torch.manual_seed(5)
    one = Adapter(open_model(), SMALL, seed=1).state()
    torch.manual_seed(6)
    before = torch.random.get_rng_state()
    two = Adapter(open_model(), SMALL, seed=1).state()
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(one, two)
    other = Adapter(open_model(), SMALL, seed=2).state()
    assert not same(one, other)
    fewer = LoraSettings(rank=4, alpha=8.0, targets=("q_proj",))
    few = Adapter(open_model(), fewer, seed=1).state()
    assert few
    assert all(torch.equal(few[name], one[name]) for name in few)
    for name, tensor in Adapter(open_model(), LoraSettings(rank=64), seed=1).state().items():
        bound = 0.0 if "lora_B" in name else tensor.shape[1] ** -0.5
        assert tensor.abs().max() <= bound
        assert float(tensor.var()) == pytest.approx(bound**2 / 3, rel=0.1)


@pytest.mark.parametrize(("kind", "layers"), [("qwen3", 14), ("gpt2", 8), ("gpt_oss", 8)])
def test_every_linear_layer_but_the_output_and_experts_is_adapted(
    make_model: Any, kind: str, layers: int
) -> None:
    names = attached(make_model(kind)).state()
    assert len(names) == 2 * layers
    assert not any("lm_head" in name or ".experts." in name for name in names)


@pytest.mark.parametrize(("asked", "count"), [(None, 14), (("q_proj",), 2)])
def test_of_a_model_that_sees_the_language_part_is_adapted(
    make_model: Any, items: list[TokenItem], asked: tuple[str, ...] | None, count: int
) -> None:
    model = make_model("gemma3")
    assert any("vision" in name and name.endswith("q_proj") for name, _ in model.named_modules())
    adapter = attached(model, targets=asked)
    names = [name for name in adapter.state() if "lora_A" in name]
    assert len(names) == count
    assert all("language_model" in name for name in names)
    before = scores(adapter.model, items)
    train(adapter, items)
    assert (scores(adapter.model, items) - before).abs().max() > 0.1


def test_the_adapter_is_float32_beside_a_bfloat16_base(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    loaded = open_model(dtype="bfloat16")
    before = scores(loaded.model, items)
    adapter = Adapter(loaded, SMALL, seed=1)
    assert torch.equal(scores(adapter.model, items), before)
    train(adapter, items, steps=1)
    assert {tensor.dtype for tensor in adapter.state().values()} == {torch.float32}
    adapter.save(tmp_path / "saved")
    state = adapter.state()
    adapter.reset()
    adapter.load(tmp_path / "saved")
    assert same(adapter.state(), state)


def test_checkpointing_changes_no_gradient(open_model: Any, items: list[TokenItem]) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    train(adapter, items, steps=1)  # B is 0 at the start, and A's gradients with it

    def gradients() -> list[Any]:
        adapter.model.zero_grad()
        adapter.model.train()
        torch.cat(by("packed", adapter.model).sums(items)).sum().backward()
        adapter.model.eval()
        return [parameter.grad.clone() for parameter in adapter.parameters()]

    kept, calls = gradients(), []
    handle = next(
        module for name, module in adapter.model.named_modules() if name.endswith("layers.0.mlp")
    ).register_forward_pre_hook(lambda *_: calls.append(1))
    with adapter.checkpointing():
        for got, expected in zip(gradients(), kept, strict=True):
            assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)
    twice = len(calls)
    calls.clear()
    gradients()
    assert twice > len(calls) > 0
    handle.remove()


def test_a_model_that_cannot_recompute_says_so(open_model: Any, monkeypatch) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    kind = type(adapter.model.get_base_model())
    monkeypatch.setattr(kind, "supports_gradient_checkpointing", False)
    with (
        pytest.raises(SettingsError, match="its activations: leave lm.gradient_check"),
        adapter.checkpointing(),
    ):
        pass


def test_what_is_wrong_is_said(open_model: Any, tmp_path: Path) -> None:
    loaded = open_model()
    with pytest.raises(
        SettingsError,
        match="names 'query', which is no linear layer below the output of this model: choose from "
        "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj$",
    ):
        Adapter(loaded, LoraSettings(targets=("q_proj", "query")), seed=1)
    adapter = Adapter(loaded, SMALL, seed=1)
    with pytest.raises(RunError, match="absent or damaged, so put back a copy"):
        adapter.load(tmp_path / "none")


# What moves can be saved and read again, by PEFT alone too, and from nothing else ----------------


def test_a_save_replaces_a_model_but_nothing_else(open_model: Any, tmp_path: Path) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    (tmp_path / "saved").mkdir()
    adapter.save(tmp_path / "saved")
    (tmp_path / "saved" / "left over").write_text("x")
    adapter.save(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="holds no model, so it is not replaced"):
        adapter.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").is_file()
    assert [path.name for path in tmp_path.glob(".tmp-*")] == []


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def broken() -> None:
        with whole_folder(tmp_path / "a" / "model") as draft:
            (draft / "config.json").write_text("{}")
            raise Stop

    with pytest.raises(Stop):
        broken()
    assert list((tmp_path / "a").iterdir()) == []
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(RunError, match="cannot write the model folder"),
        whole_folder(tmp_path / "file" / "model"),
    ):
        pass


def test_folders_of_other_adapters_are_refused(open_model: Any, tmp_path: Path) -> None:
    good = tmp_path / "good"
    adapter = Adapter(open_model(), SMALL, seed=1)
    adapter.save(good)
    other = Adapter(open_model(), LoraSettings(rank=2, alpha=8.0), seed=1)
    with pytest.raises(RunError, match="is not of this adapter's shape"):
        other.load(good)
    fewer = LoraSettings(rank=4, alpha=8.0, targets=("q_proj",))
    with pytest.raises(RunError, match="24 of 4 tensors differ"):
        Adapter(open_model(), fewer, seed=1).load(good)
    weights = good / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(RunError, match="absent or damaged, so put back a copy"):
        adapter.load(good)
