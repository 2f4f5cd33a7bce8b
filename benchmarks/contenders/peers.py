"""Peers on the same streams. They are not the same algorithm, so only their cost is compared.

Vowpal Wabbit is first order, O(K d) a round, and keeps no widths. The LinUCB libraries keep one
d x d matrix a class on one shared context (here the first row of an item) and learn from the reward
of the class they chose.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from .cases import Absent, Case, Contender, Job

__all__ = ["PEERS"]


def vw_lines(case: Case, rounds: int) -> list[str]:
    """Rounds as text for cb_explore_adf: K lines of features, one with its logged cost."""
    logged = np.random.default_rng(2).integers(case.candidates, size=rounds)
    items = []
    for t in range(rounds):
        lines = []
        for x, row in enumerate(case.phi[t]):
            cost = (
                f"0:{float(x != case.labels[t])}:{1 / case.candidates} " if x == logged[t] else ""
            )
            features = " ".join(f"{j}:{value:.6f}" for j, value in enumerate(row.tolist()))
            lines.append(f"{cost}|x {features}")
        items.append("\n".join(lines))
    return items


def vw_native(case: Case) -> Job:
    """The native driver over its own binary cache: nothing is parsed, nothing is Python."""
    vowpalwabbit = imported("vowpalwabbit")
    rounds = min(case.rounds, 20_000 if case.dim < 100 else 16_000 // case.candidates)
    folder = tempfile.TemporaryDirectory(prefix="vw")
    text, cache = Path(folder.name, "rounds.txt"), Path(folder.name, "rounds.cache")
    text.write_text("\n\n".join(vw_lines(case, rounds)) + "\n\n")
    common = ["--cb_explore_adf", "--quiet", "-b", "18", "--cache_file", str(cache)]

    def job() -> float:
        assert folder is not None  # it lives as long as the job
        start = perf_counter()
        vowpalwabbit.Workspace(arg_list=[*common, "-d", str(text)]).finish()
        return (perf_counter() - start) / rounds

    job()  # writes the cache
    text.write_text("\n")  # later passes can read the cache alone
    return job


def vw_python(case: Case) -> Job:
    """The Python binding, predict then learn, on lines that were made before."""
    vowpalwabbit = imported("vowpalwabbit")
    rounds = min(case.rounds, 300 if case.candidates < 50 else 20)
    learned = [item.split("\n") for item in vw_lines(case, rounds)]
    asked = [[line.partition("|")[1] + line.partition("|")[2] for line in item] for item in learned]

    def job() -> float:
        workspace = vowpalwabbit.Workspace("--cb_explore_adf --quiet")
        start = perf_counter()
        for lines, question in zip(learned, asked, strict=True):
            workspace.predict(question)
            workspace.learn(lines)
        seconds = perf_counter() - start
        workspace.finish()
        return seconds / rounds

    return job


def mabwiser(case: Case) -> Job:
    policies = imported("mabwiser.mab")
    rounds, context = 20 if case.dim < 100 else 2, case.phi[:, 0]

    def job() -> float:
        arms = list(range(case.candidates))
        bandit = policies.MAB(arms, policies.LearningPolicy.LinUCB(alpha=1.0))
        bandit.fit(arms, [0.0] * len(arms), np.resize(context, (len(arms), case.dim)))

        def play(t: int) -> None:
            row = context[t : t + 1]
            choice = bandit.predict(row)
            bandit.partial_fit([choice], [float(choice == case.labels[t])], row)

        return timed(play, rounds)

    return job


def contextualbandits(case: Case) -> Job:
    online = imported("contextualbandits.online")
    rounds, context = 40 if case.candidates < 50 else 6, case.phi[:, 0]

    def job() -> float:
        bandit = online.LinUCB(case.candidates, alpha=1.0, beta_prior=None, njobs=1)
        bandit.fit(context[:1], np.zeros(1, dtype=int), np.zeros(1))

        def play(t: int) -> None:
            row = context[t : t + 1]
            choice = bandit.predict(row)
            bandit.partial_fit(row, choice, (choice == case.labels[t]).astype(float))

        return timed(play, rounds)

    return job


def river(case: Case) -> Job:
    bandit = imported("river.bandit")
    rounds = 60 if case.candidates < 50 else 5
    context = [dict(enumerate(row.tolist())) for row in case.phi[:rounds, 0]]

    def job() -> float:
        policy = bandit.LinUCBDisjoint(alpha=1.0, seed=0)
        arms = list(range(case.candidates))

        def play(t: int) -> None:
            choice = policy.pull(arms, context=context[t])
            policy.update(choice, context[t], float(choice == case.labels[t]))

        return timed(play, rounds)

    return job


def timed(play: Any, rounds: int) -> float:
    """Seconds a round."""
    start = perf_counter()
    for t in range(rounds):
        play(t)
    return (perf_counter() - start) / rounds


def imported(name: str) -> Any:
    """The module, or `Absent`."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as fault:
        raise Absent(f"{name.partition('.')[0]} is not installed") from fault


PEERS = [
    Contender("vw native", "Vowpal Wabbit, native driver, binary cache", vw_native),
    Contender("vw python", "Vowpal Wabbit, Python binding, lines made before", vw_python),
    Contender("mabwiser", "LinUCB, one matrix a class", mabwiser, skip=("(384, 77)",)),
    Contender("contextualbandits", "LinUCB, one matrix a class", contextualbandits),
    Contender("river", "LinUCBDisjoint, one matrix a class", river),
]
