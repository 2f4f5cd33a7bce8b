"""`model.onnx`: the encoder with the final head or mixture, from tokens to probabilities.

The encoder runs in float32 and all behind it in float64, so that the probabilities are those of
`predict` to 1e-5, for any C that the head was fitted with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.features.hashing import BUCKETS, ENTRY_BITS
from stacksl.features.minilm import HEADS, LAYERS, MiniLM, bert_graph, weights_of
from stacksl.features.rows import class_rows
from stacksl.features.tokens import ADDED, DIM, KEPT, STEP, WithTokens

_SIGNATURE = """(int32[rows, tokens] ids, int32[rows, tokens] mask, int64[rows] text)
  => (double[texts, classes] probabilities)"""
_POOLED = """
  segments = Sub (ids, ids)
  wide = Cast <to = 11> (states)
  known = Cast <to = 11> (mask)
  sum = Einsum <equation = "rtd,rt->rd"> (wide, known)
  part = LpNormalization <axis = 1> (sum)
  length = Einsum <equation = "rt->r"> (known)
  inner = Sub (length, ends)
  weight = Max (inner, least)
  each, first_row, number, rows_of = Unique (text)
  texts = Shape (each)
  own = OneHot <axis = 0> (number, texts, no_yes)
  owned = Cast <to = 11> (own)
  weights = Mul (owned, weight)
  mean = MatMul (weights, part)
  unit = LpNormalization <axis = 1> (mean)
"""
_ALONE = "features = Identity (unit)"
# The n-grams of `WithTokens`: a cell is an n-gram in a text, and `Unique` counts each.
_GRAMS = """
  token = Cast <to = 7> (ids)
  before = Slice (token, none, last, axis)
  after = Slice (token, axis, end, axis)
  spread = Mul (before, step)
  named = Add (spread, after)
  bucket = Mod (named, buckets)
  pair = Add (bucket, buckets)
  columns = Concat <axis = 1> (token, pair)
  seen = Slice (mask, axis, end, axis)
  both_seen = Concat <axis = 1> (mask, seen)
  read = Cast <to = 9> (both_seen)
  kept = Gather (places, columns)
  at = Where (read, kept, unknown)
  base = Mul (number, width)
  offset = Unsqueeze (base, axis)
  cell = Add (at, offset)
  every = Reshape (cell, last)
  cells, first, back, count = Unique (every)
  place = Mod (cells, width)
  of_text = Div (cells, width)
  many = Cast <to = 11> (count)
  log = Log (many)
  frequency = Add (log, least)
  rare = Gather (idf, place)
  product = Mul (frequency, rare)
  raw = Round (product)
  weighed = Unsqueeze (raw, axis)
  squared = Mul (weighed, weighed)
  kind = Gather (kinds, place)
  by_kind = Mul (squared, kind)
  owner = OneHot <axis = 0> (of_text, texts, no_yes)
  owns = Cast <to = 11> (owner)
  squares = MatMul (owns, by_kind)
  some = Cast <to = 9> (squares)
  parts = Cast <to = 11> (some)
  amount = ReduceSum (parts, axis)
  total = Mul (squares, amount)
  each_total = Gather (total, of_text)
  own_total = Mul (each_total, kind)
  square = ReduceSum (own_total, axis)
  root = Sqrt (square)
  divisor = Max (root, tiny)
  share = Div (weighed, divisor)
  scaled = Mul (share, entries)
  entry = Round (scaled)
  row = Gather (basis, place)
  direction = Cast <to = 11> (row)
  added = Mul (entry, direction)
  sum_of = MatMul (owns, added)
  vector = LpNormalization <axis = 1> (sum_of)
  part_of = Mul (vector, share_added)
  rest_of = Mul (unit, share_kept)
  features = Concat <axis = 1> (rest_of, part_of)
"""
_HEAD = """
  scores = MatMul (features, coefficients)
  logits = Add (scores, intercepts)
  apart = Reshape (logits, shape)
  policies = Softmax <axis = 2> (apart)
  probabilities = Einsum <equation = "nmk,m->nk"> (policies, mixture)
"""


def model_graph(encoder: MiniLM | WithTokens, head: ClassHead | MixedHead) -> Any:
    """The ONNX model of the encoder's vectors and a head on them, with its weights.

    The inputs are `ids` and `mask`, (rows, tokens) of int32, whose rows may be padded, and `text`,
    (rows,) of int64: the number of a row's text. The output `probabilities` is (n, K).

    Raises:
        MissingExtra: the package onnx is not installed.
    """
    sentence_encoder = encoder.encoder if isinstance(encoder, WithTokens) else encoder
    grams = _GRAMS if isinstance(encoder, WithTokens) else _ALONE
    model = bert_graph(_SIGNATURE, LAYERS, HEADS, mask="mask", tail=_POOLED + grams + _HEAD)
    from onnx import numpy_helper  # known to be there now

    arrays = sentence_encoder.weights() | _head_arrays(head, encoder.bias)
    arrays |= {"ends": np.array(2.0), "least": np.array(1.0), "axis": np.array([1])}
    arrays |= {"no_yes": np.array([0, 1], np.float32)}
    if isinstance(encoder, WithTokens):
        arrays |= _gram_arrays(encoder.state())
    used = weights_of(model.graph, arrays)
    model.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in used)
    return model


def _gram_arrays(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of the part that counts n-grams; those unknown have a last row of zeros."""
    grams, gram_count = state["grams"], len(state["grams"])
    gram_rows = np.full(2 * BUCKETS, gram_count)
    gram_rows[grams] = np.arange(gram_count)
    single = np.append(grams < BUCKETS, False)
    return {
        "none": np.array([0]),
        "last": np.array([-1]),
        "end": np.array([2**31]),
        "step": np.array(STEP),
        "buckets": np.array(BUCKETS),
        "places": gram_rows,
        "unknown": np.array(gram_count),
        "width": np.array(gram_count + 1),
        "idf": np.append(state["idf"], 0).astype(np.float64),
        "kinds": np.stack([single, np.append(grams >= BUCKETS, False)], axis=1).astype(np.float64),
        "basis": np.vstack([state["basis"], np.zeros((1, DIM), np.int16)]),
        "entries": np.array(2.0**ENTRY_BITS),
        "tiny": np.array(1e-12),
        "share_kept": np.array(KEPT),
        "share_added": np.array(ADDED),
    }


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
