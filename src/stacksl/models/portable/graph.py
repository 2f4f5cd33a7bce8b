"""`model.onnx`: the encoder with the final head or mixture, from tokens to probabilities.

The encoder runs in float32 and all behind it in float64, so that the probabilities are those of
`predict` to 1e-5, whatever C the head was fitted with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.errors import MissingExtra
from stacksl.features.encoders import Encoder
from stacksl.features.minilm import HEADS, LAYERS, MiniLM, bert_graph
from stacksl.features.rows import class_rows
from stacksl.features.weights import MINILM

_OPEN = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>'
_POOLED = """pooled (float[rows, tokens, dim] states, int32[rows, tokens] mask, int32[rows] text)
    => (double[texts, dim] unit) {
  one = Constant <value = int32 {1}> ()
  axis = Constant <value = int64[1] {1}> ()
  least = Constant <value = double {1.0}> ()
  special = Constant <value = double {2.0}> ()
  wide = Cast <to = 11> (states)
  known = Cast <to = 11> (mask)
  sum = Einsum <equation = "rtd,rt->rd"> (wide, known)
  part = LpNormalization <axis = 1> (sum)
  length = ReduceSum <keepdims = 0> (known, axis)
  words = Sub (length, special)
  weight = Max (words, least)
  last = ReduceMax <keepdims = 0> (text)
  count = Add (last, one)
  zero = Sub (one, one)
  number = Range (zero, count, one)
  numbers = Unsqueeze (number, axis)
  belongs = Equal (numbers, text)
  shares = Cast <to = 11> (belongs)
  weights = Mul (shares, weight)
  mean = MatMul (weights, part)
  unit = LpNormalization <axis = 1> (mean)
}"""
_HEAD = """head (double[texts, dim] unit) => (double[texts, classes] probabilities) {
  scores = MatMul (unit, coefficients)
  logits = Add (scores, intercepts)
  apart = Reshape (logits, shape)
  policies = Softmax <axis = 2> (apart)
  probabilities = Einsum <equation = "nmk,m->nk"> (policies, mixture)
}"""


def model_graph(encoder: Encoder, head: ClassHead | MixedHead) -> Any:
    """The ONNX model of an encoder's vectors and a head on them, with its weights.

    Of `minilm` the inputs are int32: `ids` and `mask`, (rows, tokens), whose rows may be padded,
    and `text`, (rows,): which text, counted from 0, a row has the tokens of. The parts of a long
    text are rows with one number. Of another encoder the input is `vector`, (n, d) float32. The
    output `probabilities` is (n, K) float64.

    Raises:
        MissingExtra: the package onnx is not installed.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper, parser
    except ImportError as fault:
        raise MissingExtra.of("a model that is handed over", MINILM, "onnx") from fault
    tail, arrays = parser.parse_model(_OPEN + _HEAD), _head_arrays(head, encoder.bias)
    if isinstance(encoder, MiniLM):
        weights = encoder.weights()
        shapes = {name: array.shape for name, array in weights.items()}
        bert = bert_graph(shapes, LAYERS, HEADS, masked=True).graph
        arrays |= {each.name: weights[each.name] for each in bert.initializer}
        pooled = parser.parse_model(_OPEN + _POOLED).graph
        segments = helper.make_node("Sub", ["ids", "ids"], ["segments"])
        states = helper.make_node("Identity", [bert.output[0].name], ["states"])
        nodes = [segments, *bert.node, states, *pooled.node]
        inputs = [bert.input[0], *pooled.input[1:]]
    else:
        shape = ["texts", encoder.dim]
        inputs = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, shape)]
        nodes = [helper.make_node("Cast", ["vector"], ["unit"], to=TensorProto.DOUBLE)]
    nodes += tail.graph.node
    given = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "classifier", inputs, tail.graph.output, given)
    opsets = list(tail.opset_import)
    return helper.make_model(graph, opset_imports=opsets, ir_version=tail.ir_version)


def _head_arrays(head: ClassHead | MixedHead, bias: float) -> dict[str, NDArray[Any]]:
    """The arrays of M heads side by side, for vectors u in place of the rows that they read."""
    heads, mixture = (head.heads, head.weights) if isinstance(head, MixedHead) else ((head,), [1.0])
    encoded = heads[0].coefficients.shape[1] - (bias > 0.0)
    scale = class_rows(np.ones((1, encoded), np.float32), bias)[0].astype(np.float64)
    wide = np.concatenate([each.coefficients for each in heads]) * scale
    fixed = wide[:, encoded:].sum(axis=1) + np.concatenate([each.intercepts for each in heads])
    return {
        "coefficients": np.ascontiguousarray(wide[:, :encoded].T),
        "intercepts": fixed,
        "shape": np.array([-1, len(heads), len(heads[0].intercepts)]),
        "mixture": np.asarray(mixture, dtype=np.float64),
    }
