"""What moves can be saved and read again, by PEFT alone too, and from nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError
from stacksl.files.atomic import whole_folder
from stacksl.lm import TokenItem
from stacksl.lm.settings import LoraSettings
from stacksl.lm.training.adapters import Adapter

from .adapter_cases import SMALL, same, scores, train

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")


def test_a_saved_adapter_scores_as_before(
    open_model: Any, items: list[TokenItem], tmp_path: Path
) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    train(adapter, items)
    adapter.save(tmp_path / "saved")
    expected = scores(adapter.model, items)
    other = Adapter(open_model(), SMALL, seed=2)
    assert other.fingerprint() != adapter.fingerprint()
    other.load(tmp_path / "saved")
    assert float((scores(other.model, items) - expected).abs().max()) == 0.0
    assert other.fingerprint() == adapter.fingerprint()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's own
def test_a_folder_loads_by_peft_alone(open_model: Any, items: list[TokenItem], tmp_path) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    train(adapter, items)
    adapter.save(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    alone = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    for item in items:
        row = torch.tensor([[*item.prompt, *item.options[0]]])
        with torch.no_grad():
            assert torch.equal(alone(row).logits, adapter.model(row).logits)


def test_two_saves_are_the_same_bytes(open_model: Any, items: list[TokenItem], tmp_path) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    train(adapter, items)
    for name in ("one", "two"):
        adapter.save(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    config = json.loads((tmp_path / "one" / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(config["target_modules"])
    assert os.path.isabs(config["base_model_name_or_path"])


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


def test_weights_that_are_not_finite_are_not_taken(open_model: Any, tmp_path: Path) -> None:
    adapter = Adapter(open_model(), SMALL, seed=1)
    before = adapter.state()
    with torch.no_grad():
        adapter.parameters()[-1].view(-1)[0] = float("nan")
    adapter.save(tmp_path / "saved")
    adapter.restore(before)
    with pytest.raises(RunError, match="are not all finite: put back a good copy"):
        adapter.load(tmp_path / "saved")
    assert same(adapter.state(), before)
