"""`sentences:minilm`: all-MiniLM-L6-v2 on ONNX Runtime, without torch.

The graph is written here, in ONNX Runtime's fused operators, and takes its weights from the file
that the authors of the model published. It is made in memory each time that a text has to be
encoded: that takes less time than reading a graph with its weights from a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError
from stacksl.features.cache import CachedEncoder, Entry
from stacksl.features.encoders import Vectors, encoder_threads, in_batches, unit
from stacksl.features.weights import MINILM, MINILM_SHA256, file_hash, find_minilm
from stacksl.telemetry import load_library

LAYERS, HEADS, DIM, LONGEST = 6, 12, 384, 256
PARTS = 16  # of a text that are read: 4,064 tokens
_TOKENS = 512  # of a batch: more is no faster, and needs more memory
_TOKENIZED_AT_ONCE = 4096  # texts
_OPEN = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>'
_PLAIN = """(int32[rows, tokens] ids, int32[rows, tokens] segments)
  => (float[rows, tokens, dim] states)"""
_EMBEDDING = """
  embedded, unused = com.microsoft.EmbedLayerNormalization <epsilon = 1e-12> (ids, segments,
    embeddings_word_embeddings_weight, embeddings_position_embeddings_weight,
    embeddings_token_type_embeddings_weight, embeddings_LayerNorm_weight, embeddings_LayerNorm_bias)
"""
_LAYER = """
  {at}_q = Transpose <perm = [1, 0]> ({at}_attention_self_query_weight)
  {at}_k = Transpose <perm = [1, 0]> ({at}_attention_self_key_weight)
  {at}_v = Transpose <perm = [1, 0]> ({at}_attention_self_value_weight)
  {at}_joint = Concat <axis = 1> ({at}_q, {at}_k, {at}_v)
  {at}_bias = Concat <axis = 0> ({at}_attention_self_query_bias, {at}_attention_self_key_bias,
    {at}_attention_self_value_bias)
  {at}_heads = com.microsoft.Attention <num_heads = {heads}> ({before}, {at}_joint, {at}_bias,
    {mask})
  {at}_o = Transpose <perm = [1, 0]> ({at}_attention_output_dense_weight)
  {at}_attended = MatMul ({at}_heads, {at}_o)
  {at}_middle = com.microsoft.SkipLayerNormalization <epsilon = 1e-12> ({at}_attended, {before},
    {at}_attention_output_LayerNorm_weight, {at}_attention_output_LayerNorm_bias,
    {at}_attention_output_dense_bias)
  {at}_i = Transpose <perm = [1, 0]> ({at}_intermediate_dense_weight)
  {at}_wide = MatMul ({at}_middle, {at}_i)
  {at}_active = com.microsoft.BiasGelu ({at}_wide, {at}_intermediate_dense_bias)
  {at}_d = Transpose <perm = [1, 0]> ({at}_output_dense_weight)
  {at}_narrow = MatMul ({at}_active, {at}_d)
  {states} = com.microsoft.SkipLayerNormalization <epsilon = 1e-12> ({at}_narrow, {at}_middle,
    {at}_output_LayerNorm_weight, {at}_output_LayerNorm_bias, {at}_output_dense_bias)
