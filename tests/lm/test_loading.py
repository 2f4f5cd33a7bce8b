"""A model is loaded whole, quietly and without a trace, or one sentence says why not."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import MissingExtra, SettingsError
from stacksl.lm import loading as module
from stacksl.lm.loading import open_base
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.paths import attention

from .plain import by

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")


@pytest.fixture
def folder(model_folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the Llama folder that a test may harm."""
    copy = tmp_path / "model"
    shutil.copytree(model_folders["llama"], copy)
    return copy


def opened(name: Path | str, **settings: Any) -> Any:
    """A model whose weights were read."""
    base = open_base(str(name), **{"device": "cpu"} | settings)
    assert base.model is not None
    return base


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The folder's tensors after `change`."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def configured(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_the_scores_are_those_of_the_model_that_was_saved(
    model_folders: dict[str, Path], make_model: Any, items: list[TokenItem], kind: str
) -> None:
    made = make_model(kind, vocab_size=400)
    found = opened(model_folders[kind])
    with torch.no_grad():
        expected = by("padded", made, batch_tokens=1).sums(items)
        got = by("padded", found.model, batch_tokens=1).sums(items)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_what_is_known_of_a_model(model_folders: dict[str, Path], tokenizer: Any) -> None:
    found = opened(model_folders["qwen3"], dtype="bfloat16")
    assert (found.name, found.source) == (str(model_folders["qwen3"]), str(model_folders["qwen3"]))
    assert (found.revision, found.license, found.positions) == (None, None, 256)
    assert (found.device, found.dtype) == ("cpu", "bfloat16")
    assert found.model.dtype is torch.bfloat16
    assert opened(model_folders["qwen3"]).model.dtype is torch.float32
    assert not found.model.training
    assert not any(each.requires_grad for each in found.model.parameters())
    assert attention(found.model) == "sdpa"
    text = "def median(values): return 東京"
    assert found.tokenizer(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert found.tokenizer.pad_token is None, "none is needed"


def test_a_folder_is_made_absolute(
    folder: Path, monkeypatch, model_folders: dict[str, Path]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert opened("model").source == str(folder)
    assert opened("./model").source == str(folder)
    monkeypatch.setenv("HOME", str(folder.parent))
    assert opened("~/model").source == str(folder)


def test_the_fingerprint_is_that_of_the_files_not_of_the_place(folder: Path) -> None:
    mark = opened(folder).fingerprint
    assert len(mark) == 64
    moved = folder.rename(folder.with_name("elsewhere"))
    assert opened(moved).fingerprint == mark
    rewritten(moved, lambda each: each["model.norm.weight"].__setitem__(0, 1.5))
    other = opened(moved).fingerprint
    assert other != mark
    configured(moved, rms_norm_eps=1e-3)
    assert opened(moved).fingerprint not in (mark, other)


def test_loading_leaves_no_trace(model_folders: dict[str, Path], capfd) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    state = torch.random.get_rng_state()
    opened(model_folders["qwen3"])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: apache-2.0\n---\n# A model", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: tongyi\n---\n", "tongyi"),
        ("---\nlicense: [mit]\n---\n", None),
        ("---\nlicense: [unclosed\n---\n", None),
        ("# A model under the MIT license", None),
    ],
)
def test_the_license_is_what_the_card_says(folder: Path, card: str, license: str | None) -> None:
    """Or the configuration, where the card says nothing."""
    (folder / "README.md").write_text(card)
    assert open_base(str(folder)).license == license
    configured(folder, license="cc-by-4.0")
    assert open_base(str(folder)).license == (license or "cc-by-4.0")


def test_tensors_that_nothing_uses_are_warned_of(folder: Path) -> None:
    configured(folder, num_hidden_layers=1)
    with pytest.warns(UserWarning, match=r"9 tensors in the weights of model .* are not used"):
        opened(folder)


