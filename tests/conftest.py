"""What every test may use: the shared data, one thread, no network, a cache of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: it reads them once
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# A machine under load must not make a slow example a failed law; a failure must come again.
settings.register_profile(
    "stacksl",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("stacksl")

ROOT = Path(__file__).resolve().parents[1]
LOCAL = ("127.0.0.1", "::1", "localhost")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; the test is skipped where it is absent."""
    named = os.environ.get("STACKSL_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (folder / "banking77").is_dir():
        pytest.skip(f"the shared data sets are not at {folder} (set STACKSL_DATA)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Features are cached below a folder of this test session, never in the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """A test that reaches for the network fails at once, instead of passing where there is one."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and address[0] not in LOCAL:
            raise AssertionError(f"a test must not use the network, but went to {address[0]}")
        connect(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield
