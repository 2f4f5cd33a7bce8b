"""The contracts of parts: what a gate, a labeler and a feature map must do.

Each check plays a part with numbers drawn under a seed and raises an `AssertionError` that names
what is broken. A test of a part of your own is one line:

>>> from stacksl.core import Margin
>>> from stacksl.testing import check_gate
>>> check_gate(Margin)
"""

from stacksl.testing.features import check_features
from stacksl.testing.gates import check_gate
from stacksl.testing.labelers import check_labeler

__all__ = ["check_features", "check_gate", "check_labeler"]
