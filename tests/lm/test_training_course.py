"""Refits of tiny random models: their course, shared, cut off, gone on with, and gone wrong."""

import math
from dataclasses import replace

import pytest

from stacksl.errors import RunError
from stacksl.lm import Likelihood, Packing
from stacksl.lm.training.optimizer import Optimizer, rate
from stacksl.lm.training.refit import train
from stacksl.lm.training.steps import TrainingSteps

from .training_cases import FAST, attached, made, moved, recorded, same

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


@pytest.fixture
def adapter(make_model):
    return attached(make_model("qwen3"))


class OneOfTwo:
    """A rank of a crew of two that hears nothing of the other."""

    size = 2

    def __init__(self, rank):
        self.rank = rank

    def share(self, n):
        return range(self.rank, n, 2)

    def gather(self, results):
        self.own = results
        return results

    def total(self, tensors):
        self.gradients = [tensor.clone() for tensor in tensors]

    def backward(self, loss):
        loss.backward()


def test_the_ranks_gradients_add_up_to_those_of_one_process(monkeypatch, make_model, items):
    adapter = moved(attached(make_model("qwen3"), dropout=0.3))
    settings = replace(FAST, batch_size=5, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model, packing=Packing(batch_tokens=30))
    steps = recorded(monkeypatch)
    train(adapter, likelihood, examples, settings, seed=0, key=1)
    ranks = [OneOfTwo(0), OneOfTwo(1)]
    monkeypatch.setattr(TrainingSteps, "_note", lambda *_: None)
    for rank in ranks:
        rank.gather = lambda results, rank=rank: _padded_for_two(rank, results)
        train(adapter, likelihood, examples, settings, seed=0, key=1, processes=rank)
    assert ranks[0].pieces > 0
    assert ranks[1].pieces > 0
    for first, second, wanted in zip(ranks[0].gradients, ranks[1].gradients, steps[0], strict=True):
        torch.testing.assert_close(first + second, wanted, rtol=1e-4, atol=1e-7)


def test_short_items_keep_every_rank_busy(monkeypatch, make_model, items):
    """A step that is one batch for one process has one a rank for two; with dropout it stays."""
    settings = replace(FAST, objective="ce", batch_size=5, epochs=1)
    for dropout, pieces in ((0.0, [1, 1]), (0.3, [1, 0])):
        adapter = moved(attached(make_model("qwen3"), dropout=dropout))
        examples = made(adapter, items, settings)
        likelihood = Likelihood(adapter.model, packing=Packing(batch_tokens=4096))
        steps = recorded(monkeypatch)
        train(adapter, likelihood, examples, settings, seed=0, key=1)
        ranks = [OneOfTwo(0), OneOfTwo(1)]
        monkeypatch.setattr(TrainingSteps, "_note", lambda *_: None)
        for rank in ranks:
            rank.gather = lambda results, rank=rank: _padded_for_two(rank, results)
            train(adapter, likelihood, examples, settings, seed=0, key=1, processes=rank)
        assert [rank.pieces for rank in ranks] == pieces
        both = zip(ranks[0].gradients, ranks[1].gradients, steps[0], strict=True)
        for first, second, wanted in both:
            torch.testing.assert_close(first + second, wanted, rtol=1e-4, atol=1e-7)


def _padded_for_two(rank, results):
    """As many results as examples, the other rank's made up."""
    rank.pieces = len(results)
    flat = [seen for piece in results for seen in piece]
    return [[*flat, *[(0.0, 0.0)] * (5 - len(flat))]]


class Killed(Exception):
    pass


CHANGES = {
    "frozen": {},
    "ema": {"reference": "ema", "ema_decay": 0.5},
    "previous": {"reference": "previous"},
    "pmi": {"normalisation": "pmi", "kl_target": 1e-3},
    "clipped": {"clip": "scale", "clip_multiple": 1.0, "epochs": 8},
    "checkpointing": {"checkpointing": True},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_killed_refit_goes_on_bit_for_bit(name, make_model, items, tmp_path):
    adapter = attached(make_model("qwen3"), dropout=0.2)
    settings = replace(FAST, save_every=2, **CHANGES[name])
    examples = made(adapter, items, settings, skips={4})
    likelihood = Likelihood(adapter.model)
    whole = train(adapter, likelihood, examples, settings, seed=3, key=2)
    expected = adapter.state()

    def kill(done, total):
        assert total == whole.steps
        if done == total - 1:  # a step after the last checkpoint
            raise Killed

    adapter.reset()
    with pytest.raises(Killed):
        train(
            adapter, likelihood, examples, settings, seed=3, key=2, folder=tmp_path, progress=kill
        )
    told = []
    adapter.reset()
    again = train(
        adapter, likelihood, examples, settings, seed=3, key=2, folder=tmp_path,
        progress=lambda done, total: told.append(done),
    )  # fmt: skip
    assert told[0] == whole.steps - whole.steps % 2 - (1 if whole.steps % 2 else 2) + 1
    assert same(expected, adapter.state())
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)
    if name == "clipped":
        assert 0.0 < whole.clipped < 1.0


