"""The terms of a stream's run, and which of them do not go together."""

from __future__ import annotations

from dataclasses import dataclass

from stacksl.errors import SettingsError
from stacksl.game.drift import DriftGuard
from stacksl.game.engines.arrays import Stream
from stacksl.game.gates import Gate
from stacksl.game.scorers import ScorerSettings, make_scorer

__all__ = ["Terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What fixes a run besides its stream; the names are those of `run_stream`'s arguments."""

    scorer: str
    settings: ScorerSettings
    gate: Gate
    budget: int
    seed: int = 0
    kl_on_skips: bool = False
    width_scale: float | None = None
    certificates: bool = True
    marks: tuple[int, ...] = ()
    present: int | None = None
    drift: DriftGuard | None = None

    def check(self, stream: Stream) -> None:
        """Refuse terms that do not go together, or not with `stream`.

        Raises:
            SettingsError: in one sentence.
        """
        if self.budget < 0:
            raise SettingsError(f"a budget should be at least 0 labels, not {self.budget}")
        self._check_scorer(stream)
        self._check_marks(stream.rounds)
        if self.present is not None:
            self._check_follower(stream, self.present)
        if self.drift is not None:
            self._check_drift(stream)

    def _check_scorer(self, stream: Stream) -> None:
        classes = None if stream.classes is None else 1
        make_scorer(self.scorer, dim=1, classes=classes, settings=self.settings)
        if len(stream.rewards) and (self.scorer != "ridge" or stream.classes is not None):
            raise SettingsError(
                f"the scorer '{self.scorer}' "
                f"{'' if stream.classes is None else 'on class heads '}learns "
                "from labels, but rewards came: take the scorer 'ridge' on pair features"
            )
        if self.settings.track == "theta" and self.gate.needs_widths:
            raise SettingsError(
                f"the gate '{self.gate.name}' needs widths, and track 'theta' keeps none: "
                "track 'labelled', or choose another gate"
            )

    def _check_marks(self, rounds: int) -> None:
        rising = list(self.marks) == sorted(set(self.marks))
        if not rising or not all(1 <= mark <= rounds for mark in self.marks):
            raise SettingsError(
                f"marks should be rising numbers of rounds from 1 to {rounds}, not {self.marks}"
            )

    def _check_follower(self, stream: Stream, present: int) -> None:
        if stream.classes is not None or not 2 <= present <= stream.candidates:
            raise SettingsError(
                f"an adaptive follower presents 2 to all {stream.candidates} candidates of pair "
                f"features, but present = {present}"
                f"{'' if stream.classes is None else ' came with classes'}: leave it out to "
                "present every candidate"
            )
        if len(stream.labels):
            raise SettingsError(
                "an adaptive follower's labels depend on what it presents: give the utilities of "
                "all candidates in place of labels, or leave `present` out"
            )

    def _check_drift(self, stream: Stream) -> None:
        labelled = not len(stream.rewards)
        if stream.classes is not None or self.settings.track == "theta":
            raise SettingsError(
                "the drift guard needs pair features and a matrix: leave drift out for class "
                "heads, and track 'labelled' instead of 'theta'"
            )
        if labelled and self.scorer == "ridge":
            raise SettingsError(
                "the drift guard reads labels by the policy's own log-loss, and the one-hot scores "
                "of 'ridge' are no such policy: take the scorer 'newton' or 'sgd', or leave drift "
                "out"
            )
