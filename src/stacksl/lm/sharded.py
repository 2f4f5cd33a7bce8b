"""The frozen base divided among the processes of a run (FSDP2), its passes made in step.

Each process keeps its part of every block's weights; a pass gathers a block's weights before the
block and frees them behind it. What LoRA trains is whole in every process and is not part of this:
gradients, optimiser, checkpoints and saved adapters stay what they are without it.

To gather, all processes have to make the same passes, and they have different work. So before a
pass, forward or backward, each says what it is about to do, and one that has nothing of that kind
to do makes an idle pass over one token, whose gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from stacksl.errors import RunError, SettingsError
from stacksl.lm.scoring.paths import Tensor, inner, load_torch

Most: TypeAlias = Callable[[int], int]
"""The largest of a number over the processes."""

_DONE, _BACKWARD, _WITH, _WITHOUT = range(4)  # with and without gradients; the highest goes first


def divide(model: Any, moving: Sequence[Tensor], device: str, size: int) -> None:
    """Divide all of `model` but what is `moving` among `size` processes, in place.

    The model is on the CPU and goes to `device` block by block.

    Raises:
        SettingsError: the model does not name its blocks.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    base, whole = inner(model), set(moving)
    divided = blocks_of(base)
    for parameter in whole:
        parameter.data = parameter.data.to(device)
    mesh = init_device_mesh(device.partition(":")[0], (size,))
    for module in [*divided, base]:
        fully_shard(module, mesh=mesh, ignored_params=whole)


def blocks_of(base: Any) -> list[Any]:
    """The blocks of a model of transformers, by the classes that it says not to split.

    Raises:
        SettingsError: it names none.
    """
    names = set(getattr(base, "_no_split_modules", None) or ())
    found = [each for each in base.modules() if type(each).__name__ in names]
    if not found:
        raise SettingsError(
            f"shard divides a model by its blocks, and {type(base).__name__} names none: leave "
            "shard out"
        )
    return found


def card_bytes(base: Any, size: int) -> int:
    """Bytes of a divided base on one device in a pass; `base` may be on `meta`.

    Its part of every block, two whole blocks (one computes, one is gathered ahead), and what
    is in no block, such as embeddings, whole.
    """

    def frozen(module: Any) -> int:
        return sum(int(each.nbytes) for each in module.parameters() if not each.requires_grad)

    blocks = [frozen(block) for block in blocks_of(base)]
    rest = frozen(base) - sum(blocks)
    return rest + -(-sum(blocks) // size) + 2 * max(blocks)


class Lockstep:
    """The passes of one process over a divided model.

    Args:
        model: what is called, its base divided.
        most: agrees on a kind of pass.

    Attributes:
        lost: a pass was left half made, for which the others wait: this process has to end.
    """

    def __init__(self, model: Any, most: Most) -> None:
        self._model = model
        self._most = most
        self._idle = False
        self._loose: list[Tensor] = []  # of idle passes forward, until the one backward
        self.lost = False
        model.register_forward_pre_hook(lambda *_: self._before())
        model.register_forward_hook(lambda *_: self._after())

    def backward(self, loss: Tensor) -> None:
        """`loss.backward()`, together."""
        self._meet(_BACKWARD)
        self._backward(loss)

    def finish(self) -> None:
        """Go on with the others until no process has a pass to make."""
        self._meet(_DONE)
        self._loose.clear()

    def _before(self) -> None:
        if not self._idle:
            self._meet(_WITH if load_torch().is_grad_enabled() else _WITHOUT)
        self.lost = True

    def _after(self) -> None:
        self.lost = False

    def _meet(self, mine: int) -> None:
        """Make idle passes until all processes are about to make one of the kind `mine`."""
        while (kind := self._most(mine)) != mine:
            if kind == _BACKWARD:
                self._backward(0.0)
                continue
            with self._idling(), load_torch().set_grad_enabled(kind == _WITH):
                ids = load_torch().zeros((1, 1), dtype=int, device=self._model.device)
                logits = self._model(input_ids=ids, use_cache=False).logits
            if kind == _WITH:
                self._loose.append(logits.float().sum())

    def _backward(self, loss: Any) -> None:
        """Backward from `loss` and, without effect, from all idle passes."""
        self.lost = True
        if isinstance(whole := loss + 0.0 * sum(self._loose), float):  # this process has failed
            raise RunError("this process cannot train on with the others: start the run again")
        whole.backward()
        self._loose.clear()
        self.lost = False

    @contextmanager
    def _idling(self) -> Iterator[None]:
        """A pass of its own, which leaves the random state as it was."""
        device = self._model.device
        self._idle = True
        try:
            devices = [device] if device.type == "cuda" else []
            with load_torch().random.fork_rng(devices=devices):
                yield
        finally:
            self._idle = False