"""


class MiniLM(CachedEncoder):
    """all-MiniLM-L6-v2: the mean of the last layer's token states, of norm 1, in float32.

    A text longer than the model reads is encoded in parts: its vector is the mean of theirs, each
    weighted by its number of tokens (`docs/features.md`).

    A text is encoded together with texts of as many tokens, so that none is padded, and each batch
    runs on one thread. Its vector then has the same bits in any batch and on any number of
    threads.

    Args:
        threads: batches that run at a time; default `$STACKSL_ENCODER_THREADS`, else the cores
            that the process may use.

    Raises:
        FeatureError: the weights are not on this machine, and cannot be downloaded.
        MissingExtra: a package of the extra `minilm` is not installed.

    Source: Reimers and Gurevych (2019), "Sentence-BERT"; Wang et al. (2020), "MiniLM".
    """

    dim = DIM

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__(f"sentences:{MINILM}")
        self.threads = threads or encoder_threads() or _cores()
        self._folder = find_minilm()

    @cached_property
    def identity(self) -> str:
        """The hash of weights, tokenizer and the way of encoding, independent of the path."""
        tokenizer = file_hash(self._folder / "tokenizer.json")
        return hashlib.sha256(f"minilm 2: {MINILM_SHA256} {tokenizer}".encode()).hexdigest()

    def weights(self) -> dict[str, NDArray[Any]]:
        """The weights as they were published; their names are those of `transformers` with `_`.

        Raises:
            FeatureError: they are missing, or others.
        """
        from safetensors.numpy import load_file

        file = self._folder / "model.safetensors"
        digest = file_hash(file) if file.is_file() else "no file"
        if digest != MINILM_SHA256:
            raise FeatureError(
                f"the weights of '{self.spec}' in {self._folder} should have the SHA-256 "
                f"{MINILM_SHA256[:12]}... of the original and have {digest[:12]}: remove that copy"
                " and install it again"
            )
        return {name.replace(".", "_"): array for name, array in load_file(file).items()}

    def vectors(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Entry]]]:
        """The place of each text with its vector and whether it was cut, batch by batch."""
        parts, cut = self.tokens(texts)

        def run(indices: list[int]) -> list[tuple[int, Entry]]:
            if len(parts[indices[0]]) > 1:  # a long text, which has a batch of its own
                rows = self._long(parts[indices[0]])
            else:
                rows = self._run(np.stack([parts[index][0] for index in indices]))
            return [(p, (row, cut[p])) for p, row in zip(indices, rows, strict=True)]

        lengths = [sum(map(len, text_parts)) for text_parts in parts]
        batches = in_batches(lengths, lambda length: _TOKENS // length if length <= LONGEST else 1)
        _ = self._session  # made once, before several threads ask for it
        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(run, [indices for _, indices in batches])

    def tokens(self, texts: Sequence[str]) -> tuple[list[list[NDArray[np.int32]]], list[bool]]:
        """The tokens of each text in parts, and whether some were left out."""
        parts, cut = list[list[NDArray[np.int32]]](), list[bool]()
        for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
            for encoding in self.tokenizer.encode_batch(texts[start : start + _TOKENIZED_AT_ONCE]):
                encodings = [encoding, *encoding.overflowing]
                parts.append([np.array(part.ids, np.int32) for part in encodings[:PARTS]])
                cut.append(len(encodings) > PARTS)
        return parts, cut

    def _long(self, parts: list[NDArray[np.int32]]) -> Vectors:
        """The unit vector (1, d) of a text in parts, all of one length but the last."""
        vectors = np.concatenate([self._run(np.stack(parts[:-1])), self._run(parts[-1][None])])
        weights = np.array([len(part) - 2.0 for part in parts])  # without the two special tokens
        return unit((weights @ vectors.astype(np.float64))[None])

    def _run(self, ids: NDArray[np.int32]) -> Vectors:
        """The unit vectors (n, d) of n texts of as many tokens, `ids` (n, tokens)."""
        (states,) = self._session.run(None, {"ids": ids, "segments": np.zeros_like(ids)})
        # the sum over tokens in the graph would depend on the number of texts in its last bits
        return unit(states.sum(axis=1, dtype=np.float64))

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, which cuts a text into parts of 256 tokens.

        Raises:
            FeatureError: it cannot be read.
        """
        tokenizers = _load("tokenizers")
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more special
            raise FeatureError(
                f"the tokenizer of '{self.spec}' in {self._folder} cannot be read ({error}): remove"
                " that copy and install it again"
            ) from error
        tokenizer.no_padding()
        tokenizer.enable_truncation(LONGEST)
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        runtime, weights = _load("onnxruntime"), self.weights()
        model = bert_graph(_PLAIN, LAYERS, HEADS)
        used = weights_of(model.graph, weights)
        for name in used:  # float32, outside of the model
            kind = {"dims": weights[name].shape, "data_type": 1, "data_location": 1}
            tensor = model.graph.initializer.add(name=name, **kind)
            tensor.external_data.add(key="location", value="given")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors alone
        values = [runtime.OrtValue.ortvalue_from_numpy(weights[name]) for name in used]
        options.add_external_initializers(used, values)
        providers = ["CPUExecutionProvider"]
        return runtime.InferenceSession(model.SerializeToString(), options, providers=providers)


def bert_graph(signature: str, layers: int, heads: int, *, mask: str = "", tail: str = "") -> Any:
    """A BERT encoder as an ONNX model, whose weights are its initializers, to be given apart.

    Args:
        signature: inputs and outputs in ONNX's text format. `ids` and `segments`, (rows, tokens) of
            int32, are inputs.
        mask: the input that is 1 for a token and 0 for padding, of the shape of `ids`; without one
            no row may be padded.
        tail: nodes in that format that read `states`, (rows, tokens, dim), of the last layer.

    Source: Devlin et al. (2019), "BERT"; the operators are ONNX Runtime's contributed ones.
    """
    _load("onnx")
    from onnx import parser

    nodes, input_states = _EMBEDDING, "embedded"
    for number in range(layers):
        states = f"states_{number}" if number < layers - 1 else "states"
        names = {"before": input_states, "states": states, "heads": heads, "mask": mask}
        nodes += _LAYER.format(at=f"encoder_layer_{number}", **names)
        input_states = states
    return parser.parse_model(f"{_OPEN} bert {signature} {{ {nodes} {tail} }}")


def weights_of(graph: Any, weights: Mapping[str, Any]) -> list[str]:
    """The names of those weights that a graph reads."""
    inputs = {name for node in graph.node for name in node.input}
    return [name for name in weights if name in inputs]


def _load(package: str) -> Any:
    """A package of the extra, of which an interrupted installation may have left a part."""
    return load_library(package, f"the encoder '{MINILM}'", MINILM, package)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
