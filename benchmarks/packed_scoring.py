"""Options that share a prompt: one packed row against a pass an option and a padded batch.

    python benchmarks/packed_scoring.py [--json FILE] [--repetitions 5] [--device cpu]
        [--prompt 200] [--options 5] [--length 10] [--vocabulary 151936]

A random model of Qwen3's shape with LoRA on its attention; its width and depth are small, its
vocabulary Qwen's. `forward` is without gradients, `forward_backward` a cross-entropy over the
options and its gradient in the adapter. Jobs are played in turn (A B C ... A B C ...), after one
repetition that is not counted; a ratio is the median of the ratios within a repetition. On the CPU
seconds are those of the process, one thread, so that what else the machine does hardly counts.

`naive` is a plain forward pass an option with the logits of every position, as a first version
would have it; `naive, kept` asks for the option's logits only; `padded` is one batch of all
options behind copies of the prompt, with the option's logits only. `lm_eval` is lm-eval's own
scoring of the same tokens, where it is installed, at the batch size that was fastest in a trial of
each; it makes no gradients, so that `forward_backward` has no ratio to it.

The JSON holds a ratio a kind and path (`forward`, `forward_backward`: how many times as long as
`packed` it takes), the times in `tables`, lm-eval's trial in `lm_eval_tried`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch is imported: it reads them once

import torch  # noqa: E402

from stacksl.lm.prompt.tokens import TokenItem  # noqa: E402
from stacksl.lm.scoring import paths as ways  # noqa: E402

BARS = {
    "forward": {"lm_eval": 3.0},
    "forward_backward": {"naive": 4.0},
}  # packed is at least so many times as fast
LM_EVAL_BATCHES = (1, 2, 5, 10)
RATIOS = ("naive", "padded", "lm_eval")
LIBRARIES = ("torch", "transformers", "peft", "lm_eval")
AGREE = 1e-4  # nats a token; the scores of all jobs are compared before anything is timed

Job = Callable[[Any, list[TokenItem]], Any]


def _sums_of(path: Any) -> Job:
    """A path that gives the log-likelihoods alone."""
    return lambda model, items: [sums for sums, _ in path(model, items)]


packed, padded = map(_sums_of, (ways.packed, ways.padded))


def naive(model: Any, items: list[TokenItem]) -> list[Any]:
    """One pass an option, with the logits of every position."""
    scores = []
    for item in items:
        sums = []
        for option in item.options:
            ids = torch.tensor([[*item.prompt, *option]], device=model.device)
            logits = model(input_ids=ids, use_cache=False).logits[0, len(item.prompt) - 1 : -1]
            target = ids[0, len(item.prompt) :, None]
            sums.append(logits.float().log_softmax(-1).gather(1, target).sum())
        scores.append(torch.stack(sums))
    return scores


def naive_kept(model: Any, items: list[TokenItem]) -> list[Any]:
    """One pass an option, with logits where they are needed."""
    scores = []
    for item in items:
        ones = [padded(model, [_alone(item, option)])[0] for option in item.options]
        scores.append(torch.cat(ones))
    return scores


def _alone(item: TokenItem, option: tuple[int, ...]) -> TokenItem:
    return TokenItem(item.id, item.prompt, (option,), (1,))


PATHS: dict[str, Any] = {
    "packed": packed,
    "padded": padded,
    "naive, kept": naive_kept,
    "naive": naive,
}


def lm_eval_path(model: Any, batch_size: int) -> Any:
    """lm-eval's own scoring of the same token rows; raises ImportError where it is absent."""
    import tokenizers
    import transformers as tf
    from lm_eval.models.huggingface import HFLM

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<end>": 0}, unk_token="<end>"))
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")
    judge = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)

    def path(model: Any, items: list[TokenItem]) -> list[Any]:
        # its cache and its order go by the text, so every request has one of its own
        asked = [((f"{item.id} {item.prompt}", str(option)), list(item.prompt), list(option))
                 for item in items for option in item.options]  # fmt: skip
        answers = judge._loglikelihood_tokens(asked, disable_tqdm=True)
        sums = torch.tensor([each[0] for each in answers])
        return list(sums.split([len(item.options) for item in items]))

    return path


def best_lm_eval(
    model: Any, items: list[TokenItem], device: str
) -> tuple[dict[str, Any], dict[int, float]]:
    """lm-eval's scoring at its fastest batch size, and milliseconds an item at each that was tried.

    Both are empty where it is not installed.
    """
    try:
        runs = {size: lm_eval_path(model, size) for size in LM_EVAL_BATCHES}
    except ImportError as reason:
        print(f"left out: lm_eval: {reason}")
        return {}, {}
    runs[LM_EVAL_BATCHES[0]](model, items[:1])  # what only a first call does
    tried: dict[int, float] = {}
    with torch.no_grad():
        for size, path in runs.items():
            seconds, _ = timed(lambda path=path: path(model, items), device)
            tried[size] = seconds * 1e3 / len(items)
    best = min(tried, key=lambda size: tried[size])
    print("lm_eval, ms an item by batch size:", {size: round(ms) for size, ms in tried.items()})
    return {"lm_eval": runs[best]}, tried


def versions() -> dict[str, str]:
    """Of Python and the libraries that take part."""
    numbers = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numbers[name] = importlib.metadata.version(name)
    return numbers


