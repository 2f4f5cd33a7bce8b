"""Where texts are encoded and files are labeled: in this process, or by Ray Data on many machines.

Ray Data places the work, repeats what a dead node had begun, and brings back what is done.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from stacksl.errors import MissingExtra, RunError, StackslError, unknown_name
from stacksl.telemetry import refuse_telemetry

Part = TypeVar("Part")
Made = TypeVar("Made")


def on_ray(engine: str | None = None) -> bool:
    """Whether Ray is to be used: RAY_ADDRESS is set, as an `engine` that is named does for good.

    Raises:
        SettingsError: the engine is neither `local` nor `ray`.
        MissingExtra: it is Ray, which is not installed.
    """
    if engine not in (None, "local", "ray"):
        raise unknown_name("engine", str(engine), ("local", "ray"))
    if engine is not None:
        here = os.environ.get("RAY_ADDRESS") or "local"  # with Ray, but on this machine alone
        os.environ["RAY_ADDRESS"] = here if engine == "ray" else ""
    wanted = bool(os.environ.get("RAY_ADDRESS"))
    if wanted and find_spec("ray") is None:
        raise MissingExtra.of("RAY_ADDRESS or --engine ray", "ray")
    return wanted


def over_ray(work: Callable[[Part], Made], parts: Sequence[Part], *, gpu: bool) -> Iterator[Made]:
    """What `work` makes of each part, in the order in which they are done; both are pickled.

    Each actor has a CPU, and a GPU as well where `gpu` asks for it and the cluster has any.

    Raises:
        StackslError: what `work` raised, or Ray is not there, cannot be reached or gives up.
    """
    refuse_telemetry()
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # else it tries an address for minutes
    import ray
    import ray.data

    pickled = ray.cloudpickle.dumps(work)

    class Worker:
        work: Any = None

        def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
            os.environ.pop("RAY_ADDRESS", None)  # an actor starts no others
            os.environ.setdefault("STACKSL_ENCODER_THREADS", "1")
            try:
                self.work = self.work or pickle.loads(pickled)
                done: Any = self.work(pickle.loads(row["item"]))
            except StackslError as fault:  # Ray would wrap it
                done = fault
            return {"done": pickle.dumps(done)}

    try:
        if not ray.is_initialized():
            ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        has = ray.cluster_resources()
        gpus = int(has.get("GPU", 0)) if gpu else 0
        most = gpus or max(1, int(has.get("CPU", 1)))
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=most)
        data = ray.data.from_items([*map(pickle.dumps, parts)], override_num_blocks=len(parts))
        for row in data.map(Worker, compute=pool, num_gpus=1 if gpus else None).iter_rows():
            outcome = pickle.loads(row["done"])
            if isinstance(outcome, StackslError):
                raise outcome
            yield outcome
    except StackslError:  # may be a ValueError as well
        raise
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as fault:
        why = str(fault).strip().splitlines()[-1:] or [type(fault).__name__]
        raise RunError(
            f"Ray cannot be reached or gave up ({why[0].strip()}): check RAY_ADDRESS and the nodes;"
            " what was finished is kept, and the same command does the rest"
        ) from fault
