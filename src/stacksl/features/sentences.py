"""`sentences:NAME_OR_DIR`: any encoder that sentence-transformers loads, with its own pooling.

The one module of the package that imports torch, and only when a text has to be encoded.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from stacksl.errors import FeatureError
from stacksl.features.cache import CachedEncoder, Entry
from stacksl.features.encoders import Vectors, encoder_threads, in_batches, unit
from stacksl.features.weights import classification_prompt, find_weights, folder_hash

_ROWS = 16  # of every batch; the first is the filler that sets its length
_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 2**15)


class SentenceEncoder(CachedEncoder):
    """A sentence encoder with fixed weights: v(text) / ‖v(text)‖ in float32.

    The bits of a matrix product depend on its shape, so every text is encoded in a shape that
    follows from its own length alone: 16 rows, padded to the next of a few fixed lengths. The
    first row is a filler of exactly that length, and rows without a text are fillers too.

    Args:
        name: a folder, or a name on the Hugging Face hub.
        threads: of torch while it encodes; default `$STACKSL_ENCODER_THREADS`, else 2, or 1 where
            torch was loaded before with threads that spin. Another number may change last bits.

    Raises:
        FeatureError: the encoder cannot be found.
        MissingExtra: sentence-transformers is not installed.

    Source: Reimers and Gurevych (2019), "Sentence-BERT".
    """

    gpu = True

    def __init__(self, name: str, *, threads: int | None = None) -> None:
        super().__init__(f"sentences:{name}", name=name)
        self.threads = threads or _threads()
        self._folder = find_weights(name)
        self._fillers: dict[int, str] = {}

    @cached_property
    def identity(self) -> str:
        """The hash of weights, tokenizer, settings and prompt, independent of the folder's path."""
        prompt = "" if self._prompt is None else f"; class prompt: {self._prompt}"
        text = f"sentences 1: {folder_hash(self._folder)}{prompt}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def dim(self) -> int:
        """The columns of a vector; from the cache if it is there, so that nothing is loaded."""
        return self._cache.dim() or len(next(self.vectors([""]))[0][1][0])

    def vectors(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Entry]]]:
        """The place of each text with its vector and whether it was cut, batch by batch."""
        if self._tokenizer is None:
            for index, text in enumerate(texts):
                yield [(index, (self._run([text])[0], False))]
            return
        lengths = self._lengths(list(texts))
        for padded, indices in in_batches(list(map(self._padded, lengths)), lambda _: _ROWS - 1):
            encoded = self._run([texts[index] for index in indices], padded)
            yield [
                (index, (row, lengths[index] > self._longest))
                for index, row in zip(indices, encoded, strict=True)
            ]

    def _padded(self, length: int) -> int:
        """The padded length of a text of `length` tokens."""
        length = min(length, self._longest)
        bucket = next((fixed for fixed in _LENGTHS if fixed >= length), length)
        return min(bucket, self._longest)

    def _run(self, texts: list[str], padded: int | None = None) -> Vectors:
        """Unit vectors (n, d) of `texts` in one batch of the fixed shape for `padded` tokens."""
        rows = texts
        if padded is not None:
            filler = self._filler(padded)
            rows = [filler, *texts, *[filler] * (_ROWS - 1 - len(texts))]
        with _torch_threads(self.threads):
            encoded = self._model.encode(
                rows,
                prompt=self._prompt,
                batch_size=len(rows),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        text_rows = encoded[1 : 1 + len(texts)] if padded is not None else encoded
        return unit(np.asarray(text_rows, np.float64))

    def _filler(self, padded: int) -> str:
        """The shortest run of one word that has at least `padded` tokens, found by bisection."""
        if padded not in self._fillers:
            low, high = 0, padded + 1
            while low < high:
                middle = (low + high) // 2
                (length,) = self._lengths(["a " * middle])
                if length >= padded:
                    high = middle
                else:
                    low = middle + 1
            self._fillers[padded] = "a " * low
        return self._fillers[padded]

    def _lengths(self, texts: list[str]) -> list[int]:
        """Tokens of each text, special ones and the prompt included."""
        prompt = self._prompt
        if prompt is None:
            prompt = self._model.prompts.get(self._model.default_prompt_name or "", "") or ""
        tokens = self._tokenizer([prompt + text for text in texts], truncation=False, verbose=False)
        return [len(ids) for ids in tokens["input_ids"]]

    @cached_property
    def _longest(self) -> int:
        """The most tokens that the encoder reads; the largest integer where there is no bound."""
        limit = self._model.max_seq_length
        return limit if limit and limit < 10**6 else sys.maxsize

    @cached_property
    def _prompt(self) -> str | None:
        """What the model puts before a text; None for its default prompt."""
        return classification_prompt(self._folder)

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer, None where it is of another kind: texts are run one by one then."""
        from transformers import PreTrainedTokenizerBase

        tokenizer = getattr(self._model, "tokenizer", None)
        return tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        try:
            with quiet():
                model = SentenceTransformer(str(self._folder), local_files_only=True)
        except Exception as error:  # the loader may raise anything on an unknown folder
            raise FeatureError(
                f"features '{self.spec}' cannot be loaded by sentence-transformers "
                f"({str(error).strip().splitlines()[0]}): check the folder {self._folder}"
            ) from error
        return model.float().eval()


def _threads() -> int:
    """The threads of torch by default: two that sleep while they wait for each other, else one.

    OpenMP reads its variable once, when torch loads it, and waiting threads spin by default. 300
    questions on two busy cores took 68 s with two spinning threads, 13.5 s with one, and 9.2 s with
    two that sleep; the bits are the same.
    """
    if (count := encoder_threads()) is not None:
        return count
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return 2 if os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE" else 1


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    import torch

    old_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(old_count)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars, logs and warnings of transformers and of the hub."""
    from transformers.utils import logging

    hub: Any = import_module("huggingface_hub.utils")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_level, hub_bars = hub.logging.get_verbosity(), not hub.are_progress_bars_disabled()
    logging.set_verbosity(logging.CRITICAL)
    hub.logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()  # the hub's too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        hub.logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()
        (hub.enable_progress_bars if hub_bars else hub.disable_progress_bars)()
