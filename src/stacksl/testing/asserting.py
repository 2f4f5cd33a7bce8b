"""What a check raises."""

from collections.abc import Iterator
from contextlib import contextmanager

from stacksl.errors import kind_and_place


@contextmanager
def asserting() -> Iterator[None]:
    """Turn any error of a part that is checked into an `AssertionError`."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as fault:
        where = kind_and_place(fault)
        raise AssertionError(
            f"the check should end without an error, got {where}: {fault}"
        ) from fault