def test_a_checkpoint_of_other_arguments_is_not_ours(adapter, items, tmp_path):
    settings = replace(FAST, save_every=1, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model)
    given = {"seed": 0, "key": 1, "folder": tmp_path}

    def steps(**changes):
        adapter.reset()
        told = []
        arguments = {"examples": examples, "settings": settings, **given, **changes}
        train(adapter, likelihood, progress=lambda done, _: told.append(done), **arguments)
        return len(told)

    whole = steps()
    assert steps() == 0  # nothing is left to do
    assert steps(key=2) == whole
    assert steps(seed=1, key=2) == whole
    assert steps(settings=replace(settings, kl_weight=0.2)) == whole
    assert steps(examples=[replace(examples[0], gold=0), *examples[1:]]) == whole
    assert steps() == whole  # the file now belongs to the last call
    data = (tmp_path / "training.safetensors").read_bytes()
    for damaged in (b"cut off", data[:-1] + bytes([data[-1] ^ 1])):
        (tmp_path / "training.safetensors").write_bytes(damaged)
        assert steps() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]


def test_no_checkpoint_unless_asked(adapter, items, tmp_path):
    train(
        adapter, Likelihood(adapter.model), made(adapter, items, FAST), FAST,
        seed=0, key=1, folder=tmp_path / "none",
    )  # fmt: skip
    assert not (tmp_path / "none").exists()


def test_order_and_dropout_come_from_seed_and_key_alone(make_model, items):
    adapter = attached(make_model("qwen3"), dropout=0.3)
    examples = made(adapter, items, FAST)
    likelihood = Likelihood(adapter.model)
    found = {}
    for name, keys, other in (("a", (0, 1), 11), ("b", (0, 1), 12), ("c", (0, 2), 11),
                              ("d", (1, 1), 11)):  # fmt: skip
        adapter.reset()
        torch.manual_seed(other)
        before = torch.get_rng_state()
        train(adapter, likelihood, examples, FAST, seed=keys[0], key=keys[1])
        assert torch.equal(before, torch.get_rng_state())
        found[name] = adapter.state()
    assert same(found["a"], found["b"])
    assert not same(found["a"], found["c"])
    assert not same(found["a"], found["d"])


def test_numbers_that_are_not_finite_end_in_one_sentence(adapter, items, tmp_path):
    settings = replace(FAST, learning_rate=1e30, max_grad_norm=1e30, warmup_share=0.0, save_every=1)
    examples = made(adapter, items, settings)
    with pytest.raises(RunError, match="not finite at step 2 of 12: take a lower learning_rate"):
        train(
            adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1, folder=tmp_path
        )
    assert not adapter.model.training
    assert (tmp_path / "training.safetensors").is_file()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")]
)
def test_no_memory_ends_in_one_sentence(monkeypatch, adapter, items, error):
    examples = made(adapter, items, FAST)
    likelihood = Likelihood(adapter.model)

    def fail(_):
        raise error

    monkeypatch.setattr(likelihood, "sums", fail)
    with pytest.raises(RunError, match="lower batch_tokens or turn checkpointing on"):
        train(adapter, likelihood, examples, FAST, seed=0, key=1)
    assert not adapter.model.training


def test_the_rate_rises_to_one_and_falls_towards_zero():
    for total, share in ((1, 0.1), (7, 0.0), (40, 0.1), (40, 1.0)):
        rates = [rate(step, total, share) for step in range(total)]
        warmup = math.ceil(share * total)
        assert max(rates) == 1.0
        assert min(rates) > 0.0
        assert rates[:warmup] == sorted(rates[:warmup])
        assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


def test_one_kernel_a_step_is_for_gpus_alone(monkeypatch):
    given = {"learning_rate": 1e-2, "warmup_share": 0.0, "weight_decay": 0.1, "max_grad_norm": 1.0}
    adam, asked = torch.optim.AdamW, []

    def noted(groups, **settings):
        asked.append(settings["fused"])
        return adam(groups, **settings)

    class OnAGPU(torch.nn.Parameter):
        """A parameter on the CPU that says otherwise."""

        seen = True
        device = property(lambda self: torch.device("cuda" if OnAGPU.seen else "cpu"))

    monkeypatch.setattr(torch.optim, "AdamW", noted)
    Optimizer([torch.nn.Parameter(torch.ones(2, 2))], 4, **given)
    Optimizer([OnAGPU(torch.ones(2, 2))], 4, **given)
    assert asked == [None, True]


def test_a_fused_optimiser_goes_on_from_a_checkpoint(monkeypatch):
    """Its count of steps is on the parameter's device."""
    given = {"learning_rate": 1e-2, "warmup_share": 0.0, "weight_decay": 0.1, "max_grad_norm": 1.0}

    def made(weights):
        found = Optimizer([weights], 6, **given)
        found._fused = True
        found._adam = torch.optim.AdamW([weights], lr=1e-2, fused=True)
        return found

    def steps(optimizer, weights, numbers):
        for number in numbers:
            weights.grad = torch.sin(weights.detach() + number)
            optimizer.step(number)

    whole = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    steps(made(whole), whole, range(6))
    part = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    first = made(part)
    steps(first, part, range(3))
    kept = first.tensors()
    again = made(part)
    again.restore(kept)
    steps(again, part, range(3, 6))
    assert torch.equal(whole, part)


def test_only_matrices_decay():
    matrix = torch.nn.Parameter(torch.ones(2, 2))
    scale = torch.nn.Parameter(torch.ones(2))
    descent = Optimizer(
        [matrix, scale], 1, learning_rate=0.1, warmup_share=0.0, weight_decay=0.5, max_grad_norm=1.0
    )
    descent.step(0)  # without any gradient
    torch.testing.assert_close(matrix.detach(), torch.full((2, 2), 0.95))
    assert torch.equal(scale.detach(), torch.ones(2))
