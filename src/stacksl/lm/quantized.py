"""A base model with its linear layers in 4 bits, by bitsandbytes: what QLoRA trains over.

Only the frozen base is quantized, while it is loaded; files on disk, adapters and all that is
trained stay as they are. PEFT's `prepare_model_for_kbit_training` is not called: it turns
embeddings and norms to float32, and with them every activation between the layers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm.reading import first_line, load_transformers
from stacksl.lm.scoring.paths import load_torch

NF4 = "nf4"
"""The dtype in which a base is quantized: NormalFloat of 4 bits.

Source: Dettmers et al. (2023), "QLoRA".
"""

_BLOCK = 64  # weights of nf4 that share a scale, itself of 8 bits
_SCALES = 256  # such scales that share a scale of 32 bits


def computed_in(dtype: str, device: str) -> str:
    """What passes over weights of `dtype` compute in; of a quantized one, half precision.

    >>> computed_in("float32", "cpu"), computed_in("nf4", "cpu")
    ('float32', 'bfloat16')
    """
    if dtype != NF4:
        return dtype
    lacks_bf16 = device.startswith("cuda") and not load_torch().cuda.is_bf16_supported()
    return "float16" if lacks_bf16 else "bfloat16"


def unquantized(dtype: str) -> str:
    """The dtype that weights of `dtype` have where they are written out."""
    return "bfloat16" if dtype == NF4 else dtype


def quantization(computing: str) -> Any:
    """How a base is quantized, as transformers takes it.

    Raises:
        SettingsError: bitsandbytes is not installed, or cannot be loaded here.
        MissingExtra: torch or transformers is not installed.
    """
    tf = load_transformers()
    try:
        import_module("bitsandbytes")
    except Exception as error:  # it may be built for another CUDA, too
        raise SettingsError(
            "dtype 'nf4' needs the library bitsandbytes, which cannot be loaded"
            f" ({first_line(error)}): install or update it ('pip install -U bitsandbytes'), or take"
            " dtype 'bfloat16'"
        ) from error
    return tf.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(load_torch(), computing),
    )


def not_quantized(name: str, config: Any) -> None:
    """Refuse to quantize what its makers have quantized.

    Raises:
        SettingsError: the configuration names a method.
    """
    if getattr(config, "quantization_config", None) is not None:
        raise SettingsError(
            f"the weights of model '{name}' are quantized already, and dtype 'nf4' would "
            "quantize them again: take dtype 'auto', or give the weights as they were before"
        )


def keep_gradients(model: Any) -> None:
    """Leave weights in the layout that has a backward pass.

    On a CPU bitsandbytes packs a layer of 4 bits at its first pass without gradients for a kernel
    that has none, and the passes after it, of training too, would give no gradient.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def quantized_bytes(numbers: int) -> int:
    """Bytes of so many weights of a linear layer in 4 bits, scales included.

    >>> quantized_bytes(1024 * 1024)
    540928
    """
    scales = numbers // _BLOCK
    return numbers // 2 + scales + 4 * (scales // _SCALES)


def numbers_of(parameter: Any) -> int:
    """How many weights a parameter has; two of 4 bits share a byte."""
    state = getattr(parameter, "quant_state", None)
    return int(parameter.numel() if state is None else state.shape.numel())
