"""The learner of both algorithms: StackSL always asks, LLF-StackSL asks by the paper's gate.

A round is `decide` (which changes nothing), the ledger's decision on each wanted label, `adopt`,
and `learn` for every answer, at any later time. Items are processed one by one, so results do not
depend on how rounds are cut into blocks, as long as nothing is learned between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from stacksl.core.gates.registry import Gate
from stacksl.core.gates.rules import Clock, GateState, forced
from stacksl.core.rng import uniforms
from stacksl.errors import SettingsError
from stacksl.types import Decision, Label

if TYPE_CHECKING:
    from stacksl.core.blocks import Array, Inputs
    from stacksl.core.scorers import Bounds, Scorer

_REASONS = {-1: "spent", 0: "gate", 1: "must"}


@dataclass(eq=False)
class Learner:
    """A scorer that learns θ and a gate that spends labels, over at most `horizon` rounds.

    Args:
        budget: B, the training labels it may ask for.
        horizon: T, the rounds it is made for.
        seed: keys the uniforms of the gate, one per round, drawn in advance.
        top_k: the negatives that an item is presented with; all candidates if None (`presented`).
        kl_on_skips: run the KL-only step on unasked rounds while a label is left (Algorithm 2).

    Attributes:
        round: the rounds adopted so far.
        gate_state: the gate's four floats after them.

    Source: paper, Algorithms 1 and 2. Deviation: the numbered decisions D1, D2, D6 of
    `docs/paper.md`; once the budget is gone the learner only predicts (with track='all' V alone
    goes on, as printed).
    """

    scorer: Scorer
    gate: Gate
    _: KW_ONLY
    budget: int
    horizon: int
    seed: int = 0
    top_k: int | None = None
    kl_on_skips: bool = False

    def __post_init__(self) -> None:
        self.round = 0
        self.gate_state: GateState = self.gate.start()
        _expect_numbers(self.gate, "state", self.gate_state, 4)
        self._uniforms = uniforms(self.seed, "gate", self.horizon)

    def reschedule(self, *, budget: int, horizon: int) -> None:
        """Set the budget and the horizon that the gate paces by from the next round on."""
        self.budget, self.horizon = budget, horizon
        self._uniforms = uniforms(self.seed, "gate", horizon)

    def decide(
        self,
        ids: Sequence[str],
        block: Sequence[Inputs],
        presented: Sequence[tuple[int, ...]],
        *,
        asked: int,
        statistics: Sequence[float] | None = None,
    ) -> list[Decision]:
        """The decision records of the next rounds, one per item; changes nothing.

        All bounds are taken under the same θ. The gate's clock runs item by item and counts the
        labels wanted earlier in this block in addition to `asked`.

        Args:
            presented: C_t of each, indices into its full candidates.
            asked: the training labels asked before this block, by the ledger.
            statistics: what the gate compares with its threshold, in place of its own statistic.

        Raises:
            SettingsError: more rounds than the horizon, or a gate that gives no numbers, such as
                one without the widths it needs.
        """
        if self.round + len(ids) > self.horizon:
            raise SettingsError(
                f"the learner was made for {self.horizon} rounds, got round "
                f"{self.round + len(ids)}: give it a longer horizon from the start"
            )
        decisions: list[Decision] = []
        state = self.gate_state
        given_statistics = [None] * len(ids) if statistics is None else statistics
        rows = zip(ids, block, presented, given_statistics, strict=True)
        for number, (item, inputs, subset, statistic) in enumerate(rows, start=self.round + 1):
            clock = Clock(asked, self.budget, number, self.horizon)
            view = self.scorer.bounds(inputs, subset)
            decision = self._judge(item, view, clock, state, statistic)
            decisions.append(decision)
            state = cast(GateState, decision.state)
            asked += decision.status == "wanted"
        return decisions

    def _judge(
        self, item: str, view: Bounds, clock: Clock, state: GateState, statistic: float | None
    ) -> Decision:
        gate = self.gate
        g = gate.statistic(view, clock, state) if statistic is None else statistic
        if not isinstance(g, float) or g != g:  # a call a round would be a tenth of its time
            _expect_numbers(gate, "statistic", (g,))
        threshold = gate.threshold(g, float(self._uniforms[clock.round - 1]), clock, state)
        if not isinstance(threshold, float) or threshold != threshold:
            _expect_numbers(gate, "threshold", (threshold,))
        verdict = forced(clock, gate.exact_spend)
        is_wanted = verdict == 1 or (verdict == 0 and g > threshold)
        skip_state = gate.advance(g, False, clock, state)
        if type(skip_state) is not tuple:
            _expect_numbers(gate, "state", skip_state, 4)
        return self._record(
            item,
            view,
            round=clock.round,
            probability=float(view.probabilities[view.choice]),
            statistic=g,
            threshold=threshold,
            reason=_REASONS[verdict],
            state=gate.advance(g, True, clock, state) if is_wanted else skip_state,
            skip_state=skip_state,
            status="wanted" if is_wanted else "skipped",
        )

    def rank(self, item: str, inputs: Inputs, scores: Array | None, *, asked: int) -> Decision:
        """A purchase of a pool in the next round, ranked by its statistic; changes nothing.

        The caller compares the items of the pool and posts those whose labels it wants. The
        threshold is −∞, and the gate's state does not change.

        Args:
            scores: (K,) the probabilities of its candidates under another model, such as the refit
                on the labels so far, which replace θ's scores; None for those of θ.
            asked: the training labels asked before, by the ledger.
        """
        [subset] = presented([inputs], self.scorer, self.top_k)
        view = self.scorer.bounds(inputs, subset, scores)
        policy = view.probabilities if scores is None else view.scores
        clock = Clock(asked, self.budget, self.round + 1, self.horizon)
        g = self.gate.statistic(view, clock, self.gate_state)
        _expect_numbers(self.gate, "statistic", (g,))
        return self._record(
            item,
            view,
            round=clock.round,
            probability=float(policy[view.choice]),
            statistic=g,
            threshold=-math.inf,
            reason="rank",
            state=self.gate_state,
            skip_state=self.gate_state,
            status="wanted",
        )

    def _record(self, item: str, view: Bounds, **verdict: Any) -> Decision:
        """The numbers of the choice, and the reason."""
        return Decision(
            item=item,
            presented=view.presented,
            choice=view.presented[view.choice],
            score=float(view.scores[view.choice]),
            **verdict,
        )

    def adopt(self, posted: Sequence[Decision], block: Sequence[Inputs]) -> None:
        """Adopt the ledger's decisions: update gate state and round, and process unasked rounds.

        An unasked round runs the KL-only step where `kl_on_skips` is set and a label is left, and
        adds its row to V where the scorer tracks all rounds. After a refusal no label is left: its
        round and the rest of the block are treated as skips.

        Args:
            posted: this block's decisions as returned by `Ledger.post`.
        """
        state = self.gate_state
        out_of_labels = False
        for decision, inputs in zip(posted, block, strict=True):
            if out_of_labels:  # the state in the decision supposed that a label was left
                clock = Clock(self.budget, self.budget, decision.round, self.horizon)
                state = self.gate.advance(decision.statistic, decision.asked, clock, state)
            else:
                state = cast(GateState, decision.state)
            out_of_labels |= decision.status == "refused"
            if self._takes_kl_step(decision, out_of_labels):
                self.scorer.step(inputs, decision.presented, decision.choice, None)
            if not decision.asked:
                self.scorer.skip(inputs, decision.presented, decision.choice)
            self.round = decision.round
        self.gate_state = state

    def _takes_kl_step(self, decision: Decision, out_of_labels: bool) -> bool:
        """Whether the KL-only step runs: on unasked rounds while a label is left."""
        spent = out_of_labels or decision.reason == "spent"
        return self.kl_on_skips and not spent and not decision.asked

    def learn(self, decision: Decision, inputs: Inputs, label: Label) -> None:
        """Learn an answer at the current θ, late or not.

        It is learned over all candidates, presented or not: the labeler chose among them all.

        Source: Algorithm 1. Deviation: its C_t holds the gold by assumption; a loss over C_t and
        an outside gold would bias θ (`docs/paper.md`, D13).
        """
        self.scorer.step(inputs, tuple(range(inputs.size)), decision.choice, label)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that rounds change, as arrays; the scorer's keys begin with 'scorer/'."""
        return {
            "round": np.array(self.round, dtype=np.int64),
            "gate_state": np.array(self.gate_state, dtype=np.float64),
            **{f"scorer/{key}": value for key, value in self.scorer.state().items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit."""
        self.round = int(state["round"])
        self.gate_state = cast(GateState, tuple(map(float, state["gate_state"])))
        mine = {k.removeprefix("scorer/"): v for k, v in state.items() if k.startswith("scorer/")}
        self.scorer.restore(mine)


def _expect_numbers(gate: Gate, quantity: str, values: Any, size: int = 1) -> None:
    """Refuse what a gate gives, where it should give a tuple of so many numbers."""
    numbers = isinstance(values, tuple) and [isinstance(x, Real) and x == x for x in values]
    if numbers != [True] * size:
        expected, value = ("a number", values[0]) if size == 1 else (f"{size} numbers", values)
        raise SettingsError(
            f"the gate '{gate.name}' should give {expected} as its {quantity}, got {value!r}: use"
            " another gate if it needs widths, which are NaN where the scorer keeps none, or"
            " correct it with `stacksl.testing.check_gate`"
        )


# The follower: which candidates the learner sees, and over which of them a label is learned -----


def presented(block: Sequence[Inputs], scorer: Scorer, top_k: int | None) -> list[tuple[int, ...]]:
    """C_t of each item, chosen before the label is known: ascending indices into its full list.

    They are all K candidates or, with k = `top_k`, the k + 1 that the current policy scores
    highest, ties going to the lowest index: the paper's hard-negative miner, of k negatives and the
    gold answer.

    Source: paper, experiments (k = 4). Deviation: k + 1 are presented, since the gold answer is
    not known when candidates are chosen, and may be outside; see `Learner.learn`, `loss_set`.
    """
    if top_k is None:
        return [tuple(range(inputs.size)) for inputs in block]
    order = (np.argsort(-scorer.scores(inputs), kind="stable") for inputs in block)
    return [tuple(sorted(best[: top_k + 1].tolist())) for best in order]


def loss_set(presented: tuple[int, ...], gold: int, size: int) -> tuple[int, ...]:
    """The part of all candidates that holds the gold: C_t, or the candidates outside of it.

    Under a multinomial logit the gold has, given the part it is in, the softmax of that part
    (independence of irrelevant alternatives), so that both parts are learned without bias. An
    outside gold that joined C_t, or took a place in it, would be learned to win each time that it
    is compared, and θ would no longer be that of the labels.

    Args:
        presented: C_t, ascending.
        gold: the label's index.
        size: K, all candidates.

    >>> loss_set((0, 2), 2, 5), loss_set((0, 2), 1, 5)
    ((0, 2), (1, 3, 4))
    """
    if gold in presented:
        return presented
    return tuple(x for x in range(size) if x not in presented)
