"""The page of a run, served on a thread of this process."""

from __future__ import annotations

import threading
import time
from typing import Any

from stacksl.api import Run
from stacksl.label import serve as serving


class Served:
    """Serves until the run has finished, and a while more; each link is for one person."""

    def __init__(self, run: Run, *, linger: float = 20.0, **more: Any) -> None:
        self.run, self.links = run, dict[str, str]()
        self._more = {"linger": linger, **more}
        self._ready = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        assert self._ready.wait(120)

    def _serve(self) -> None:
        def ready(links: Any) -> None:
            self.links |= links
            self._ready.set()

        serving.serve(self.run.folder, ready, **self._more)

    def finish(self, seconds: float = 120.0) -> None:
        """Wait for the run's end: the page is served for longer."""
        until = time.monotonic() + seconds
        while (state := self.run.status()["state"]) != "finished":
            assert time.monotonic() < until, f"the run is {state}"
            time.sleep(0.02)
