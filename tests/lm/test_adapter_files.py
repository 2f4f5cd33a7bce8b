"""What moves can be saved and read again, by PEFT alone too, and from nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError, SettingsError
from stacksl.lm import TokenItem
from stacksl.lm.export.atomic import whole_folder
from stacksl.lm.loading import load
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.lora import LoraSettings

from .adapter_cases import KINDS, SMALL, same, scores, train

torch = pytest.importorskip("torch")
pytest.importorskip("peft")


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


def test_a_folder_loads_by_peft_alone(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    adapter = Adapter.attach(open_model(), "lora", SMALL, seed=1)
    adapter.reference()
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


def test_a_source_that_changed_is_not_reset_from(
    model_folders: dict[str, Path], make_model: Any, tmp_path: Path
) -> None:
    source = tmp_path / "model"
    shutil.copytree(model_folders["qwen3"], source)
    adapter = Adapter.attach(load(str(source), device="cpu"), "full", seed=1)
    changed = make_model("qwen3", vocab_size=400)
    with torch.no_grad():
        changed.model.norm.weight[0] += 1
    changed.save_pretrained(source)
    with pytest.raises(SettingsError, match="are not the ones that were loaded"):
        adapter.reset()
