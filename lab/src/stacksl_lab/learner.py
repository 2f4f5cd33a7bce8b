"""The learner of studies: with optimism where it asks, the gate `width`, and a drift guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.core.confidence import norms, pair_norms
from stacksl.core.gates.registry import Gate
from stacksl.core.gates.rules import Clock
from stacksl.core.learner import Learner
from stacksl.core.scorers import Bounds, Scorer, tie_argmax
from stacksl.core.scorers.base import LinearScorer
from stacksl.core.scorers.gradient import class_pair_widths
from stacksl.core.scorers.rows import pick
from stacksl.errors import SettingsError
from stacksl.types import Decision, Label
from stacksl_lab.baselines.gates import StudyLLF, Width
from stacksl_lab.baselines.statistics import widest_pair
from stacksl_lab.drift import DriftGuard, alarmed, gram_inv_of, surprise
from stacksl_lab.rewards import Feedback, RewardRidge


class StudyLearner(Learner):
    """A `Learner` with what only studies play.

    Args:
        scorer, gate, options: as for `Learner`.
        asks_ucb: play the largest UCB in asked rounds, or what `width` asks about, and the action
            of the scorer in the others: optimism is of use only where the reward of the action is
            bought (D6).
        drift: resets the scorer where bought answers contradict known directions: to its state
            at construction (or, after `restore`, to the start that the state holds). The answer
            that raised the alarm is not learned; gate, clock and purchases go on. None for no
            guard.

    Attributes:
        suspicion: S of the drift guard.
        resets: how often the scorer was reset.

    With `asks_ucb` the gate evaluates the greedy action x̂: its statistic is x̂'s, and so is the gate
    score g of `run_stream`, which with a valid α bounds the regret of x̂. An asked round plays the
    largest UCB instead, whose regret is at most 2·radius·‖φ‖ of that action, twice the half width
    of its own certificate. So the cumulative regret is at most the sum of g over the rounds in
    which no label was wanted and of twice the reach over the others. A refused round is one of the
    latter: it keeps its choice, the largest UCB, which g does not bound. The gate `width` plays the
    end of its pair with the larger width in place of the largest UCB, and no certificate bounds it.

    Raises:
        SettingsError: `asks_ucb` with a scorer whose action is not `greedy`.
    """

    def __init__(
        self,
        scorer: Scorer,
        gate: Gate,
        *,
        asks_ucb: bool = False,
        drift: DriftGuard | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scorer, gate, **options)
        expect_greedy(asks_ucb, scorer.settings.action)
        self.asks_ucb = asks_ucb
        self.drift = drift
        self.suspicion = 0.0
        self.resets = 0
        self._fresh = {} if drift is None else scorer.state()

    def decide(
        self,
        ids: Sequence[str],
        block: Sequence[Inputs],
        presented: Sequence[tuple[int, ...]],
        *,
        asked: int,
        statistics: Sequence[float] | None = None,
    ) -> list[Decision]:
        """See `Learner.decide`."""
        if isinstance(self.gate, Width) and statistics is None:
            clock = Clock(asked, self.budget, self.round + 1, self.horizon)  # it reads the budget
            statistics = [
                self.gate.over(widest_of(self.scorer, inputs, shown)[0], clock, inputs.dim)
                for inputs, shown in zip(block, presented, strict=True)
            ]
        decisions = super().decide(ids, block, presented, asked=asked, statistics=statistics)
        if not self.asks_ucb:
            return decisions
        return [
            self._optimistic(decision, inputs) if decision.status == "wanted" else decision
            for decision, inputs in zip(decisions, block, strict=True)
        ]

    def _optimistic(self, decision: Decision, inputs: Inputs) -> Decision:
        """The decision with what is played because its round asks."""
        view = self.scorer.bounds(inputs, decision.presented)
        choice = None
        if isinstance(self.gate, Width):
            choice = widest_of(self.scorer, inputs, decision.presented)[1]
        if choice is None:
            choice = optimistic_choice(view)
        return replace(
            decision,
            choice=view.presented[choice],
            score=float(view.scores[choice]),
            probability=float(view.probabilities[choice]),
        )

    def learn(self, decision: Decision, inputs: Inputs, label: Feedback) -> None:
        """Learn an answer at the current θ, late or not, or start over where it is an alarm."""
        if self.drift is not None and self._alarmed(self.drift, decision, inputs, label):
            self.scorer.restore(self._fresh)
            self.suspicion = 0.0
            self.resets += 1
            return
        if isinstance(label, Label):
            super().learn(decision, inputs, label)
        else:
            assert isinstance(self.scorer, RewardRidge)
            self.scorer.reward(inputs, decision.choice, label)

    def _takes_kl_step(self, decision: Decision, out_of_labels: bool) -> bool:
        """See `Learner`; in the literal reading of `llf` it runs where a label is asked.

        There the purchase is nested inside the KL-only branch, and the other rounds run nothing.
        """
        if isinstance(self.gate, StudyLLF) and self.gate.literal:
            return self.kl_on_skips and decision.asked and not out_of_labels
        return super()._takes_kl_step(decision, out_of_labels)

    def learn_none(self, inputs: Inputs) -> None:
        """Learn that an answer named none of the classes: its row enters V, at θ for `newton`.

        `ridge` regresses each class on a target of 0. The label is open no longer, and what
        `reserve` holds for rounds like it becomes less. Runs do not learn such answers.

        Raises:
            SettingsError: pair features, or a scorer without a matrix of classes.
        """
        scorer = self.scorer
        able = isinstance(scorer, LinearScorer) and scorer.name in ("ridge", "newton")
        if not isinstance(inputs, SharedFeatures) or not able:
            raise SettingsError(
                "an answer that names no candidate is learned by 'ridge' and 'newton' on classes, "
                f"got '{scorer.name}' on {type(inputs).__name__}: leave it out"
            )
        assert isinstance(scorer, LinearScorer)
        residual: Array = -scorer.scores(inputs)
        weight = np.array([1.0 if scorer.name == "ridge" else 0.5])
        scorer.confidence.update(inputs.h[None, :], weight)
        if scorer.name == "ridge":
            scorer.theta += residual[:, None] * (scorer.confidence.gram_inv @ inputs.h)

    def _alarmed(
        self, guard: DriftGuard, decision: Decision, inputs: Inputs, feedback: Feedback
    ) -> bool:
        """Whether this answer, at the θ before it is learned, raises S above the guard's level."""
        everyone = tuple(range(inputs.size))
        square, leverage = surprise(self.scorer, inputs, everyone, decision.choice, feedback)
        self.suspicion = guard.advance(
            self.suspicion, square, leverage, self.scorer.learned, inputs.dim
        )
        return alarmed(self.suspicion, guard.level)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Learner.state`.

        With a drift guard its S and resets are included, and under keys that begin with 'fresh/'
        the initial state of the scorer, which a reset restores.
        """
        arrays = super().state()
        if self.drift is not None:
            arrays["drift"] = np.array([self.suspicion, self.resets], dtype=np.float64)
            arrays |= {f"fresh/{key}": value.copy() for key, value in self._fresh.items()}
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`, bit for bit.

        Raises:
            SettingsError: a state of a learner with a drift guard for one without, or the reverse.
        """
        if ("drift" in state) != (self.drift is not None):
            held, here = ("with", "without") if "drift" in state else ("without", "with")
            raise SettingsError(
                f"expected the state of a learner {here} a drift guard, got that of one {held} a "
                "guard: make the learner with the drift settings of the state"
            )
        super().restore(state)
        if self.drift is not None:
            self.suspicion, self.resets = float(state["drift"][0]), int(state["drift"][1])
            self._fresh = {
                key.removeprefix("fresh/"): value.copy()
                for key, value in state.items()
                if key.startswith("fresh/")
            }


def expect_greedy(asks_ucb: bool, action: str) -> None:
    """Refuse optimism in asked rounds with another action for the others.

    Raises:
        SettingsError: `asks_ucb` with an `action` that is not `greedy`.
    """
    if asks_ucb and action != "greedy":
        raise SettingsError(
            f"asks_ucb plays the largest UCB in asked rounds alone, and the action '{action}' plays"
            " it in all: leave one of them out"
        )


def optimistic_choice(view: Bounds) -> int:
    """The position of the largest UCB; ties are as in `Scorer.bounds`."""
    reach: Array = view.radius * view.widths
    scale = float((np.abs(view.scores) + reach).max())
    return tie_argmax(view.scores + reach, scale, view.presented)


def widest_of(
    scorer: Scorer, inputs: Inputs, presented: tuple[int, ...]
) -> tuple[float, int | None]:
    """The largest ‖φ_x − φ_y‖ in V⁻¹ of the presented, and the position of its wider end.

    None where all are equally wide, as in class heads that share a matrix. O(m d² + m² d).
    """
    if isinstance(inputs, PairFeatures):
        rows = pick(inputs.phi, presented)
        images: Array = rows @ gram_inv_of(scorer.state())
        pairs = [pair_norms(rows, images, x) for x in range(len(rows))]
        return widest_pair(np.array(pairs), norms(rows, images))
    view = scorer.bounds(inputs, presented)
    if scorer.name == "sgd":  # a block a class
        pairs = [class_pair_widths(view.widths, x) for x in range(len(view.widths))]
        return widest_pair(np.array(pairs), view.widths)
    others = np.delete(view.pair_widths, view.choice)
    return float(np.max(others, initial=-np.inf)), None
