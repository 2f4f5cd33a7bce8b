"""A language model on a GPU: times, memory, equality of paths, a run killed and resumed, QLoRA.

    python benchmarks/gpu_check.py --json gpu.json
    python benchmarks/gpu_check.py --random --sizes 0.6B --dtypes bfloat16
    python benchmarks/gpu_check.py --from gpu.json
    python benchmarks/gpu_check.py --tiny

Qwen3-0.6B-Base and Qwen3-4B-Base from the Hugging Face hub or its cache; where they cannot be had,
or with `--random`, random weights of the same shapes in bfloat16 with a tokenizer of words, which
do for times, memory and equality. Every question has four options; a packed row has 509 tokens with
the tokenizer of words. `--tiny` takes a model of some thousand weights: it tries the script out, on
a CPU too, where memory is not measured.

Each job has a process of its own, so that one that fails leaves the others be:

- `runs`: 20 labels of 60 questions in batches of 5, the recipe's defaults but for
  `normalization=token_mean` and `refit_at=0.5,1`. `again` plays `plain` once more; `killed` is
  killed (SIGKILL) while it asks for a label behind the first refit, and resumed. Each is compared
  with `plain` and replayed;
  `other` is a stream with what the recipe leaves out.
- `handed`: the plain run is evaluated and its adapter merged, on the command line.
- `paths`: log p(option | prompt) of 16 items by every path under an adapter that was trained, and
  gradients of a cross-entropy over two items, next to `naive` of the same dtype; of 2 items also
  next to `naive` in float32 on the CPU.
- `window`: the same shape with a sliding window of 512 tokens (Mistral's attention), which every
  item fits: packed and padded next to `naive`, and the time of each.
- `options`: items of 70 options, whose path is checked: passes and seconds of a first command, and
  of one that has its verdict.
- `kinds`: small models of ten architectures in three dtypes: the path that scoring takes, how far
  it is off `naive`, and a refit.
- `sample`: runs of the sample model, which is pretrained, on its own questions, on the CPU and on
  the GPU, with one refit and with three.
- `steps`: how often the host waits for the GPU in a step of a refit, and in which lines.
- `kernels`: which kernels scoring and a refit run, and their shares of the GPU's time.
- `compiled`: scoring and refits with the layers under `torch.compile`, next to them without.
- `passes`: 512 items scored, without and with states of options, and a refit on 32 labels (12 steps
  of 8), after a shorter one of each; peaks are of torch's tensors, the estimates are those of
  `stacksl run --dry-run`.

Every row is printed as soon as it is measured, and tables at the end. Exits with 1 if a job
failed or a resumed run bought other labels.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import operator
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _gpu_cases import (
    KINDS,
    Case,
    case_of,
    free,
    lessons,
    make,
    make_kind,
    off,
    opened,
    peak,
    questions,
    recipe,
    values,
)
from _gpu_tables import KERNELS, Row, failed, tables

LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes", "numpy")
RECIPE: dict[str, Any] = {
    "mode": "pool", "open_questions": 5, "lm.refit_at": "0.5,1", "lm.normalization": "token_mean",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "mode": "stream", "lm.refit_at": "0.5,1", "lm.objective": "stacksl",
    "lm.answer_format": "letter", "lm.lora_dropout": 0.1, "lm.gradient_checkpointing": True,
}  # fmt: skip


# --- jobs: each a function of a case and words that yields rows -----------------------------------


def runs(
    case: Case, out: str, kind: str, *, beside: str | None = None, dtype: str = "auto"
) -> Iterator[Row]:
    """Play a run to its end, or to a kill; or take up one that was killed."""
    import torch

    import stacksl
    from stacksl.data import read
    from stacksl.labelers.registry import OracleLabeler

    class Killed(OracleLabeler):
        """Kills its own process when it is asked behind the first refit."""

        def ask(self, requests: Any) -> None:
            if list((Path(case.work) / out / "adapters").glob("*.json")):
                os.kill(os.getpid(), signal.SIGKILL)
            super().ask(requests)

    data = questions(case, "data", case.questions, 1)
    test = questions(case, "test", case.questions // 2, 2)
    dataset, place, begun = read(data), Path(case.work) / out, time.monotonic()
    answers = dataset.answers, {item.id: len(item.candidates) for item in dataset.items}
    if kind == "resume":
        run = stacksl.Run.open(place).resume(labeler=OracleLabeler(*answers))
    else:
        labeler = Killed(*answers) if kind == "kill" else OracleLabeler(*answers)
        settings = OTHER if kind == "other" else RECIPE
        run = stacksl.run(
            str(data), test=str(test), out=place, budget=case.budget, labeler=labeler,
            **settings | {f"lm.{name}": value for name, value in case.settings},
            **{"lm": case.model, "lm.dtype": dtype},
        )  # fmt: skip
    row = {"job": "runs", "model": case.name, "run": out, "kind": kind}
    row["seconds"] = time.monotonic() - begun
    with run.ledger as ledger:
        ledger.verify()
    row["replayed"] = run.replay()["labels"]
    known = run.folder.resolved()
    row |= {key: known.get(f"lm_{key}", "none") for key in ("device", "dtype", "path")}
    on_gpu = str(known["lm_device"]).startswith("cuda")
    row["peak_memory"] = torch.cuda.max_memory_allocated() if on_gpu else None
    if beside is not None:
        mine, others = ended(run), ended(stacksl.Run.open(Path(case.work) / beside))
        row |= {"beside": beside, "tested": mine.pop("tested") == others.pop("tested")}
        for name, each in mine.items():
            row[name] = [sum(map(operator.eq, each, others[name])), len(each)]
    yield row


def ended(run: Any) -> Row:
    """What is compared of two runs: labels in their order, weights, features, test results."""
    with run.ledger as ledger:
        rows = list(ledger.rows())
    features = sorted(path for path in (run.path / "features").rglob("*") if path.is_file())
    return {
        "labels": [row.item for row in rows if row.event == "learned"],
        "adapters": [row.payload["weights"] for row in rows if row.event == "refit"],
        "features": [path.read_bytes() for path in features],
        "tested": json.loads((run.path / "facts.json").read_text(encoding="utf-8"))["curve"],
    }


def handed(case: Case, out: str) -> Iterator[Row]:
    """Evaluate a run and merge its adapter, on the command line."""
    test = str(Path(case.work) / "test.jsonl")
    for words in (["evaluate", out, test], ["export", out, "--merge", "merged"]):
        begun = time.monotonic()
        command = [sys.executable, "-m", "stacksl", *words]
        done = subprocess.run(command, cwd=case.work, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or done.stdout.strip())
        yield {"job": "handed", "model": case.name, "command": words[0],
               "seconds": time.monotonic() - begun}  # fmt: skip


def by(path: str, model: Any, tokens: int = 2048) -> Any:
    """A model as a scorer by one path; `naive` is a pass an option, which nothing is padded for."""
    from stacksl.lm.scoring.likelihood import Likelihood

    likelihood = Likelihood(model, batch_tokens=1 if path == "naive" else tokens)
    likelihood.path = "packed" if path == "packed" else "padded"
    return likelihood


def paths(case: Case, cpu: bool) -> Iterator[Row]:
    """How far apart the scoring paths are."""
    import torch

    from stacksl.errors import SettingsError

    adapter, on_cpu, by_dtype = Path(case.work) / "adapter", [], {}
    for dtype in ("float32", "bfloat16"):
        worker, items = opened(case, min(16, case.scored), dtype=dtype)
        if dtype == "float32":
            worker.train(lessons(items[:8]), recipe(case), 0, 0)
            worker.adapter.save(adapter)
        else:
            worker.take(adapter)
        ways: dict[str, Any] = {}
        for path in ("naive", "packed", "padded"):
            try:
                ways[path] = values(by(path, worker.adapter.model), items)
            except SettingsError as error:
                yield {"job": "paths", "model": case.name, "dtype": dtype, "path": path,
                       "fault": str(error)}  # fmt: skip
        by_dtype[dtype] = ways
        moving = worker.adapter.parameters()
        for path, way in ways.items():
            sums = by(path, worker.adapter.model).sums(items[:2])
            loss = -sum(each.log_softmax(-1)[0] for each in sums)
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, moving)]).cpu()
            if path == "naive":
                plain = gradient
            way["gradient"] = float((gradient - plain).norm() / plain.norm())
        del worker, moving
        free()
    if cpu:
        worker, items = opened(case, min(16, case.scored), dtype="float32", device="cpu")
        worker.take(adapter)
        on_cpu = values(by("naive", worker.adapter.model), items[:2])["nats"]
    for dtype, ways in by_dtype.items():
        for path, way in ways.items():
            row = {"job": "paths", "model": case.name, "dtype": dtype, "path": path}
            row |= off(way["nats"], ways["naive"]["nats"], "naive")
            if cpu:
                row |= off(way["nats"][: len(on_cpu)], on_cpu, "cpu")
            row |= {"gradient": way["gradient"], "spread": ways["naive"]["spread"]}
            yield row


def window(case: Case, size: str) -> Iterator[Row]:
    """How far apart packed and padded rows are through a sliding window, and their times."""
    model = make(size, Path(case.work) / "window", case.window)
    for dtype in ("float32", "bfloat16"):
        worker, items = opened(replace(case, model=model), case.scored, dtype=dtype)
        own, some = worker.adapter.model, items[: min(16, case.scored)]
        plain = values(by("naive", own), some)
        for path in ("packed", "padded"):
            likelihood = by(path, own, 4096)
            row = {"job": "window", "model": case.name, "dtype": dtype, "path": path}
            row |= off(values(likelihood, some)["nats"], plain["nats"], "naive")
            row |= {"spread": plain["spread"], "taken": likelihood.path_for(items)}
            begun = time.monotonic()
            values(likelihood, items[: max(1, case.scored // 4)])  # which brings them to the host
            yield {**row, "items": case.scored // 4, "seconds": time.monotonic() - begun}
        del worker, own, likelihood
        free()


def options(case: Case, count: int = 70) -> Iterator[Row]:
    """Passes and seconds until items of many options are scored, without and with a verdict."""
    from stacksl.lm.scoring.likelihood import Likelihood

    worker, items = opened(case, 16, options=count, dtype="bfloat16")
    model, seen, verdict = worker.adapter.model, list[int](), ""
    handle = model.get_base_model().register_forward_hook(lambda *_: seen.append(1))
    values(by("padded", model, 4096), items[:1])  # warms up
    for kind in ("first", "kept"):
        seen.clear()
        likelihood = Likelihood(model, batch_tokens=4096, verdict=verdict)
        begun = time.monotonic()
        values(likelihood, items)
        yield {"job": "options", "model": case.name, "options": count, "kind": kind,
               "passes": len(seen), "seconds": time.monotonic() - begun}  # fmt: skip
        verdict = likelihood.verdict
    handle.remove()


def kinds(case: Case) -> Iterator[Row]:
    """What path other architectures are scored by, how far it is off, and whether a refit ends."""
    from stacksl.errors import StackslError

    for kind in KINDS:
        folder = Path(case.work) / kind
        model = make_kind(kind, folder, case.window, tiny=case.scored < 16)
        for dtype in ("float32", "bfloat16", "float16"):
            row = {"job": "kinds", "model": kind, "dtype": dtype}
            try:
                worker, items = opened(
                    replace(case, model=model), min(16, case.scored), dtype=dtype
                )
                done = worker.train(lessons(items[:8]), recipe(case), 0, 0)
                own = worker.adapter.model
                plain = values(by("naive", own), items)
                row |= off(values(worker.likelihood, items)["nats"], plain["nats"], "naive")
                row |= {"path": worker.likelihood.path_for(items), "spread": plain["spread"]}
                yield row | {"steps": done.steps, "loss": done.loss}
                del worker, own
            except StackslError as error:
                yield row | {"fault": str(error)}
            free()


def sample(case: Case, shares: tuple[float, ...] = (0.1,)) -> Iterator[Row]:
    """Runs of the sample model, which is pretrained, on its questions: on the CPU and the GPU."""
    import torch

    import stacksl

    places = [("cpu", "float32")]
    if torch.cuda.is_available():
        places += [("cuda", "float32"), ("cuda", "bfloat16")]
    first: Row = {}
    for share, refit_at in itertools.product(shares, ("1", "0.25,0.5,1")):
        refits = len(refit_at.split(","))
        for device, dtype in places:
            place, begun = Path(case.work) / f"{share}-{refits}-{device}-{dtype}", time.monotonic()
            run = stacksl.run(
                out=place, budget=share,
                **{"lm": "sample", "lm.device": device, "lm.dtype": dtype, "lm.refit_at": refit_at},
            )  # fmt: skip
            mine = ended(run)
            first = first if device == "cuda" else mine
            same = len(set(mine["labels"]) & set(first["labels"]))
            yield {"job": "sample", "model": "sample", "refits": refits,
                   "device": device, "dtype": dtype,
                   "seconds": time.monotonic() - begun, "labels": [same, len(first["labels"])],
                   "base": mine["tested"][0]["accuracy"],
                   "accuracy": mine["tested"][-1]["accuracy"]}  # fmt: skip


def steps(case: Case) -> Iterator[Row]:
    """How often the host waits for the GPU in a step."""
    import torch

    worker, items = opened(case, case.learned, dtype="bfloat16")
    training, some = replace(recipe(case), epochs=1), lessons(items)
    worker.train(some, training, 0, 0)  # checks the path
    cuda = torch.cuda.is_available()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if cuda:
            torch.cuda.set_sync_debug_mode("warn")
        done = worker.train(some, training, 0, 0)
        if cuda:
            torch.cuda.set_sync_debug_mode("default")
    waits = [each for each in said if "synchronizing" in str(each.message)]
    places = Counter(f"{Path(each.filename).name}:{each.lineno}" for each in waits)
    yield {"job": "steps", "model": case.name, "steps": done.steps, "seconds": done.seconds,
           "waits": len(waits) if cuda else None,
           "places": dict(places.most_common(12))}  # fmt: skip


def kernels(case: Case) -> Iterator[Row]:
    """What the GPU's time goes to, in scoring and in a refit."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    worker, items = opened(case, case.scored, dtype="bfloat16")
    some, training = lessons(items[: case.learned]), replace(recipe(case), epochs=1)
    worker.sums(items[: case.learned])
    worker.train(some[: training.batch_size], training, 0, 0)
    cuda = torch.cuda.is_available()
    watched = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU

    def score() -> None:
        worker.sums(items[: case.scored // 4])

    for what, play in (("score", score), ("refit", lambda: worker.train(some, training, 0, 0))):
        begun = time.monotonic()
        with profile(activities=[watched]) as seen:
            play()
            if cuda:
                torch.cuda.synchronize()
        seconds, spent, names = time.monotonic() - begun, Counter[str](), Counter[str]()
        for event in seen.key_averages():
            used = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6
            own = (k for k, parts in KERNELS.items() if any(p in event.key.lower() for p in parts))
            spent[kind := next(own, "other")] += used
            if kind == "attention":
                names[event.key[:60]] += used
        total = sum(spent.values())
        yield {"job": "kernels", "model": case.name, "pass": what, "seconds": seconds,
               "busy": total, "shares": {k: v / total for k, v in spent.most_common()},
               "attention": [name for name, _ in names.most_common(3)]}  # fmt: skip


def compiled(case: Case) -> Iterator[Row]:
    """Seconds of scoring and of a refit without and with compiled layers, and how far they differ.

    `before` are the seconds of the passes before, which compile.
    """
    from stacksl.lm.scoring.packing import BLOCK

    worker, items = opened(case, case.scored, dtype="bfloat16")
    some, training, plain = lessons(items[: case.learned]), recipe(case), list[float]()
    worker.sums(items[:BLOCK])  # reads the weights and checks the path
    worker.train(some[:1], replace(training, epochs=1), 0, 0)  # else scoring leaves the adapter out
    model = worker.adapter.model
    for kind in ("plain", "compiled"):
        if kind == "compiled":
            for layer in model.get_base_model().model.layers:
                layer.compile(dynamic=True)
        for what, play in (
            ("score", lambda: worker.sums(items)),
            ("refit", lambda: worker.train(some, training, 0, 0)),
        ):
            taken = []
            for _ in range(3):
                begun = time.monotonic()
                play()
                peak()
                taken.append(time.monotonic() - begun)
            yield {"job": "compiled", "model": case.name, "kind": kind, "pass": what,
                   "before": taken[0], "seconds": min(taken[1:])}  # fmt: skip
        nats = values(by("packed", worker.adapter.model), items[:16])["nats"]
        plain = plain or nats
    yield {"job": "compiled", "model": case.name, "kind": "compiled", "pass": "scores",
           **off(nats, plain, "naive")}  # fmt: skip


def passes(case: Case, dtype: str, batch_tokens: int = 4096) -> Iterator[Row]:
    """Time and memory of scoring and of refits."""
    from stacksl.lm.scoring.packing import BLOCK
    from stacksl.lm.settings import ModelChoices
    from stacksl.lm.size import estimate, row_tokens

    peak()
    worker, items = opened(case, case.scored, dtype=dtype, batch_tokens=batch_tokens)
    choices = ModelChoices(
        case.model, dtype=dtype, batch_tokens=batch_tokens, training=recipe(case)
    )
    needs = estimate(worker.base.config, items, choices)
    worker.states(items[:BLOCK])  # reads the weights, checks the path, warms up
    row = {"job": "passes", "model": case.name, "dtype": dtype, "path": worker.likelihood.path}
    row |= {"parameters": needs.parameters, "batch_tokens": batch_tokens}

    def timed(what: str, count: int, tokens: int, seconds: float, planned: int) -> Row:
        own = {"pass": what, "items": count, "tokens": tokens, "seconds": seconds}
        return {**row, **own, "estimated": planned, "measured": peak()}

    tokens, some = sum(map(row_tokens, items)), lessons(items[: case.learned])
    worker.train(some[:1], replace(recipe(case), epochs=1), 0, 0)  # the adapter is left out before
    for what, read in (("score", worker.sums), ("score, states", worker.states)):
        peak()
        begun = time.monotonic()
        read(items)
        yield timed(what, len(items), tokens, time.monotonic() - begun, needs.scoring)
    for again in (False, True) if batch_tokens == 4096 else ():
        training = replace(recipe(case), gradient_checkpointing=again)
        needs = estimate(worker.base.config, items, replace(choices, training=training))
        worker.train(some[: training.batch_size], replace(training, epochs=1), 0, 0)
        done = worker.train(some, training, 0, 0)
        what = "refit, checkpointing" if again else "refit"
        yield timed(what, len(some), done.tokens, done.seconds, needs.training)


JOBS: dict[str, Callable[..., Iterator[Row]]] = {
    "runs": runs, "handed": handed, "paths": paths, "window": window, "options": options,
    "kinds": kinds, "sample": sample, "steps": steps, "kernels": kernels, "compiled": compiled,
    "passes": passes,
}  # fmt: skip


# --- the check ------------------------------------------------------------------------------------


def plan(size: str, dtypes: list[str]) -> list[tuple[str, Row]]:
    """The jobs of a size, in their order; passes of the `dtypes` alone."""
    played: list[tuple[str, Row]] = [
        ("runs", {"out": "plain", "kind": "play"}),
        ("runs", {"out": "again", "kind": "play", "beside": "plain"}),
        ("runs", {"out": "killed", "kind": "kill"}),
        ("runs", {"out": "killed", "kind": "resume", "beside": "plain"}),
        ("runs", {"out": "other", "kind": "other"}),
    ]
    if size == "4B":
        each = [dtype for dtype in ("bfloat16", "nf4") if dtype in dtypes]
        own = [("runs", {"out": dtype, "kind": "play", "dtype": dtype}) for dtype in each]
        return [*own, *(("passes", {"dtype": dtype}) for dtype in each)]
    whole: list[tuple[str, Row]] = [
        *played, ("paths", {"cpu": True}), ("window", {"size": size}), ("options", {}),
        ("kinds", {}), ("sample", {}), ("steps", {}), ("kernels", {}), ("compiled", {}),
    ]  # fmt: skip
    if size == "tiny":
        return [*whole, ("passes", {"dtype": "bfloat16"})]
    timed = [("passes", {"dtype": each}) for each in dtypes]
    wide = ("passes", {"dtype": "bfloat16", "batch_tokens": 16_384})
    return [*whole, ("handed", {"out": "plain"}), *timed, wide]


def done(case: Case, job: str, words: Row) -> list[Row]:
    """The rows of a job in a process of its own; of one that failed, its fault."""
    order = json.dumps([asdict(case), job, words])
    command = [sys.executable, __file__, "--job", order]
    process = subprocess.run(command, capture_output=True, text=True)
    rows = [json.loads(line[2:]) for line in process.stdout.splitlines() if line[:2] == "# "]
    if words.get("kind") == "kill" and process.returncode == -signal.SIGKILL:
        return []
    if process.returncode:
        errors = (process.stderr.strip() or "it gave no reason").splitlines()
        print("\n".join(errors[-25:]), file=sys.stderr)
        rows.append({"job": job, "model": case.name, "words": words, "failed": errors[-1]})
    elif process.stderr.strip():
        print(process.stderr.strip()[-2000:], file=sys.stderr)
    return rows


def check(
    sizes: list[str], jobs: list[str], dtypes: list[str], *, hub: bool, kept: Path | None
) -> Row:
    """The `jobs` of every size."""
    import torch

    record: Row = {"device": "CPU", "versions": {"python": platform.python_version()}, "rows": []}
    if torch.cuda.is_available():
        record["device"] = torch.cuda.get_device_name()
        record["versions"]["cuda"] = torch.version.cuda
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            record["versions"][name] = importlib.metadata.version(name)
    with TemporaryDirectory() as work:
        for size in sizes:
            case = case_of(size, Path(work) / size, hub=hub)
            free()
            for job, words in [each for each in plan(size, dtypes) if each[0] in jobs]:
                begun = time.monotonic()
                rows = done(case, job, words)
                record["rows"] += rows
                for row in rows:
                    print(json.dumps(row), flush=True)
                print(f"{size} {job} {words}: {time.monotonic() - begun:.0f} s", flush=True)
                if kept is not None:
                    kept.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="0.6B,4B", help="which of 0.6B and 4B")
    parser.add_argument("--jobs", default=",".join(JOBS), help="which of these jobs")
    parser.add_argument("--dtypes", default="bfloat16,float32,nf4", help="of the job passes")
    parser.add_argument("--random", action="store_true", help="never ask the hub for weights")
    parser.add_argument("--tiny", action="store_true", help="try the script out")
    parser.add_argument("--json", type=Path, help="keep the rows in this file")
    parser.add_argument("--from", type=Path, dest="kept", help="the tables of rows that were kept")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        case, job, words = json.loads(options.job)
        case["settings"] = tuple(map(tuple, case["settings"]))
        for row in JOBS[job](Case(**case), **words):
            print("# " + json.dumps(row), flush=True)
        return 0
    if options.kept:
        record = json.loads(options.kept.read_text(encoding="utf-8"))
    else:
        sizes = ["tiny"] if options.tiny else options.sizes.split(",")
        jobs, dtypes = options.jobs.split(","), options.dtypes.split(",")
        record = check(sizes, jobs, dtypes, hub=not options.random, kept=options.json)
    print(tables(record))
    resumed = [row for row in record["rows"] if row.get("kind") == "resume"]
    whole = all(operator.eq(*row["labels"]) for row in resumed)
    return 1 if failed(record["rows"]) or not whole else 0


if __name__ == "__main__":
    sys.exit(main())
