"""What moves can be put back, saved and read again, and a second adapter follows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import MissingExtra, RunError, SettingsError
from stacksl.lm import Likelihood, TokenItem
from stacksl.lm.adapters import Adapter, LoraSettings
from stacksl.lm.folders import whole_folder
from stacksl.lm.loading import Loaded, load

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

KINDS = ("lora", "full")
SMALL = LoraSettings(rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def folders(
    make_model: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
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
def open_model(folders: dict[str, Path]) -> Callable[..., Loaded]:
    def opened(kind: str = "qwen3", **settings: Any) -> Loaded:
        return load(str(folders[kind]), device="cpu", **settings)

    return opened


def scores(model: Any, items: list[TokenItem]) -> Any:
    with torch.no_grad():
        return torch.cat(Likelihood(model, path="naive").sums(items))


def train(adapter: Adapter, items: list[TokenItem], steps: int = 3) -> None:
    """Steps that raise the first option of every item."""
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = -torch.stack(
            [each.log_softmax(0)[0] for each in Likelihood(adapter.model).sums(items)]
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_begins_as_the_base_to_the_bit(
    open_model: Any, items: list[TokenItem], kind: str
) -> None:
    loaded = open_model()
    before = scores(loaded.model, items)
    adapter = Adapter.attach(loaded, kind, SMALL, seed=1)
    assert torch.equal(scores(adapter.model, items), before)


@pytest.mark.parametrize("kind", KINDS)
def test_reset_is_bit_for_bit(open_model: Any, items: list[TokenItem], kind: str) -> None:
    adapter = Adapter.attach(open_model(), kind, SMALL, seed=1)
    initial, mark, first = adapter.state(), adapter.fingerprint(), scores(adapter.model, items)
    train(adapter, items)
    assert not same(adapter.state(), initial)
    assert adapter.fingerprint() != mark
    assert (scores(adapter.model, items) - first).abs().max() > 0.1
    adapter.reset()
    assert same(adapter.state(), initial)
    assert adapter.fingerprint() == mark
    assert torch.equal(scores(adapter.model, items), first)


@pytest.mark.parametrize("kind", KINDS)
def test_training_after_a_reset_is_the_training_before_it(
    open_model: Any, items: list[TokenItem], kind: str
) -> None:
    adapter = Adapter.attach(open_model(), kind, SMALL, seed=1)
    train(adapter, items)
    once = adapter.state()
    adapter.reset()
    train(adapter, items)
    assert same(adapter.state(), once)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_adapter_scores_as_before(
    open_model: Any, items: list[TokenItem], tmp_path: Path, kind: str
) -> None:
    adapter = Adapter.attach(open_model(), kind, SMALL, seed=1)
    train(adapter, items)
    adapter.save(tmp_path / "saved")
    expected = scores(adapter.model, items)
    other = Adapter.attach(open_model(), kind, SMALL, seed=2)
    assert other.fingerprint() != adapter.fingerprint()
    other.load(tmp_path / "saved")
    assert float((scores(other.model, items) - expected).abs().max()) == 0.0
    assert other.fingerprint() == adapter.fingerprint()


def test_the_initial_weights_come_from_the_seed_alone(open_model: Any) -> None:
    torch.manual_seed(5)
    one = Adapter.attach(open_model(), "lora", SMALL, seed=1).state()
    torch.manual_seed(6)
    before = torch.random.get_rng_state()
    two = Adapter.attach(open_model(), "lora", SMALL, seed=1).state()
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(one, two)
    other = Adapter.attach(open_model(), "lora", SMALL, seed=2).state()
    assert not same(one, other)
    fewer = LoraSettings(rank=4, alpha=8.0, targets=("q_proj",))
    few = Adapter.attach(open_model(), "lora", fewer, seed=1).state()
    assert few
    assert all(torch.equal(few[name], one[name]) for name in few)


def test_the_initial_weights_have_the_range_of_kaiming(open_model: Any) -> None:
    state = Adapter.attach(open_model(), "lora", LoraSettings(rank=64), seed=1).state()
    for name, tensor in state.items():
        if "lora_B" in name:
            assert not tensor.any()
        else:  # uniform on ±1/sqrt(in): its variance is 1/(3 in)
            bound = tensor.shape[1] ** -0.5
            assert tensor.abs().max() <= bound
            assert float(tensor.var()) == pytest.approx(bound**2 / 3, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "head", "layers"), [("qwen3", "lm_head", 14), ("gpt2", "lm_head", 8)]
)
def test_every_linear_layer_but_the_output_is_adapted(
    open_model: Any, kind: str, head: str, layers: int
) -> None:
    adapter = Adapter.attach(open_model(kind), "lora", SMALL, seed=1)
    names = adapter.state()
    assert len(names) == 2 * layers
    assert not any(head in name for name in names)


def test_an_output_that_shares_a_name_is_still_left_out(open_model: Any) -> None:
    loaded = open_model("llama")
    head = loaded.model.lm_head
    del loaded.model.lm_head
    loaded.model.q_proj = head
    loaded.model.get_output_embeddings = lambda: head
    names = Adapter.attach(loaded, "lora", SMALL, seed=1).state()
    assert len(names) == 2 * 14
    assert all(".layers." in name for name in names)


def test_the_adapter_is_float32_beside_a_bfloat16_base(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    loaded = open_model(dtype="bfloat16")
    before = scores(loaded.model, items)
    adapter = Adapter.attach(loaded, "lora", SMALL, seed=1)
    assert torch.equal(scores(adapter.model, items), before)
    adapter.add_reference()
    train(adapter, items, steps=1)
    for each in (adapter.state(), adapter.reference_state()):
        assert {tensor.dtype for tensor in each.values()} == {torch.float32}
    adapter.save(tmp_path / "saved")
    state = adapter.state()
    adapter.reset()
    adapter.load(tmp_path / "saved")
    assert same(adapter.state(), state)


def test_full_fine_tuning_of_a_bfloat16_base_is_in_float32_and_can_be_reset(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(dtype="bfloat16"), "full", seed=1)
    initial = adapter.state()
    assert {tensor.dtype for tensor in initial.values()} == {torch.float32}
    train(adapter, items, steps=1)
    adapter.reset()
    assert same(adapter.state(), initial)


def test_the_base_stays_in_reach_beside_lora(open_model: Any, items: list[TokenItem]) -> None:
    loaded = open_model()
    before = scores(loaded.model, items)
    dropping = LoraSettings(rank=4, dropout=0.5)
    adapter = Adapter.attach(loaded, "lora", dropping, seed=1)
    train(adapter, items)
    moved = scores(adapter.model, items)
    adapter.model.train()
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)
    assert adapter.model.training
    assert all(parameter.requires_grad for parameter in adapter.parameters())
    adapter.model.eval()
    assert torch.equal(scores(adapter.model, items), moved)
    assert not torch.equal(moved, before)


def test_the_base_is_gone_once_full_fine_tuning_moved_it(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "full", seed=1)
    before = scores(adapter.model, items)
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)
    train(adapter, items, steps=1)
    with pytest.raises(SettingsError, match="the base model is gone"), adapter.base():
        pass
    adapter.reset()
    with adapter.base():
        assert torch.equal(scores(adapter.model, items), before)


@pytest.mark.parametrize("decay", [0.0, 0.25, 0.9, 1.0])
def test_the_reference_moves_as_its_formula_says(
    open_model: Any, items: list[TokenItem], decay: float
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.add_reference()
    start = adapter.state()
    assert same(adapter.reference_state(), start)
    train(adapter, items)
    assert same(adapter.reference_state(), start), "it moves only when told"
    moved = adapter.state()
    adapter.move_reference(decay)
    for name, got in adapter.reference_state().items():
        expected = decay * start[name].double() + (1 - decay) * moved[name].double()
        assert torch.allclose(got.double(), expected, rtol=1e-6, atol=1e-8)
    assert same(adapter.state(), moved)
    if decay == 0:
        assert same(adapter.reference_state(), moved)


def test_the_reference_scores_as_the_policy_it_was_copied_from(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "lora", LoraSettings(rank=4, dropout=0.3), seed=1)
    adapter.add_reference()
    train(adapter, items)
    kept = scores(adapter.model, items)
    adapter.move_reference(0)
    train(adapter, items)
    now = scores(adapter.model, items)
    adapter.model.train()
    with adapter.reference():
        assert not torch.is_grad_enabled()
        assert torch.equal(scores(adapter.model, items), kept)
    adapter.model.eval()
    assert torch.equal(scores(adapter.model, items), now)
    trainable = {id(p) for p in adapter.model.parameters() if p.requires_grad}
    assert trainable == {id(p) for p in adapter.parameters()}


def test_the_reference_comes_back_from_its_state_and_begins_anew(
    open_model: Any, items: list[TokenItem]
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.add_reference()
    train(adapter, items)
    adapter.move_reference(0.5)
    kept = adapter.reference_state()
    adapter.move_reference(0)
    adapter.restore_reference(kept)
    assert same(adapter.reference_state(), kept)
    adapter.reset()
    adapter.add_reference()
    assert same(adapter.reference_state(), adapter.state())


def test_a_reference_leaves_training_as_it_is(open_model: Any, items: list[TokenItem]) -> None:
    alone = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    beside.add_reference()
    for adapter in (alone, beside):
        train(adapter, items)
    assert same(alone.state(), beside.state())


def test_a_folder_loads_by_peft_alone(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.add_reference()
    train(adapter, items)
    adapter.save(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    rows = [([*item.prompt, *item.options[0]]) for item in items]
    with torch.no_grad():
        expected = [float(adapter.model(torch.tensor([row])).logits.sum()) for row in rows]
    script = f"""
