"""The baselines as gates of runs: `--set plugins=stacksl_lab.baselines.plugin`."""

from __future__ import annotations

from stacksl.core.gates.registry import GATES
from stacksl_lab.baselines.registry import BASELINES

GATES.update(BASELINES)
