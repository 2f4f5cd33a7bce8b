"""The public Python interface: `run`, `Run`, and the functions that the command line calls."""

from stacksl.api.planning import Plan, plan_audit, prepare, run
from stacksl.api.stored import Run
from stacksl.runs.settings.resolve import resolve
from stacksl.runs.storage.status import list_runs

__all__ = ["Plan", "Run", "list_runs", "plan_audit", "prepare", "resolve", "run"]