def make_model(options: argparse.Namespace) -> Any:
    """A random Qwen3 with LoRA on the attention, in training mode without dropout."""
    import peft
    import transformers as tf

    torch.manual_seed(0)
    config = tf.Qwen3Config(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=3 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 32,
        num_key_value_heads=max(1, options.width // 64),
        head_dim=32,
        tie_word_embeddings=True,
    )
    model = tf.Qwen3ForCausalLM(config).to(options.device, getattr(torch, options.dtype))
    lora = peft.LoraConfig(r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
                           task_type="CAUSAL_LM")  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries
        return peft.get_peft_model(model, lora)


def make_items(options: argparse.Namespace) -> list[TokenItem]:
    """Random token rows, all of one shape."""
    draw = torch.Generator().manual_seed(1)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(options.vocabulary, (count,), generator=draw).tolist())

    def item(number: int) -> TokenItem:
        answers = tuple(tokens(options.length) for _ in range(options.options))
        return TokenItem(str(number), tokens(options.prompt), answers, (1,) * options.options)

    return [item(number) for number in range(options.items)]


def jobs(
    model: Any, items: list[TokenItem], paths: dict[str, Any]
) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed, by kind and path."""

    def forward(path: Any) -> Any:
        with torch.no_grad():
            return path(model, items)

    def forward_backward(path: Any) -> None:
        model.zero_grad()
        for item in items:
            scores = path(model, [item])[0] / len(item.options[0])
            (-scores.log_softmax(0)[0]).backward()

    def bound(work: Any, path: Any) -> Callable[[], Any]:
        return lambda: work(path)

    return {
        "forward": {name: bound(forward, path) for name, path in paths.items()},
        "forward_backward": {
            name: bound(forward_backward, path) for name, path in paths.items() if name != "lm_eval"
        },
    }


def timed(work: Callable[[], Any], device: str) -> tuple[float, float | None]:
    """Seconds, on the CPU those that the process was given; on a GPU the peak memory in GiB."""
    cuda = device.startswith("cuda")
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start = clock()
    work()
    if cuda:
        torch.cuda.synchronize()
    seconds = clock() - start
    return seconds, torch.cuda.max_memory_allocated() / 2**30 if cuda else None


def measure(
    works: dict[str, Callable[[], Any]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row a path: median milliseconds an item, and how many times as long as packed it takes."""
    seconds: list[dict[str, float]] = []
    memory: dict[str, float | None] = {}
    for number in range(options.repetitions + 1):
        row = {}
        for name, work in works.items():
            row[name], memory[name] = timed(work, options.device)
        if number:
            seconds.append(row)
    return [
        {
            "path": name,
            "milliseconds": statistics.median(row[name] for row in seconds) * 1e3 / options.items,
            "times_packed": statistics.median(row[name] / row["packed"] for row in seconds),
            "peak_gib": memory[name],
        }
        for name in works
    ]


def largest_gap(model: Any, items: list[TokenItem], paths: dict[str, Any]) -> float:
    """The largest difference from the naive scores over all paths, in nats a token."""
    with torch.no_grad():
        expected = naive(model, items[:1])[0]
        scores = [path(model, items[:1])[0] for path in paths.values()]
    return max(float((each - expected).abs().max()) for each in scores) / len(items[0].options[0])


def show(kind: str, rows: list[dict[str, Any]]) -> None:
    """The table of one kind."""
    print(f"\n{kind:22}  ms an item   / packed")
    for row in rows:
        peak = "" if row["peak_gib"] is None else f"{row['peak_gib']:10.2f} GiB"
        print(f"  {row['path']:20}{row['milliseconds']:12.1f}{row['times_packed']:11.2f}{peak}")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    sizes = {"repetitions": 5, "items": 1, "prompt": 200, "options": 5, "length": 10,
             "vocabulary": 151_936, "width": 256, "layers": 4}  # fmt: skip
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> int:
    options = parsed()
    model, items = make_model(options), make_items(options)
    load = os.getloadavg()
    judge, tried = best_lm_eval(model, items, options.device)
    paths = PATHS | judge
    gap = largest_gap(model, items, paths)
    print(f"largest difference between paths: {gap:.2g} nats a token")
    if options.dtype == "float32" and gap > AGREE:
        print("the paths disagree: nothing is timed")
        return 1
    tables, ratios = {}, {}
    for kind, works in jobs(model, items, paths).items():
        tables[kind] = measure(works, options)
        show(kind, tables[kind])
        known = {row["path"]: row["times_packed"] for row in tables[kind]}
        ratios[kind] = {name: known.get(name) for name in RATIOS}
    bars = [
        {"bar": f"{kind}: packed against {name}", "least": least, "measured": measured,
         "met": measured >= least}
        for kind, bar in BARS.items() for name, least in bar.items()
        if (measured := ratios[kind][name]) is not None
    ]  # fmt: skip
    print("\nbars")
    for bar in bars:
        print(f"  {bar['bar']:44}{bar['measured']:8.2f} of {bar['least']:g}  "
              f"{'met' if bar['met'] else 'MISSED'}")  # fmt: skip
    facts = {
        "command": f"python benchmarks/packed_scoring.py {shlex.join(sys.argv[1:])}".strip(),
        **ratios,
        "bars": bars,
        "tables": tables,
        "lm_eval_tried": tried,
        "largest_gap": gap,
        "clock": "wall" if options.device.startswith("cuda") else "CPU seconds of the process",
        "load": {"before": load, "after": os.getloadavg()},
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "versions": versions(),
        "case": {name: value for name, value in vars(options).items() if name != "json"},
    }
    print(f"\n{facts['versions']}, {facts['threads']} threads, load {facts['load']}")
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if all(bar["met"] for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
