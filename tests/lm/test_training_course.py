"""Refits of tiny random models: their course, shared, in halves, and gone wrong."""

from dataclasses import replace

import pytest

from stacksl.errors import RunError
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.training.refit import TrainingSteps, train

from .training_cases import FAST, attached, examples_of, moved, recorded, same

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


@pytest.mark.parametrize(
    ("batch_tokens", "dropout"), [(30, 0.3), pytest.param(4096, 0.0, id="one batch, cut in two")]
)
def test_the_ranks_gradients_add_up_to_those_of_one_process(
    monkeypatch, make_model, items, batch_tokens, dropout
):
    adapter = moved(attached(make_model("qwen3"), dropout=dropout))
    settings = replace(FAST, batch_size=5, epochs=1)
    examples = examples_of(adapter, items, settings)
    likelihood = Likelihood(adapter.model, batch_tokens=batch_tokens)
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


def _padded_for_two(rank, results):
    """As many results as examples, the other rank's made up."""
    if results and isinstance(results[0], int):  # the tokens of a batch
        return results
    rank.pieces = len(results)
    flat = [seen for piece in results for seen in piece]
    return [[*flat, *[(0.0, 0.0)] * (5 - len(flat))]]


class Killed(Exception):
    pass


CHANGES = {
    "pmi": {"normalization": "pmi"},
    "clipped": {"clip": "scale", "clip_level": 0.5, "epochs": 8},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_killed_refit_is_made_again_bit_for_bit(name, make_model, items):
    adapter = attached(make_model("qwen3"), dropout=0.2)
    settings = replace(FAST, **CHANGES[name])
    examples = examples_of(adapter, items, settings, skips={4})
    likelihood = Likelihood(adapter.model)
    whole = train(adapter, likelihood, examples, settings, seed=3, key=2)
    expected = adapter.state()

    def kill(done, total):
        assert total == whole.steps
        if done == total - 1:
            raise Killed

    adapter.reset()
    with pytest.raises(Killed):
        train(adapter, likelihood, examples, settings, seed=3, key=2, progress=kill)
    adapter.reset()
    again = train(adapter, likelihood, examples, settings, seed=3, key=2)
    assert same(expected, adapter.state())
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)
    if name == "clipped":
        assert 0.0 < whole.clipped < 1.0


def test_order_and_dropout_come_from_seed_and_key_alone(make_model, items):
    adapter = attached(make_model("qwen3"), dropout=0.3)
    examples = examples_of(adapter, items, FAST)
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


def test_numbers_that_are_not_finite_end_in_one_sentence(adapter, items):
    settings = replace(FAST, learning_rate=1e30, warmup_share=0.0)
    examples = examples_of(adapter, items, settings)
    with pytest.raises(RunError, match="a loss .* at step 2 of 12: take a lower learning_rate"):
        train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)
    assert not adapter.model.training


ERRORS = [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 9 B")]


def without_room(model, rows, error, backward=False):
    """Let passes of more than so many rows fail; a function that ends it, with their number."""
    failed = []

    def check(module, given, *_):
        if given[0].shape[0] > rows:
            failed.append(1)
            raise error

    (layer,) = [m for name, m in model.named_modules() if name.endswith("layers.0.mlp.down_proj")]
    add = layer.register_full_backward_hook if backward else layer.register_forward_pre_hook
    handle = add((lambda m, own, given: check(m, given)) if backward else check)

    def end():
        handle.remove()
        return len(failed)

    return end


@pytest.mark.parametrize(("error", "backward"), list(zip(ERRORS, [False, True], strict=True)))
def test_a_step_without_room_is_taken_in_halves(make_model, items, error, backward):
    """Its gradient is the whole step's but for rounding: nothing of a failed pass is left."""
    settings = replace(FAST, batch_size=5, epochs=3)
    found = []
    for rows in (99, 1):
        adapter = attached(make_model("qwen3"))
        examples = examples_of(adapter, items, settings, skips={2})
        likelihood = Likelihood(adapter.model, batch_tokens=4096)
        end = without_room(adapter.model, rows, error, backward)
        trained = train(adapter, likelihood, examples, settings, seed=0, key=1)
        found.append((adapter.state(), trained.loss, trained.kl))
        assert (end() > 0) == (likelihood.batch_tokens < 4096) == (rows == 1)
    (expected, *numbers), (got, *others) = found
    assert others == pytest.approx(numbers, rel=1e-4)
    for name, wanted in expected.items():
        torch.testing.assert_close(got[name], wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("error", [ERRORS[0], MemoryError()])
def test_no_room_for_one_item_ends_in_one_sentence(adapter, items, error):
    examples = examples_of(adapter, items, FAST)
    end = without_room(adapter.model, 0, error)
    with pytest.raises(
        RunError, match="one item at a time: go on with .* lm.gradient_checkpointing=true"
    ):
        train(adapter, Likelihood(adapter.model), examples, FAST, seed=0, key=1)
    assert not adapter.model.training
    end()
