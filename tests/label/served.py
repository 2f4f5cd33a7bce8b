"""The page of a run, served on a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stacksl.api import Run, run
from stacksl.label import serve as serving

from ..tables import write_table

NAMES = [f"class {n} {'abcdefghij'[n % 10] * 3}" for n in range(300)]


def of_many_classes(folder: Path, names: Sequence[str], texts: Sequence[str], **more: Any) -> Run:
    """A run over twelve items with these texts in turn, and classes with descriptions."""
    meanings = [(name, f"about {name}") for name in names]
    classes = write_table(folder / "classes.csv", ("name", "description"), meanings)
    settings = {"annotators": "anna", "budget": 6, "open_questions": 6, **more}
    return run(
        [f"{texts[n % len(texts)]} {n}" for n in range(12)],
        mode="pool",
        class_names=False,
        labeler="file",
        classes=str(classes),
        out=folder / "run",
        **settings,
    )


class Served:
    """Serves until the run has finished, and a while more; each link is for one person."""

    def __init__(self, run: Run, *, linger: float = 20.0, **more: Any) -> None:
        self.run, self.links = run, dict[str, str]()
        self._more, serving.LINGER = more, linger
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
