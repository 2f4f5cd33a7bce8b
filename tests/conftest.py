"""What every test may use: the shared data, one thread, no network, a cache of its own."""

from __future__ import annotations

import gc
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: it reads them once
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU has benchmarks/gpu_check.py; its numbers differ
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["STACKSL_FEATURES"] = "hashing"  # of runs over files: encoders take seconds to load
os.environ["HF_DATASETS_OFFLINE"] = "1"
# The laboratory's loops are compiled in two thirds of the time, and kept apart from those of users.
_opt = os.environ.setdefault("NUMBA_OPT", "1")
_kept = Path(__file__).resolve().parents[1] / ".pytest_cache" / f"numba-{_opt}"
os.environ.setdefault("NUMBA_CACHE_DIR", str(_kept))

import pytest  # noqa: E402
import threadpoolctl  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from .foretold import foretell  # noqa: E402
from .once import remember_commands, remember_subspaces, shared_folder  # noqa: E402

# A machine under load must not make a slow example a failed law; a failure must come again.
settings.register_profile(
    "stacksl",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("stacksl")
foretell()

ROOT = Path(__file__).resolve().parents[1]
LOCAL = ("127.0.0.1", "::1", "localhost")

# The files that take longest: a file is played by one worker, and none of these begins last.
FIRST = (
    "lab/test_drift_guard.py",  # it compiles the engines for all
    "e2e/test_kill.py",
    "label/test_browser.py",
    "e2e/test_processes.py",
    "label/test_accessible.py",
    "e2e/test_language_model.py",
    "e2e/test_sample_model.py",
    "label/test_killed.py",
    "e2e/test_private.py",
    "e2e/test_examples.py",
)
LEFT_OUT = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the others in their order."""
    ranks = {str(ROOT / "tests" / name): rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(str(item.path), len(ranks)))


def pytest_collection_finish() -> None:
    """What the libraries hold is not searched for garbage again and again: 4% of all time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow"):
            stash = item.config.stash
            stash[LEFT_OUT] = stash.get(LEFT_OUT, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a worker of xdist: the one that prints is another
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"left out: {count} slow tests (make test-slow)")


CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, closed after each module: a thread can run one Playwright at a time."""
    if not CHROMIUM:
        pytest.skip("no Chromium found: install the package `chromium` or set CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


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
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _subspaces_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A third of a small run finds the subspace of its texts, which most tests have in common."""
    from stacksl.features import hashing

    with pytest.MonkeyPatch.context() as patch:
        folder = shared_folder(tmp_path_factory) / "subspaces"
        folder.mkdir(exist_ok=True)
        patch.setattr(hashing, "leading_subspace", remember_subspaces(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """The command line is called in this process a few thousand times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", remember_commands())
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread_already() -> Iterator[None]:
    """BLAS has one thread from the start; a session looks anew for what to limit, for 5 ms."""
    limits = threadpoolctl.threadpool_limits

    def limit(*given: Any) -> Any:
        return nullcontext() if given == (1, "blas") else limits(*given)

    with pytest.MonkeyPatch.context() as patch:
        if os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1":
            patch.setattr(threadpoolctl, "threadpool_limits", limit)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cards_once() -> Iterator[None]:
    """PEFT compiles the template of a card, which is deleted, whenever it writes an adapter."""
    import jinja2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2, "Template", cache(jinja2.Template))
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
