"""One BLAS thread: the learner's products are small, and a second thread only gets in the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to one thread inside the block; bits then do not depend on the machine's cores.

    A limit binds the libraries that are loaded by then, and SciPy brings a BLAS of its own: it is
    loaded first, or a refit would run its many small steps on spinning threads (measured on a busy
    two-core machine: 20 times slower).
    """
    import scipy.linalg
    import scipy.optimize  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield
