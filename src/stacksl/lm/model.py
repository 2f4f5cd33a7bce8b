"""A language model with its adapter as a run uses it: items to features and scores, and refits.

It is a feature map like any other (`features.FeatureMap`): `transform` gives, for every option, its
pooled state φ(z, x) and the model's own score as its offset (`docs/paper.md`, D12).
What it gives changes when the adapter does, and with it the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, PairBlock
from stacksl.core.losses import softmax
from stacksl.errors import RunError
from stacksl.features.encoders import Progress
from stacksl.lm.distributed import ALONE, Distributed
from stacksl.lm.loading import Weights
from stacksl.lm.prompt.format import PMI_CONTEXTS, Prompt
from stacksl.lm.prompt.tokens import TokenItem, Tokenizing
from stacksl.lm.scoring.features import StateMap, to_fit_on
from stacksl.lm.scoring.normalize import (
    NORMALIZATIONS,
    Normalization,
    calibrated_loss,
    divisors,
    prior_temperature,
)
from stacksl.lm.scoring.packing import BLOCK
from stacksl.lm.settings import Lesson, ModelChoices, TrainSettings
from stacksl.lm.training.refit import Example, Trained
from stacksl.lm.worker import Worker
from stacksl.types import Item

WEIGHTS = "lm_weights"  # the fact that is the stamp of the base's weights
_REMEMBERED = 50_000  # items whose token rows are kept
_CHUNK = 8 * BLOCK  # items between two calls of `progress`


class LanguageModel:
    """A causal language model under an adapter, run and trained by all processes of a run.

    Args:
        seed: of the adapter's initial weights and of every refit's order.
        known: what was recorded of the base's weights before.

    Attributes:
        choices: as given, with what labels have chosen since.
        worker: the model of this process.

    Raises:
        SettingsError, FeatureError, MissingExtra: the model cannot be loaded or used.

    Source: `docs/paper.md`, D10 to D13.
    """

    reads_text = True

    def __init__(
        self,
        choices: ModelChoices,
        *,
        seed: int = 0,
        processes: Distributed = ALONE,
        known: Weights | None = None,
    ) -> None:
        self.seed = seed
        self._processes = processes
        self.worker = Worker(processes)
        processes.together(self.worker, "open", choices, seed, known)
        base = self.worker.base
        self._ask(choices)
        self._format.warn_of_thought()
        self._tokenizing = Tokenizing(base.tokenizer, choices.limits(base.positions))
        self._map = StateMap(choices.state_dim) if choices.state_dim else None
        self._initial = self._temperature = choices.temperature
        self._cut: set[str] = set()  # ids of items
        self._tokens: dict[Item, TokenItem] = {}

    def choose(
        self, items: Sequence[Item], gold: Sequence[int], sums: Sequence[Array] | None = None
    ) -> None:
        """Take the normalization, and for `pmi` the premise, that makes labels likeliest.

        Each is judged at a temperature fitted to the same labels, under the present weights.

        Args:
            items: labeled items, one at least.
            gold: the index of each one's label.
            sums: (K,) log p(option given prompt) of each item, where they are known.
        """
        if sums is None:
            sums = self._read("sums", self._rows(items))
        variants = [replace(self.choices, normalization=kind) for kind in NORMALIZATIONS]
        contexts = [name for name in PMI_CONTEXTS if name != "empty" or self._tokenizing.opens]
        variants += [replace(variants[-1], pmi_context=context) for context in contexts]
        losses = []
        for variant in variants:
            self._ask(variant)
            losses.append(calibrated_loss(self._normalized(sums, items, self._kind), gold))
        self._ask(variants[int(np.argmin(losses))])

    def choose_among(
        self, items: Sequence[Item], block: PairBlock, gold: Mapping[int, int]
    ) -> PairBlock:
        """Choose as `choose` does; `block` with the scores chosen, at a temperature of their own.

        The model runs behind premises alone: the rest follows from the scores in `block`.

        Args:
            block: their features and scores by `token_mean`, of the initial adapter.
            gold: labels by the place of their item, one at least.
        """
        temperature, rows = self.temperature, self._rows(items)
        sums = [
            inputs.offset * temperature * np.array(divisors(row, "token_mean"))
            for inputs, row in zip(block, rows, strict=True)
            if inputs.offset is not None
        ]
        self.choose([items[n] for n in gold], [*gold.values()], [sums[n] for n in gold])
        fitted = to_fit_on(len(items))
        self._initial = self.choices.temperature
        self._fit_temperature([sums[n] for n in fitted], [items[n] for n in fitted])
        return replace(block, base=np.concatenate(self._scaled(sums, items)))

    @property
    def way(self) -> dict[str, Any]:
        """Normalization, premise and temperature."""
        premise = self.choices.pmi_context
        return {
            "normalization": self._kind, "pmi_context": premise, "temperature": self.temperature
        }  # fmt: skip

    def adopt(self, way: Mapping[str, Any]) -> None:
        """Score in a `way` that was chosen, with its temperature before any refit."""
        kind, premise = way["normalization"], way["pmi_context"]
        self._ask(replace(self.choices, normalization=kind, pmi_context=premise))
        self._initial = self._temperature = float(way["temperature"])

    # --- a feature map -----------------------------------------------------------------------

    @property
    def spec(self) -> str:
        """What the model is called."""
        return f"model:{self.choices.model}"

    @property
    def dim(self) -> int:
        """The columns of a row; without states one, of zeros."""
        return 1 if self._map is None else self._map.dim

    @property
    def fingerprint(self) -> str:
        """A hash of the base weights, the adapter, how items are put, and what was fitted.

        An adapter that has not moved has the digest of what it started from, none of the base.
        """
        ignored: dict[str, Any] = {"device": "auto", "threads": None}
        ignored |= {"model": "", "batch_tokens": 1, "training": TrainSettings(), "verdict": ""}
        choices = replace(self.choices, dtype=self.worker.base.dtype, **ignored)
        contents = (
            self.worker.base.fingerprint,
            self.worker.adapter.fingerprint() if self.worker.moved else self.worker.start,
            repr(choices),
            repr(self._temperature),
            "" if self._map is None else self._map.fingerprint,
        )
        return hashlib.blake2b("\x1f".join(contents).encode(), digest_size=16).hexdigest()

    @property
    def truncated(self) -> int:
        """How many items lost text to the limits so far."""
        return len(self._cut)

    def fit(self, items: Sequence[Item]) -> None:
        """Fix the temperature, and the directions of states, on unlabeled `items`."""
        fit_items = [items[n] for n in to_fit_on(len(items))]
        if self._map is None:
            self._fit_temperature(self._read("sums", self._rows(fit_items)), fit_items)
            return
        pairs = self._read("states", self._rows(fit_items))
        self._fit_temperature([sums for sums, _ in pairs], fit_items)
        self._map.fit([states for _, states in pairs], [item.id for item in fit_items])

    def transform(self, items: Sequence[Item], progress: Progress | None = None) -> PairBlock:
        """φ and the model's scores of `items` under the present weights."""
        quantity = "sums" if self._map is None else "states"
        values = self._read(quantity, self._rows(items), progress)
        sums = values if self._map is None else [item_sums for item_sums, _ in values]
        scores = self._scaled(sums, items)
        sizes = [len(row) for row in scores]
        phi = np.zeros((sum(sizes), 1), np.float32)
        if self._map is not None:
            ids = [item.id for item in items]
            phi = np.concatenate(self._map.transform([states for _, states in values], ids))
        return PairBlock(
            phi,
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(scores),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """What was fitted on unlabeled items."""
        initial = self.temperature if self._initial is None else self._initial
        states = {} if self._map is None else self._map.state()
        return {"temperature": np.array(initial), **states}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` gave."""
        arrays = dict(state)
        self._initial = self._temperature = float(arrays.pop("temperature"))
        if self._map is not None:
            self._map.restore(arrays)

    @property
    def temperature(self) -> float:
        """What scores are divided by."""
        assert self._temperature is not None, "a temperature is given, or fitted first"
        return self._temperature

    def rescale(self, temperature: float | None) -> None:
        """Divide scores by `temperature` from here on; None for what `fit` found."""
        self._temperature = self._initial if temperature is None else temperature

    # --- a scorer ----------------------------------------------------------------------------

    def policies(self, items: Sequence[Item], progress: Progress | None = None) -> list[Array]:
        """(K,) probabilities of every item's options under the present weights."""
        sums = self._read("sums", self._rows(items), progress)
        return [softmax(scores) for scores in self._scaled(sums, items)]

    def scores(self, items: Sequence[Item], kind: Normalization) -> list[Array]:
        """(K,) scores of every item's options by one normalization, temperature 1."""
        return self._normalized(self._read("sums", self._rows(items)), items, kind)

    # --- the adapter -------------------------------------------------------------------------

    def refit(self, bought: Sequence[Lesson], key: int, progress: Progress | None) -> Trained:
        """Train the adapter from its initial weights on `bought`; `key` with the seed fixes all.

        Args:
            bought: labels, in their order, and terms without a label.
            key: of this refit's order and dropout.
            progress: called with (done, total) optimizer steps.
        """
        kind, items = self._kind, [lesson.item for lesson in bought]
        premise_rows = self._alone(items) if kind == "pmi" else [None] * len(items)
        examples = [
            Example(row, premise, lesson.label, lesson.candidates, lesson.reference)
            for lesson, row, premise in zip(bought, self._rows(items), premise_rows, strict=True)
        ]
        training = replace(self.choices.training, normalization=kind, temperature=self.temperature)
        self.worker.progress = progress
        trained: Trained = self._processes.together(
            self.worker, "train", examples, training, self.seed, key
        )
        return trained

    def save(self, folder: Path) -> str:
        """Write the adapter as it is into `folder`; its fingerprint."""
        self.worker.adapter.save(folder)
        return self.worker.adapter.fingerprint()

    def take(self, folder: Path) -> str:
        """Take the adapter that `save` wrote; its fingerprint."""
        self._processes.together(self.worker, "take", folder)
        return self.worker.adapter.fingerprint()

    def reset(self) -> None:
        """Take the initial adapter: the model is again the one that the run starts from."""
        self._processes.together(self.worker, "reset")

    def expect_base(self, fingerprint: str, whose: str) -> None:
        """Check that the base has the weights, tokenizer and chat template of a `fingerprint`.

        Raises:
            RunError: it has others; `whose` says what was made with those.
        """
        if (base := self.worker.base).fingerprint != fingerprint:
            raise RunError(
                f"{whose} the weights {fingerprint[:12]}, but {base.name} is"
                f" {base.fingerprint[:12]} here: restore its weights, tokenizer and chat template,"
                " or run again"
            )

    def facts(self) -> dict[str, Any]:
        """How it was computed: what a resumed run must have alike."""
        from stacksl.lm.scoring.paths import load_torch

        base, verdict = self.worker.base, self.worker.verdict
        path = {"lm_path": verdict.partition(" ")[0], "lm_verdict": verdict} if verdict else {}
        path |= {"lm_start": self.worker.start} if self.worker.start else {}
        return {
            "lm_base": base.fingerprint,
            WEIGHTS: base.weights.stamp,
            "lm_source": base.source,
            "lm_device": base.device,
            "lm_dtype": base.dtype,
            **path,
            "lm_threads": load_torch().get_num_threads(),
            "lm_processes": self._processes.size,
            "lm_normalization": self.choices.normalization,
            "lm_pmi_context": self.choices.pmi_context,
            "lm_temperature": self.temperature,
            "lm_template": self.choices.template,
        }

    # --- inside ------------------------------------------------------------------------------

    def _ask(self, choices: ModelChoices) -> None:
        """Put items as `choices` say from here on."""
        self.choices, self._format = choices, choices.form(self.worker.base.tokenizer)
        self._premises: dict[Item, TokenItem] = {}

    @property
    def _kind(self) -> Normalization:
        kind = self.choices.normalization
        return "token_mean" if kind == "auto" else kind

    def _fit_temperature(self, sums: Sequence[Array], items: Sequence[Item]) -> None:
        """Fix the temperature on unlabeled `items`, unless it was given or fitted before."""
        if self._initial is None:
            self._initial = prior_temperature(self._normalized(sums, items, self._kind))
        self._temperature = self._initial

    def _rows(self, items: Iterable[Item]) -> list[TokenItem]:
        rows = self._tokenized(self._tokens, items, self._format.render)
        self._cut.update(row.id for row in rows if row.cut)
        return rows

    def _alone(self, items: Iterable[Item]) -> list[TokenItem]:
        """The options of `items` without what the items ask, for pmi."""
        return self._tokenized(self._premises, items, self._format.render_alone)

    def _tokenized(
        self, cache: dict[Item, TokenItem], items: Iterable[Item], render: Callable[[Item], Prompt]
    ) -> list[TokenItem]:
        """Token rows of `items`, each made once while no more than so many are in the `cache`."""
        listed_items = list(items)
        if len(cache) + len(listed_items) > _REMEMBERED:
            cache.clear()
        missing = [item for item in dict.fromkeys(listed_items) if item not in cache]
        prompts = [render(item) for item in missing]
        cache.update(zip(missing, self._tokenizing.items(prompts), strict=True))
        return [cache[item] for item in listed_items]

    def _read(
        self, quantity: str, rows: Sequence[TokenItem], progress: Progress | None = None
    ) -> list[Any]:
        """The `sums` or `states` of rows, some at a time."""
        values: list[Any] = []
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            values += self._processes.together(self.worker, quantity, chunk)
            if progress is not None:
                progress(len(values), len(rows))
        return values

    def _scaled(self, sums: Sequence[Array], items: Sequence[Item]) -> list[Array]:
        temperature = self.temperature
        return [scores / temperature for scores in self._normalized(sums, items, self._kind)]

    def _normalized(
        self, sums: Sequence[Array], items: Sequence[Item], kind: Normalization
    ) -> list[Array]:
        """The scores at temperature 1: `normalize.normalized`, on numbers that are here already."""
        if kind == "pmi":
            return [a - b for a, b in zip(sums, self._premise_sums(items), strict=True)]
        rows = self._rows(items)
        return [logs / np.array(divisors(row, kind)) for logs, row in zip(sums, rows, strict=True)]

    def _premise_sums(self, items: Sequence[Item]) -> list[Array]:
        """Log p(option) behind the premise alone; each pair of both is scored once."""
        premise_rows = self._alone(items)
        distinct = list({(row.prompt, row.options): row for row in premise_rows}.values())
        sums = self._read("sums", distinct)
        sums_of = {(r.prompt, r.options): s for r, s in zip(distinct, sums, strict=True)}
        return [sums_of[row.prompt, row.options] for row in premise_rows]
