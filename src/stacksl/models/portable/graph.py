"""`model.onnx`: the encoder with the final head or mixture, from tokens to probabilities.

The encoder runs in float32 and all behind it in float64, so that the probabilities are those of
`predict` to 1e-5, for any C that the head was fitted with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.features.minilm import HEADS, LAYERS, MiniLM, bert_graph
from stacksl.features.rows import class_rows

_OPEN = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>'
_POOLED = """pooled (float[rows, tokens, dim] states, int32[rows, tokens] mask, int64[rows] text)
    => (double[texts, dim] unit) {
  wide = Cast <to = 11> (states)
  known = Cast <to = 11> (mask)
  sum = Einsum <equation = "rtd,rt->rd"> (wide, known)
  part = LpNormalization <axis = 1> (sum)
  length = Einsum <equation = "rt->r"> (known)
  inner = Sub (length, ends)
  weight = Max (inner, least)
  each = Unique (text)
  column = Unsqueeze (each, axis)
  own = Equal (column, text)
  owned = Cast <to = 11> (own)
  weights = Mul (owned, weight)
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


def model_graph(encoder: MiniLM, head: ClassHead | MixedHead) -> Any:
    """The ONNX model of the encoder's vectors and a head on them, with its weights.

    The inputs are `ids` and `mask`, (rows, tokens) of int32, whose rows may be padded, and `text`,
    (rows,) of int64: the number of a row's text. The output `probabilities` is (n, K).

    Raises:
        MissingExtra: the package onnx is not installed.
    """
    weights = encoder.weights()
    shapes = {name: array.shape for name, array in weights.items()}
    bert = bert_graph(shapes, LAYERS, HEADS, masked=True).graph
    from onnx import helper, numpy_helper, parser  # known to be there now

    pooled, tail = (parser.parse_model(_OPEN + text) for text in (_POOLED, _HEAD))
    segments = helper.make_node("Sub", ["ids", "ids"], ["segments"])
    states = helper.make_node("Identity", [bert.output[0].name], ["states"])
    nodes = [segments, *bert.node, states, *pooled.graph.node, *tail.graph.node]
    inputs = [bert.input[0], *pooled.graph.input[1:]]
    arrays = {tensor.name: weights[tensor.name] for tensor in bert.initializer}
    arrays |= _head_arrays(head, encoder.bias)
    arrays |= {"ends": np.array(2.0), "least": np.array(1.0), "axis": np.array(1)}
    given = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "classifier", inputs, tail.graph.output, given)
    return helper.make_model(graph, opset_imports=tail.opset_import, ir_version=tail.ir_version)


def _head_arrays(head: ClassHead | MixedHead, bias: float) -> dict[str, NDArray[Any]]:
    """The arrays of M heads side by side, for vectors u in place of the rows that they read."""
    heads, mixture = (head.heads, head.weights) if isinstance(head, MixedHead) else ((head,), [1.0])
    encoded = heads[0].coefficients.shape[1] - (bias > 0.0)
    scale = class_rows(np.ones((1, encoded), np.float32), bias)[0].astype(np.float64)
    wide = np.concatenate([part.coefficients for part in heads]) * scale
    fixed = wide[:, encoded:].sum(axis=1) + np.concatenate([part.intercepts for part in heads])
    return {
        "coefficients": np.ascontiguousarray(wide[:, :encoded].T),
        "intercepts": fixed,
        "shape": np.array([-1, len(heads), len(heads[0].intercepts)]),
        "mixture": np.asarray(mixture, dtype=np.float64),
    }