def drop(*names: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return harm


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def own_code(folder: Path) -> None:
    map_ = {"AutoConfig": "odd.Config", "AutoModelForCausalLM": "odd.Model"}
    configured(folder, model_type="odd", auto_map=map_)
    (folder / "odd.py").write_text("raise SystemExit('the code that came with the model ran')")


def small_embeddings(folder: Path) -> None:
    configured(folder, vocab_size=300)
    rewritten(
        folder,
        lambda each: each.update(
            {name: each[name][:300].clone() for name in ("model.embed_tokens.weight",
                                                         "lm_head.weight")}
        ),
    )  # fmt: skip


HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (drop("config.json"), "is a folder without a config.json: give the folder"),
    "broken config": (
        lambda folder: (folder / "config.json").write_text("{"),
        r"has a config.json that cannot be read .*: give the folder of a whole model",
    ),
    "unknown kind": (
        lambda folder: configured(folder, model_type="odd"),
        "of a kind that the installed transformers does not know",
    ),
    "own code": (own_code, "needs Python code that comes with it, and such code is never run"),
    "no tokenizer": (
        drop("tokenizer.json", "tokenizer_config.json"),
        "has no tokenizer that can be loaded: put its tokenizer.json",
    ),
    "another model's tokenizer": (
        small_embeddings,
        "has 400 tokens and its weights 300: give the tokenizer that belongs to the weights",
    ),
    "no weights": (drop("model.safetensors"), "has no weights: put its model.safetensors"),
    "cut weights": (cut, r"cannot be read \(SafetensorError: .*\): they are damaged or not all"),
    "quantized weights": (
        lambda folder: configured(
            folder, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}
        ),
        r"has quantized weights that cannot be read \(.*\): install the library that reads them",
    ),
    "missing head": (
        lambda folder: rewritten(folder, lambda each: each.pop("lm_head.weight")),
        r"lacks 1 of its weights \(lm_head.weight\), which would be random",
    ),
    "other shapes": (
        lambda folder: configured(folder, intermediate_size=40),
        "has weights of other shapes than its config.json gives",
    ),
    "an adapter": (
        lambda folder: (folder / "adapter_config.json").write_text("{}"),
        "is an adapter, not a model: give the base model",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_folder_is_one_sentence(folder: Path, harm: str) -> None:
    change, words = HARMS[harm]
    change(folder)
    with pytest.raises(SettingsError, match=words) as raised:
        opened(folder)
    assert "\n" not in str(raised.value)
    assert str(folder) in str(raised.value)


def test_other_kinds_of_models_are_refused(make_model: Any, tokenizer: Any, tmp_path: Path) -> None:
    shape = {
        "vocab_size": 400,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "initializer_range": 0.5,
    }
    made = {
        "encoder-decoder": make_model("t5"),
        "two-sided": tf.BertLMHeadModel(tf.BertConfig(**shape)),
        "image": tf.ViTModel(
            tf.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                         intermediate_size=8, image_size=16, patch_size=8)
        ),
    }  # fmt: skip
    for name, model in made.items():
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    for name, words in (
        ("encoder-decoder", r"is an encoder-decoder \(t5\), and a causal language model is needed"),
        ("two-sided", "is not a causal language model, since its earlier tokens see later ones"),
        ("image", r"\(vit\) is not a causal language model: give one that transformers'"),
    ):
        with pytest.raises(SettingsError, match=words):
            opened(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nowhere", "is not a folder that exists"),
        ("", "is not a folder that exists"),
        (__file__, "is a file: give the folder that holds it"),
        (
            "nobody/nothing",
            "is neither a folder nor in the cache .*, which cannot be reached: give a folder, "
            "set HF_HOME to a cache that holds it, or go online with HF_HUB_OFFLINE unset",
        ),
    ],
)
def test_a_name_that_means_nothing(name: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        opened(name)


def test_a_hub_name_comes_from_the_cache_with_its_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = tmp_path / "cache"
    repo = cache / "models--someone--something"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    shutil.copytree(folder, repo / "snapshots" / commit)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.setattr(constants, name, str(cache), raising=False)
    found = opened("someone/something")
    assert (found.source, found.revision, found.license) == ("someone/something", commit, "mit")
    assert found.fingerprint == opened(folder).fingerprint
    other = commit.replace("0", "f")  # an older one, with another configuration
    shutil.copytree(folder, repo / "snapshots" / other)
    (repo / "refs" / "v1.0").write_text(other)
    config = repo / "snapshots" / other / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    for wanted in ("v1.0", other):
        old = opened(f"someone/something@{wanted}")
        assert (old.source, old.revision) == ("someone/something", other)
        assert old.config.rms_norm_eps == 1e-5
        assert old.fingerprint != found.fingerprint
    with pytest.raises(SettingsError, match="someone/something@v2' is neither a folder nor"):
        opened("someone/something@v2")


def test_devices(model_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="unknown device 'gpu'.*known: auto, cpu, cuda, cuda:0"):
        opened(model_folders["llama"], device="gpu")
    for wrong in ("cuda:x", "auto:1", "cuda:"):
        with pytest.raises(SettingsError, match="unknown device"):
            opened(model_folders["llama"], device=wrong)
    with pytest.raises(SettingsError, match="unknown dtype 'float31': did you mean 'float32'"):
        opened(model_folders["llama"], dtype="float31")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for asked in ("cuda", "cuda:1"):
        with pytest.raises(SettingsError, match="torch finds no CUDA here: take 'cpu' or 'auto'"):
            opened(model_folders["llama"], device=asked)
    found = opened(model_folders["llama"], device="auto")
    assert (found.device, found.dtype) == ("cpu", "float32")


def test_a_gpu_is_chosen_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    steady: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", steady.append)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [module.place_of(name) for name in ("auto", "cuda", "cuda:0", "cpu")] == [
        "cuda:1",
        "cuda:1",
        "cuda:0",
        "cpu",
    ]
    assert steady == [True] * 3, "a run on a GPU is the same run when it is started again"
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(SettingsError, match="there are 2 GPUs: take one from cuda:0 to cuda:1"):
        module.place_of("cuda:2")
    for has, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has: has)
        assert module._dtype(torch, "cuda:0", "auto") == expected


def test_a_missing_library_names_its_extra(model_folders: dict[str, Path], monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"loading a language model needs the extra 'lm'"):
        opened(model_folders["llama"])


def test_weights_are_hashed_again_only_where_their_stamp_differs(folder: Path, monkeypatch) -> None:
    from stacksl.lm.loading import Weights

    first = open_base(str(folder)).weights
    known = Weights("recorded", first.stamp)

    def found() -> Weights:
        return open_base(str(folder), known=known).weights

    assert found() is known, "the same size and time: nothing is read"
    file = folder / "model.safetensors"
    content, times = file.read_bytes(), file.stat()
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    again = found()
    assert (again.fingerprint, again.stamp != first.stamp) == (first.fingerprint, True)
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert found().fingerprint != first.fingerprint
    rewritten(folder, lambda each: each.pop("model.norm.weight"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found().fingerprint not in ("recorded", first.fingerprint)
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found() is known
    configured(folder, rms_norm_eps=1e-3)
    assert found().fingerprint != "recorded"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_another_tokenizer_is_another_model(folder: Path, name: str) -> None:
    """The same weights under other tokens or another chat template have other scores."""
    first, file = open_base(str(folder)).weights, folder / name
    file.write_text((file.read_text() if file.exists() else "") + "\n")
    other = open_base(str(folder), known=first).weights
    assert other.fingerprint != first.fingerprint
