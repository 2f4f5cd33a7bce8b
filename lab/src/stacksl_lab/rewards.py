"""Rewards: noisy scores of the choice alone, the feedback of the paper's Assumption 2.

No labeler of a run gives them: they are learned in studies, by `ridge` on pair features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stacksl.core.blocks import Array, Inputs, PairFeatures
from stacksl.core.losses import softmax
from stacksl.core.scorers.base import View
from stacksl.core.scorers.ridge import PairRidge
from stacksl.types import Label


@dataclass(frozen=True, slots=True)
class Reward:
    """A noisy score of the choice."""

    value: float


Feedback: TypeAlias = Label | Reward


class RewardRidge(PairRidge):
    """`ridge` on pair features from rewards: φ(z, x̂) enters V, and b with y the reward.

    The policy is the softmax of the scores.
    """

    def reward(self, inputs: Inputs, choice: int, reward: Reward) -> None:
        """Learn the reward of a choice."""
        assert isinstance(inputs, PairFeatures)
        row = inputs.phi[choice : choice + 1]
        self.moment += reward.value * row[0]
        self.confidence.update(row)
        self.theta = self.confidence.gram_inv @ self.moment
        self.rounds += 1

    def _view(self, inputs: Inputs, presented: tuple[int, ...], scores: Array) -> View:
        return softmax(scores), *super()._view(inputs, presented, scores)[1:]
