"""The paths of scoring on the device `cuda` by tensors without values, on a machine without a GPU.

Such tensors have a shape, a dtype and a device. An operation on two devices raises, and so does
whatever reads a value, which on a GPU would make the host wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring import paths

from .conftest import SHAPE, random_model

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")

CUDA = torch.device("cuda:0")
ITEMS = [
    TokenItem("a", (1, 2, 3), ((4, 5), (6,)), (1, 1)),
    TokenItem("b", (7, 8), ((4, 5, 9), (6,), (3, 2)), (1, 1, 1)),
]


class _WithoutGuard(torch.overrides.TorchFunctionMode):
    """Three functions for which torch's build without CUDA asks for a guard of the device.

    No function may take a tensor from the device to the host.
    """

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ and args[0].device == CUDA:
            return func(*torch.utils._pytree.tree_map(_shape_alone, args)).to(CUDA)
        same = {torch.Tensor.contiguous: torch.clone, torch.Tensor.__invert__: torch.bitwise_not}
        result = same.get(func, func)(*args, **(kwargs or {}))
        came = any(isinstance(each, torch.Tensor) and each.device == CUDA for each in args)
        left = isinstance(result, torch.Tensor) and result.device != CUDA
        assert not (came and left), "a tensor was copied to the host"
        return result


def _shape_alone(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    assert value.device == CUDA, "an index on the host would be copied"
    return value.cpu()


@contextmanager
def on_cuda(kind: str, dtype: Any, attention: str) -> Iterator[Any]:
    """A model whose weights are tensors without values on the device `cuda`."""
    from torch._subclasses import FakeTensorMode

    model = random_model(kind).to(dtype)
    model.set_attn_implementation(attention)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, _WithoutGuard(), torch.no_grad():
        for module in model.modules():
            for held in (module._buffers, module._parameters):
                for name in [name for name, value in held.items() if value is not None]:
                    moved = mode.from_tensor(held[name]).detach().to(CUDA)
                    trained = held is module._parameters
                    held[name] = (
                        torch.nn.Parameter(moved, requires_grad=False) if trained else moved
                    )
        yield model


@pytest.mark.parametrize("path", [paths.packed, paths.padded])
@pytest.mark.parametrize(
    ("kind", "dtype", "attention"),
    [
        ("qwen3", torch.float32, "sdpa"),
        ("qwen3", torch.bfloat16, "eager"),
        ("mistral", torch.bfloat16, "sdpa"),
    ],
)
def test_a_path_stays_on_the_models_device(
    path: Any, kind: str, dtype: Any, attention: str
) -> None:
    with on_cuda(kind, dtype, attention) as model:
        for states in (False, True):
            for item, (sums, state) in zip(ITEMS, path(model, ITEMS, states=states), strict=True):
                assert (sums.device, sums.dtype) == (CUDA, torch.float32)
                assert sums.shape == (len(item.options),)
                assert (state is None) != states
                if states:
                    assert (state.device, state.dtype) == (CUDA, torch.float32)
                    assert state.shape == (len(item.options), SHAPE["hidden_size"])