import json, sys, torch
from peft import AutoPeftModelForCausalLM
model = AutoPeftModelForCausalLM.from_pretrained({str(tmp_path / "saved")!r}).eval()
with torch.no_grad():
    print(json.dumps([float(model(torch.tensor([row])).logits.sum()) for row in {rows!r}]))
assert "stacksl" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_two_saves_are_the_same_bytes(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    train(adapter, items)
    for name in ("one", "two"):
        adapter.save(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    config = json.loads((tmp_path / "one" / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(config["target_modules"])
    assert os.path.isabs(config["base_model_name_or_path"])


def test_a_full_folder_loads_as_a_model_of_its_own(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    adapter = Adapter.attach(open_model(), "full", seed=1)
    train(adapter, items)
    adapter.save(tmp_path / "saved")
    again = load(str(tmp_path / "saved"), device="cpu")
    assert torch.equal(scores(again.model, items), scores(adapter.model, items))
    assert again.tokenizer("a b")["input_ids"] == adapter.loaded.tokenizer("a b")["input_ids"]
    assert not list((tmp_path / "saved").glob("*.bin"))


def test_a_save_replaces_a_model_but_nothing_else(open_model: Any, tmp_path: Path) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
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


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_no_gradient(
    open_model: Any, items: list[TokenItem], kind: str
) -> None:
    adapter = Adapter.attach(open_model(), kind, SMALL, seed=1)
    train(adapter, items, steps=1)  # B is 0 at the start, and A's gradients with it

    def gradients() -> list[Any]:
        adapter.model.zero_grad()
        adapter.model.train()
        torch.cat(Likelihood(adapter.model, path="packed").sums(items)).sum().backward()
        adapter.model.eval()
        return [parameter.grad.clone() for parameter in adapter.parameters()]

    kept, calls = gradients(), []
    handle = next(
        module for name, module in adapter.model.named_modules() if name.endswith("layers.0.mlp")
    ).register_forward_pre_hook(lambda *_: calls.append(1))
    adapter.checkpointing(True)
    for got, expected in zip(gradients(), kept, strict=True):
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)
    twice = len(calls)
    calls.clear()
    adapter.checkpointing(False)
    gradients()
    assert twice > len(calls) > 0
    handle.remove()


def test_a_model_that_cannot_recompute_says_so(
    open_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    kind = type(adapter.model.get_base_model())
    monkeypatch.setattr(kind, "supports_gradient_checkpointing", False)
    adapter.checkpointing(False)
    with pytest.raises(SettingsError, match="cannot recompute its activations: leave check"):
        adapter.checkpointing(True)


def test_real_weights_are_adapted_saved_and_reset(stories: Path, tmp_path: Path) -> None:
    loaded = load(str(stories), device="cpu")
    tokens = loaded.tokenizer("Once upon a time there was a little girl")["input_ids"]
    item = TokenItem("a", tuple(tokens[:-2]), ((tokens[-2],), (tokens[-1],)), (3, 4))
    before = scores(loaded.model, [item])
    adapter = Adapter.attach(loaded, "lora", LoraSettings(rank=2), seed=3)
    train(adapter, [item])
    adapter.save(tmp_path / "saved")
    moved = scores(adapter.model, [item])
    assert not torch.equal(moved, before)
    adapter.reset()
    assert torch.equal(scores(adapter.model, [item]), before)
    adapter.load(tmp_path / "saved")
    assert torch.equal(scores(adapter.model, [item]), moved)


def test_what_is_wrong_is_said(open_model: Any, tmp_path: Path) -> None:
    loaded = open_model()
    with pytest.raises(SettingsError, match="unknown adapt 'lara': did you mean 'lora'"):
        Adapter.attach(loaded, "lara", seed=1)
    with pytest.raises(
        SettingsError,
        match="names 'query', which is no linear layer below the output of this model: take of "
        "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj$",
    ):
        Adapter.attach(loaded, "lora", LoraSettings(targets=("q_proj", "query")), seed=1)
    adapter = Adapter.attach(loaded, "lora", SMALL, seed=1)
    with pytest.raises(SettingsError, match="carries an adapter already"):
        Adapter.attach(loaded, "lora", SMALL, seed=1)
    for call in (
        lambda: adapter.move_reference(0.5),
        adapter.reference_state,
        lambda: adapter.reference().__enter__(),
    ):
        with pytest.raises(SettingsError, match="there is no reference yet"):
            call()
    adapter.add_reference()
    with pytest.raises(SettingsError, match="ema_decay is from 0 to 1, and 1.5 came"):
        adapter.move_reference(1.5)
    with pytest.raises(RunError, match="there is no folder"):
        adapter.load(tmp_path / "none")
    state = adapter.state()
    first, *_ = state
    with pytest.raises(RunError, match="state to restore is not of this adapter's shape"):
        adapter.restore({first: state[first]})
    with pytest.raises(RunError, match="state to restore is not of this adapter's shape"):
        adapter.restore(state | {first: state[first][:1]})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rank": 0}, "lora_rank is a whole number from 1 up, and 0 came"),
        ({"alpha": 0.0}, "lora_alpha is a finite number above 0"),
        ({"alpha": float("nan")}, "lora_alpha is a finite number above 0"),
        ({"dropout": 1.0}, "lora_dropout is from 0 to below 1"),
        ({"targets": ()}, "lora_targets names at least one linear layer"),
    ],
)
def test_settings_out_of_range_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        LoraSettings(**values)


def test_full_fine_tuning_has_no_moving_reference(open_model: Any) -> None:
    adapter = Adapter.attach(open_model(), "full", seed=1)
    with pytest.raises(SettingsError, match="a moving reference .* needs adapt 'lora'"):
        adapter.add_reference()


def test_folders_of_other_adapters_are_refused(open_model: Any, tmp_path: Path) -> None:
    good = tmp_path / "good"
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.save(good)
    other = Adapter.attach(open_model(), "lora", LoraSettings(rank=2, alpha=8.0), seed=1)
    with pytest.raises(RunError, match="LORA of rank 4 and alpha 8, and LORA of rank 2"):
        other.load(good)
    fewer = LoraSettings(rank=4, alpha=8.0, targets=("q_proj",))
    with pytest.raises(RunError, match="24 of 4 tensors differ"):
        Adapter.attach(open_model(), "lora", fewer, seed=1).load(good)
    full = Adapter.attach(open_model(), "full", seed=1)
    with pytest.raises(RunError, match="is an adapter, not a model"):
        full.load(good)
    weights = good / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(RunError, match="absent or damaged, so put back a copy"):
        adapter.load(good)
    (good / "adapter_config.json").write_text("{")
    with pytest.raises(RunError, match="holds no LoRA adapter"):
        adapter.load(good)
    full.save(tmp_path / "full")
    other = Adapter.attach(open_model("gpt2"), "full", seed=1)
    with pytest.raises(RunError, match="not of this adapter's shape"):
        other.load(tmp_path / "full")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_finite_are_not_taken(
    open_model: Any, tmp_path: Path, kind: str
) -> None:
    adapter = Adapter.attach(open_model(), kind, SMALL, seed=1)
    before = adapter.state()
    with torch.no_grad():
        adapter.parameters()[-1].view(-1)[0] = float("nan")
    adapter.save(tmp_path / "saved")
    adapter.restore(before)
    with pytest.raises(RunError, match="are not all finite: put back a good copy"):
        adapter.load(tmp_path / "saved")
    assert same(adapter.state(), before)


def test_a_missing_peft_names_its_extra(open_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = open_model()
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match="by LoRA needs the extra 'lm'"):
        Adapter.attach(loaded, "lora", SMALL, seed=1)


def test_a_source_that_changed_is_not_reset_from(
    folders: dict[str, Path], make_model: Any, tmp_path: Path
) -> None:
    source = tmp_path / "model"
    shutil.copytree(folders["qwen3"], source)
    adapter = Adapter.attach(load(str(source), device="cpu"), "full", seed=1)
    changed = make_model("qwen3", vocab_size=400)
    with torch.no_grad():
        changed.model.norm.weight[0] += 1
    changed.save_pretrained(source)
    with pytest.raises(SettingsError, match="are not the ones that were loaded"):
        adapter.reset()
