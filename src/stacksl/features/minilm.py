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
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.errors import FeatureError, MissingExtra
from stacksl.features.cache import CachedEncoder, Entry
from stacksl.features.encoders import Vectors, encoder_threads, in_batches, unit
from stacksl.features.weights import MINILM, MINILM_SHA256, file_hash, find_minilm

LAYERS, HEADS, DIM, LONGEST = 6, 12, 384, 256
PARTS = 16  # of a text that are read: 4,064 tokens
_EPSILON = 1e-12  # of the layer normalizations
_TOKENS = 512  # of a batch: more is no faster, and needs more memory
_FUSED = "com.microsoft"  # the domain of ONNX Runtime's own operators
_OPSETS = {"": 18, _FUSED: 1}
_TOKENIZED_AT_ONCE = 4096  # texts


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
        """The weights as they were published, by the names that `transformers` has for them.

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
        loaded: dict[str, NDArray[Any]] = load_file(file)
        return loaded

    def vectors(self, texts: Sequence[str]) -> Iterator[list[tuple[int, Entry]]]:
        """The place of each text with its vector and whether it was cut, batch by batch."""
        parts, cut = self.tokens(texts)

        def run(places: list[int]) -> list[tuple[int, Entry]]:
            if len(parts[places[0]]) > 1:  # a long text, which has a batch of its own
                rows = self._long(parts[places[0]])
            else:
                rows = self._run(np.stack([parts[place][0] for place in places]))
            return [(p, (row, cut[p])) for p, row in zip(places, rows, strict=True)]

        lengths = [sum(map(len, text_parts)) for text_parts in parts]
        batches = in_batches(lengths, lambda length: _TOKENS // length if length <= LONGEST else 1)
        _ = self._session  # made once, before several threads ask for it
        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(run, [places for _, places in batches])

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
        tokenizers = _imported("tokenizers")
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
        runtime = _imported("onnxruntime")
        weights = self.weights()
        graph = bert_graph({name: array.shape for name, array in weights.items()}, LAYERS, HEADS)
        used = [tensor.name for tensor in graph.graph.initializer]
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors alone
        values = [runtime.OrtValue.ortvalue_from_numpy(weights[name]) for name in used]
        options.add_external_initializers(used, values)
        providers = ["CPUExecutionProvider"]
        return runtime.InferenceSession(graph.SerializeToString(), options, providers=providers)


def bert_graph(
    shapes: Mapping[str, Sequence[int]], layers: int, heads: int, *, masked: bool = False
) -> Any:
    """A BERT encoder as an ONNX model whose weights are given apart.

    Its inputs are `ids` and `segments`, (rows, tokens) of int32, and where it is masked `mask`, 1
    for a token and 0 for padding; without a mask no row may be padded. Its output are the states of
    the last layer, (rows, tokens, dim).

    Args:
        shapes: the name and shape of each weight, as `transformers` names them.
        layers: the number of layers.
        heads: the number of attention heads.
        masked: whether rows may be padded.

    Source: Devlin et al. (2019), "BERT"; the operators are ONNX Runtime's contributed ones.
    """
    _imported("onnx")
    from onnx import TensorProto, helper

    nodes: list[Any] = []
    weights: dict[str, None] = {}  # in the order of their first use

    def weight(name: str) -> str:
        weights[name] = None
        return name

    def node(kind: str, inputs: Sequence[str], out: str, fused: bool = False, **given: Any) -> str:
        domain = _FUSED if fused else ""
        nodes.append(helper.make_node(kind, inputs, [out], name=out, domain=domain, **given))
        return out

    def transposed(layer: str) -> str:
        return node("Transpose", [weight(f"{layer}.weight")], f"{layer}.transposed", perm=[1, 0])

    def product(x: str, layer: str) -> str:
        return node("MatMul", [x, transposed(layer)], layer)

    def normalized(x: str, before: str, layer: str, norm: str) -> str:
        """LayerNorm(before + x W + b)."""
        scale = [weight(f"{norm}.weight"), weight(f"{norm}.bias"), weight(f"{layer}.bias")]
        inputs = [product(x, layer), before, *scale]
        return node("SkipLayerNormalization", inputs, norm, fused=True, epsilon=_EPSILON)

    tables = [f"{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    names = [*tables, "LayerNorm.weight", "LayerNorm.bias"]
    embedding = ["ids", "segments", *(weight(f"embeddings.{name}") for name in names)]
    nodes.append(
        helper.make_node(
            "EmbedLayerNormalization",
            embedding,
            ["embedded", "unused"],
            domain=_FUSED,
            epsilon=_EPSILON,
        )
    )
    x = "embedded"
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        joint = node("Concat", [transposed(part) for part in parts], f"{layer}.joint", axis=1)
        biases = [weight(f"{part}.bias") for part in parts]
        bias = node("Concat", biases, f"{layer}.joint.bias", axis=0)
        inputs = [x, joint, bias, *(["mask"] if masked else [])]
        attended = node("Attention", inputs, f"{layer}.heads", fused=True, num_heads=heads)
        output = f"{layer}.attention.output"
        x = normalized(attended, x, f"{output}.dense", f"{output}.LayerNorm")
        wide = f"{layer}.intermediate.dense"
        inputs = [product(x, wide), weight(f"{wide}.bias")]
        active = node("BiasGelu", inputs, f"{layer}.gelu", fused=True)
        x = normalized(active, x, f"{layer}.output.dense", f"{layer}.output.LayerNorm")

    given = [
        TensorProto(
            name=name,
            data_type=TensorProto.FLOAT,
            dims=shapes[name],
            data_location=TensorProto.EXTERNAL,
            external_data=[{"key": "location", "value": "given"}],
        )
        for name in weights
    ]
    size = ["rows", "tokens"]
    names = ["ids", "segments", *(["mask"] if masked else [])]
    ids = [helper.make_tensor_value_info(name, TensorProto.INT32, size) for name in names]
    dim = shapes["embeddings.word_embeddings.weight"][1]
    states = helper.make_tensor_value_info(x, TensorProto.FLOAT, [*size, dim])
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    graph = helper.make_graph(nodes, "bert", ids, [states], given)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _imported(package: str) -> Any:
    """A package of the extra, of which an interrupted installation may have left a part.

    Raises:
        MissingExtra: it cannot be imported.
    """
    try:
        return import_module(package)
    except ImportError as fault:
        raise MissingExtra.of(f"the encoder '{MINILM}'", MINILM, package) from fault


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
