"""Threads of the numerical libraries."""

from __future__ import annotations

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
