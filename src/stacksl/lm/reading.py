"""A model's files through transformers: configuration, tokenizer, weights, license.

Every error of transformers on a folder or on the hub becomes one sentence. Code that is part of a
model is never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError, warn_user
from stacksl.features.sentences import quiet
from stacksl.lm.scoring.paths import load_torch
from stacksl.telemetry import load_library

_NAMED = 3  # names of tensors in a message


def load_transformers() -> Any:
    """The library transformers; see `load_library`."""
    return load_library("transformers", "loading a language model", "lm")


def read_config(name: str, source: str, revision: str | None = None) -> Any:
    """The configuration of a causal language model.

    Args:
        name: as the user wrote it, for messages.
        source: an absolute folder or a name on the hub.
        revision: on the hub; None for its main branch.

    Raises:
        SettingsError: there is none, it is broken, it is of another kind of model, or it needs
            code of its own.
    """
    tf = load_transformers()
    _check_folder(name, source)
    try:
        with quiet():
            config = tf.AutoConfig.from_pretrained(
                source, revision=revision or "main", trust_remote_code=False
            )
    except Exception as error:  # a foreign file can make the loader raise anything
        otherwise = (
            f"has a config.json that cannot be read ({first_line(error)}): give the folder of a"
            " whole model"
            if os.path.isabs(source)
            else "is neither a folder nor a model on the Hugging Face hub: check the name, or give"
            " a folder"
        )
        raise _refused(name, error, _CONFIG, otherwise) from error
    if getattr(config, "is_encoder_decoder", False):
        raise SettingsError(
            f"model '{name}' is an encoder-decoder ({config.model_type}), and a causal language "
            "model is needed: give a decoder-only one"
        )
    if type(config) not in tf.AutoModelForCausalLM._model_mapping:
        raise SettingsError(
            f"model '{name}' ({config.model_type}) is not a causal language model: give one that "
            "transformers' AutoModelForCausalLM loads"
        )
    return config


def read_tokenizer(name: str, source: str, revision: str | None = None) -> Any:
    """The tokenizer that belongs to the weights.

    Raises:
        SettingsError: there is none, or it cannot be loaded.
    """
    tf = load_transformers()
    try:
        with quiet():
            tokenizer = tf.AutoTokenizer.from_pretrained(
                source, revision=revision or "main", trust_remote_code=False
            )
            encoded = tokenizer("a", add_special_tokens=False)["input_ids"]
    except Exception as error:
        otherwise = "has no tokenizer that can be loaded: put its tokenizer.json and"
        otherwise += " tokenizer_config.json into the folder of the weights"
        raise _refused(name, error, [_CODE], otherwise) from error
    if not encoded:  # transformers makes an empty tokenizer where a folder has only its settings
        raise SettingsError(
            f"model '{name}' has a tokenizer without a vocabulary: put its tokenizer.json into "
            "the folder of the weights"
        )
    return tokenizer


def read_weights(
    name: str,
    source: str,
    config: Any,
    dtype: Any,
    revision: str | None = None,
    quantized: Mapping[str, Any] | None = None,
) -> Any:
    """The model on the CPU with every weight read, in `dtype`, without gradients or dropout.

    Args:
        name, source, revision: as `read_config` and `read_tokenizer` take them.
        quantized: how to quantize what is read and where to, as transformers takes it.

    Raises:
        SettingsError: no weights, damaged, of another shape, or not all of them; a head tied to
            the embeddings need not be there.
    """
    tf = load_transformers()
    try:
        with quiet(), still_random():
            model, loading = tf.AutoModelForCausalLM.from_pretrained(
                source,
                revision=revision or "main",
                dtype=dtype,
                output_loading_info=True,
                trust_remote_code=False,
                **(quantized or {}),
            )
    except Exception as error:
        otherwise = f"cannot be read ({type(error).__name__}: {first_line(error)}): "
        if quantized is None and getattr(config, "quantization_config", None) is None:
            otherwise = f"has weights that {otherwise}they are damaged or not all there, so fetch"
            otherwise += " them again"
        else:
            otherwise = f"has quantized weights that {otherwise}install the library that reads"
            otherwise += " them, or give the weights as they were before"
        raise _refused(name, error, _WEIGHTS, otherwise) from error
    if missing := sorted(loading["missing_keys"]):
        raise SettingsError(
            f"model '{name}' lacks {len(missing)} of its weights ({_some(missing)}), which would "
            "be random: give a folder with all of them"
        )
    if unused := sorted(loading["unexpected_keys"]):
        warn_user(
            f"{len(unused)} tensors in the weights of model '{name}' are not used "
            f"({_some(unused)}): check that its config.json is the right one"
        )
    return model.eval().requires_grad_(False)


def read_license(source: str, config: Any, revision: str | None = None) -> str | None:
    """The license that the model's README or configuration names, None where neither does."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.repocard import metadata_load

    try:
        readme = os.path.join(source, "README.md")
        if not os.path.isabs(source):
            readme = hf_hub_download(source, "README.md", revision=revision)
        card = metadata_load(readme) or {}
    except Exception:  # no card, no network, broken YAML: then no license is known
        card = {}
    custom_name = card.get("license_name") if card.get("license") == "other" else None
    for value in (custom_name, card.get("license"), getattr(config, "license", None)):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


@contextmanager
def still_random() -> Iterator[None]:
    """The global generators of torch left as they were, on the CPU and on every GPU in use."""
    torch = load_torch()
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices = range(torch.cuda.device_count()) if in_use else ()
    with torch.random.fork_rng(devices=list(devices)):
        yield


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _check_folder(name: str, source: str) -> None:
    folder = Path(source)
    if not folder.is_absolute():
        return
    if (folder / "adapter_config.json").is_file():
        raise SettingsError(
            f"model '{name}' is an adapter, not a model: give the base model that its "
            "adapter_config.json names, or merge the two"
        )
    if not (folder / "config.json").is_file():
        raise SettingsError(
            f"model '{name}' is a folder without a config.json: give the folder that holds "
            "config.json, the weights and the tokenizer"
        )


# What the errors of transformers say, and what it means for the user
_CODE = (
    "trust_remote_code",
    "needs Python code that comes with it, and such code is never run here: give a model that"
    " transformers loads by itself",
)
_CONFIG = (
    _CODE,
    (
        "does not recognize this architecture|Unrecognized model",
        "is of a kind that the installed transformers does not know: update transformers, or give a"
        " model of a kind it loads",
    ),
    (
        "gated|401|403",
        "is closed to you on the Hugging Face hub: accept its license there and log in with 'hf"
        " auth login', or give a folder",
    ),
    (
        "couldn't connect",
        "is neither a folder nor in the cache of the Hugging Face hub, which cannot be reached:"
        " give a folder, set HF_HOME to a cache that holds it, or go online with HF_HUB_OFFLINE"
        " unset",
    ),
)
_WEIGHTS = (
    _CODE,
    ("OutOfMemoryError|MemoryError", "does not fit in memory: give a smaller one"),
    (
        "no file named|does not appear to have",
        "has no weights: put its model.safetensors next to the config.json",
    ),
    (
        "ignore_mismatched_sizes",
        "has weights of other shapes than its config.json gives: give the two files of one model",
    ),
)


def _refused(
    name: str, error: Exception, cases: Sequence[tuple[str, str]], otherwise: str
) -> SettingsError:
    """The sentence of the first entry in `cases` whose words an error has, or another one."""
    text = f"{type(error).__name__}: {error}"
    sentences = (sentence for pattern, sentence in cases if re.search(pattern, text))
    return SettingsError(f"model '{name}' {next(sentences, otherwise)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
