"""The labeler of studies: the answers of the data file, some of them wrong."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from stacksl.errors import SettingsError
from stacksl.labelers.oracle import NONE, OracleLabeler


class NoisyLabeler(OracleLabeler):
    """The data file's answers, but each with probability P a wrong one, drawn uniformly.

    Whether and how slot s of item i is wrong is a function of (seed, i, s) alone: u and v in
    [0, 1) are the halves of a keyed BLAKE2b hash; the answer is wrong iff u < P, and then the
    ⌊v·(K − 1)⌋-th of the wrong candidates. An item with one candidate or none
    that is right is never answered wrongly.
    """

    def __init__(
        self, probability: float, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
    ) -> None:
        """Store the answers; see `OracleLabeler` for the arguments.

        Raises:
            SettingsError: a probability outside [0, 1].
            LabelerError: items without an answer, or with one outside their candidates.
        """
        if not 0.0 <= probability <= 1.0:
            raise SettingsError(
                f"the labeler 'noisy:P' needs a probability P from 0 to 1, got {probability:g}"
            )
        self.name = f"noisy:{probability:g}"
        super().__init__(answers, sizes)
        self._probability = probability
        self._sizes = dict(sizes)
        self._seed = seed

    def _index(self, item: str, slot: int) -> int:
        gold, wrong = self._gold(item), self._sizes[item] - 1
        text = f"{self._seed}\x00{slot}\x00{item}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=16, key=b"stacksl noisy").digest()
        u, v = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
        if wrong < 1 or gold == NONE or u >= self._probability * 2.0**64:
            return gold
        other = (v * wrong) >> 64
        return other if other < gold else other + 1
