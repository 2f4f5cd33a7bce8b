"""Threads of the numerical libraries: how many, and how they wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the block; results then do not depend on the number of cores.

    The learner's products are small, and more threads slow them down. A limit applies only to
    libraries that are already loaded, and SciPy has a BLAS of its own. It is loaded first, or a
    refit would run its many small steps on spinning threads (20 times slower on a busy two-core
    machine).
    """
    import scipy.linalg
    import scipy.optimize  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield


def waits_asleep() -> bool:
    """Let torch's threads sleep while they wait for each other; False where torch runs already.

    OpenMP reads the variable once, when torch loads it. By default a waiting thread spins, which
    on a busy machine keeps the core from the thread that is waited for (`docs/features.md`).
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
