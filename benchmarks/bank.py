"""Does learning to rank the answers of a bank beat cosine and BM25, and what does search cost?

Ranking: the 1,000 test questions of medquad_faq, and labels bought among its 3,991 training
questions (the data's own split; no prompt and 10 answers are in both). Each question gets
the M nearest of 15,801 answers under all-MiniLM-L6-v2; the learner is the final model of a run (a
conditional logit around 20 cosines; C = 20, which folds took at each budget of a pilot on halves of
the training questions). `--longest N` leaves out answers of more than N characters, and their
questions: long texts take long to encode.

`--chosen`: labels drawn at random, or those that a run of as many labels buys under its default
gate, as a `stream` (a run's default over a bank) or as a `pool`.

`--outside`: an answer outside the M counts as wrong, and a bought label with such a gold is, as in
a run, paid and not learned (`inside`). `both` learns it over itself and 511 answers drawn uniformly
outside of the M, which is consistent too (McFadden 1978); `joined` over the M and itself, which is
not (D13).

    python benchmarks/bank.py --data $STACKSL_DATA --outside inside both joined \
        --chosen random stream pool --json benchmarks/results/bank.json
    python benchmarks/bank.py --from benchmarks/results/bank.json

Search: seconds, those of the processor, and peak memory of the thousand test questions over the
answers and mixtures of them.

    python benchmarks/bank.py --data $STACKSL_DATA --search 15801 1000000
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import tempfile
import time
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stacksl import run
from stacksl.core.heads.logistic import fit_pairs
from stacksl.core.nearest import nearest
from stacksl.data import Bank, Dataset, read, read_bank
from stacksl.features import BANK
from stacksl.features.minilm import MiniLM
from stacksl.features.rows import pair_rows

OUTSIDE = ("inside", "both", "joined")  # how a label with a gold outside is learned
CHOSEN = ("random", "stream", "pool")
TOPS = (1, 5, 10)
SIZES = (64, 128, 256, 512)
DRAWN = 511  # answers outside of C_t that an outside gold is compared with
Array = NDArray[Any]


def bm25(bank: tuple[str, ...], prompts: list[str], k1: float = 1.2, b: float = 0.75) -> Array:
    """Okapi BM25 scores, (n, N). Source: Robertson and Zaragoza (2009), equation 3.15."""
    from scipy.sparse import csr_array

    words: dict[str, int] = {}
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in bank]
    for each in counts:
        for word in each:
            words.setdefault(word, len(words))
    length = np.array([sum(each.values()) for each in counts])
    seen: Counter[str] = Counter(word for each in counts for word in each)
    idf = {word: np.log(1 + (len(bank) - n + 0.5) / (n + 0.5)) for word, n in seen.items()}
    rows, columns, values = [], [], []
    for place, each in enumerate(counts):
        norm = k1 * (1 - b + b * length[place] / length.mean())
        for word, n in each.items():
            rows.append(words[word])
            columns.append(place)
            values.append(idf[word] * n * (k1 + 1) / (n + norm))
    weights = csr_array((values, (rows, columns)), shape=(len(words), len(bank)))
    asked = [Counter(re.findall(r"\w+", prompt.lower())) for prompt in prompts]
    entries = [
        (at, words[w], n) for at, each in enumerate(asked) for w, n in each.items() if w in words
    ]
    at, word, n = (np.array(part) for part in zip(*entries, strict=True))
    queries = csr_array((n.astype(float), (at, word)), shape=(len(prompts), len(words)))
    return (queries @ weights).toarray()


def tops(ranks: Array) -> dict[str, float]:
    """The share of gold answers among the first 1, 5 and 10; `ranks` are 0 for the best."""
    return {f"top {count}": float((ranks < count).mean()) for count in TOPS}


def ranks_of(scores: list[Array], gold: Array) -> Array:
    """The rank of each gold place, ties counted against it; a million where it is −1."""
    found = np.full(len(gold), 10**6)
    for row, place in enumerate(gold):
        if place >= 0:
            found[row] = int((scores[row] >= scores[row][place]).sum()) - 1
    return found


class Ranking:
    """The questions of medquad_faq with the vectors of their prompts and of the bank."""

    def __init__(self, data: Path, longest: int | None, scale: float = BANK) -> None:
        self.scale = scale
        self.folder = folder = data / "medquad_faq"
        self.bank = read_bank(folder / "bank.jsonl.gz")
        self.train, self.test = (
            read(folder / f"{part}.jsonl.gz", bank=self.bank) for part in ("train", "test")
        )
        if longest is not None:
            self._shorten(longest)
        encoder = MiniLM()
        self.answers = encoder.encode(self.bank.texts)
        self.prompts = {
            id(part): encoder.encode([item.prompt for item in part.items])
            for part in (self.train, self.test)
        }
        self.wide = {
            id(p): nearest(self.prompts[id(p)], self.answers, max(SIZES))[0] for p in self.parts
        }

    def _shorten(self, longest: int) -> None:
        texts = self.bank.texts
        short = [n for n, text in enumerate(texts) if len(text) <= longest]
        kept = {old: new for new, old in enumerate(short)}
        self.bank = Bank(tuple(texts[n] for n in kept), {})
        self.train, self.test = (
            replace(
                part,
                items=tuple(i for i in part.items if part.answers[i.id] in kept),
                answers={i: kept[n] for i, n in part.answers.items() if n in kept},
            )
            for part in self.parts
        )

    @property
    def parts(self) -> tuple[Dataset, Dataset]:
        """Training and test questions."""
        return self.train, self.test

    def gold(self, part: Dataset) -> Array:
        """The place of each gold answer in the bank."""
        return np.array([part.answers[item.id] for item in part.items])

    def places(self, part: Dataset, count: int) -> tuple[Array, Array]:
        """The nearest answers (n, M), and the place of the gold among them, −1 outside."""
        near = self.wide[id(part)][:, :count]
        hit = near == self.gold(part)[:, None]
        return near, np.where(hit.any(axis=1), hit.argmax(axis=1), -1)

    def phi(self, part: Dataset, row: int, places: Array) -> Array:
        """The pair features of a question and some answers."""
        prompt = np.repeat(self.prompts[id(part)][row][None], len(places), axis=0)
        return pair_rows(prompt, self.answers[places])

    def fixed(self, part: Dataset, row: int, places: Array) -> Array:
        """The fixed part of their scores."""
        return self.scale * (self.answers[places] @ self.prompts[id(part)][row])

    def bought(self, chosen: str, count: int, labels: int, seed: int) -> Array:
        """The training questions whose labels are bought, in that order."""
        if chosen == "random":
            return np.random.default_rng(seed).permutation(len(self.train.items))[:labels]
        with tempfile.TemporaryDirectory() as place:
            done = run(
                self.folder / "train.jsonl.gz", bank=str(self.folder / "bank.jsonl.gz"),
                features="sentences:minilm", top_k=count, mode=chosen, budget=labels, audit=0,
                seed=seed, out=Path(place) / "run",
            )  # fmt: skip
            names = [row["item"] for row in done.ledger.export()]
        at = {item.id: row for row, item in enumerate(self.train.items)}
        return np.array([at[name] for name in names])

    def learned(self, count: int, rows: Array, seed: int, outside: str) -> tuple[Array, float, int]:
        """θ of the labels of `rows`, its C, and how many of them had a gold outside."""
        near, gold = self.places(self.train, count)
        whole, draw = self.gold(self.train), np.random.default_rng(seed)
        blocks, fixed, labels = [], [], []
        for row in rows:
            if gold[row] >= 0:
                shown, label = near[row], gold[row]
            elif outside == "joined":
                shown, label = np.array([*near[row], whole[row]]), count
            elif outside == "both":
                apart = np.setdiff1d(np.arange(len(self.answers)), [*near[row], whole[row]])
                drawn = draw.choice(apart, DRAWN, replace=False)
                shown, label = np.array([whole[row], *drawn]), 0
            else:
                continue
            blocks.append(self.phi(self.train, row, shown))
            fixed.append(self.fixed(self.train, row, shown))
            labels.append(label)
        offsets = np.concatenate([[0], np.cumsum([len(b) for b in blocks])])
        phi = np.concatenate(blocks)
        del blocks
        base = np.concatenate(fixed)
        found = fit_pairs(phi, offsets, np.array(labels), seed, False, base)
        assert found is not None
        return found[0], found[1].value, int((gold[rows] < 0).sum())

    def ranked(self, count: int, theta: Array) -> dict[str, float]:
        """The test questions under θ."""
        near, gold = self.places(self.test, count)
        scores = [
            self.fixed(self.test, row, some) + self.phi(self.test, row, some) @ theta
            for row, some in enumerate(near)
        ]
        return tops(ranks_of(scores, gold))


def ranking(
    task: Ranking, labels: list[int], sizes: list[int], seeds: list[int], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of the first table."""
    gold = task.gold(task.test)
    prompts = [item.prompt for item in task.test.items]
    words = bm25(task.bank.texts, prompts)
    found: list[dict[str, Any]] = [{"by": "BM25", **tops(ranks_of(list(words), gold))}]
    found[0] |= {"answers": len(task.bank.texts), "questions": [len(p.items) for p in task.parts]}
    print(found[0], flush=True)
    for count in sizes:
        _, inside = task.places(task.test, count)
        ranks = np.where(inside >= 0, inside, 10**6)
        share = float((inside >= 0).mean())
        found.append({"by": "cosine", "M": count, "inside": share, **tops(ranks)})
        print(found[-1], flush=True)
        for chosen, bought, seed in product(given.chosen, labels, seeds):
            rows = task.bought(chosen, count, bought, seed)
            for outside in given.outside:
                start = time.perf_counter()
                theta, strength, missed = task.learned(count, rows, seed, outside)
                seconds = time.perf_counter() - start
                about = {"chosen": chosen, "by": outside, "M": count, "labels": len(rows)}
                about |= {"seed": seed, "outside": missed, "C": strength, "seconds": seconds}
                found.append({**about, **task.ranked(count, theta)})
                print(found[-1], flush=True)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, as Markdown; the last column has the labels of the default gate."""
    sizes = sorted({row["M"] for row in rows if row["by"] == "cosine"})
    columns = [(size, "random") for size in sizes] + [(sizes[0], "stream")]
    labels = sorted({row["labels"] for row in rows if row["by"] == "inside"})
    heads = ["right answer among the best 1 / 5 / 10", *(f"k = {size}" for size in sizes)]
    heads.append(f"k = {sizes[0]}, margin")
    shares = [f"{row['inside']:.3f}" for row in rows if row["by"] == "cosine"]
    lines = [
        ["retrieved", *shares, ""],
        ["BM25, whole bank", _shown(rows, {"by": "BM25"}), *[""] * len(sizes)],
        ["cosine, any k", _shown(rows, {"by": "cosine"}), *[""] * len(sizes)],
    ]
    for outside, text in (("inside", "labels"), ("both", "labels, golds outside learned")):
        for bought in labels if outside == "inside" else labels[-1:]:
            some = {"by": outside, "labels": bought}
            cells = [_shown(rows, {**some, "M": m, "chosen": by}) for m, by in columns]
            lines.append([f"{bought} {text}", *cells])
    made = [f"| {' | '.join(cells)} |" for cells in (heads, *lines)]
    return "\n".join([made[0], "|---" * len(heads) + "|", *made[1:]])


def _shown(rows: list[dict[str, Any]], some: dict[str, Any]) -> str:
    found = [row for row in rows if all(row.get(name) == value for name, value in some.items())]
    means = (np.mean([row[f"top {n}"] for row in found]) for n in (1, 5, 10))
    return " / ".join(f"{mean:.3f}" for mean in means)


def mixtures(answers: Array, count: int) -> Array:
    """`count` unit vectors: the answers, then points between two of them with some noise."""
    draw = np.random.default_rng(0)
    bank = np.empty((count, answers.shape[1]), np.float32)
    bank[: len(answers)] = answers[:count]
    for start in range(len(answers), count, 50_000):
        part = bank[start : start + 50_000]
        one, two = (answers[draw.integers(len(answers), size=len(part))] for _ in range(2))
        share = draw.random((len(part), 1), dtype=np.float32) / 2
        noise = draw.standard_normal(part.shape, dtype=np.float32) / np.sqrt(part.shape[1])
        part[:] = one + share * (two - one) + np.float32(0.3) * noise
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return bank


def search(task: Ranking, count: int, size: int) -> dict[str, Any]:
    """A row of the second table; memory is the peak of the process so far, in GiB."""
    prompts, bank = task.prompts[id(task.test)], mixtures(task.answers, count)
    start, spent = time.perf_counter(), time.process_time()
    nearest(prompts, bank, size)
    seconds, cpu = time.perf_counter() - start, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"answers": count, "M": size, "seconds": seconds, "cpu": cpu, "GiB": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder that holds medquad_faq")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--longest", type=int, help="characters of an answer, at most")
    parser.add_argument("--chosen", nargs="+", choices=CHOSEN, default=["random"])
    parser.add_argument("--outside", nargs="+", choices=OUTSIDE, default=["inside"])
    parser.add_argument("--search", type=int, nargs="*", help="answers; instead of ranking")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.source is not None:
        print(table(json.loads(given.source.read_text(encoding="utf-8"))))
        return
    if given.data is None:
        parser.error("give --data DIR, or --from FILE")
    if given.longest is not None and given.chosen != ["random"]:
        parser.error("--longest leaves out questions that a run would buy: --chosen random alone")
    task = Ranking(given.data, given.longest)
    found: list[dict[str, Any]] = []
    for count in given.search or ():
        found.append(search(task, count, 64))
        print(found[-1], flush=True)
    if given.search is None:
        found = ranking(task, given.labels, given.sizes, given.seeds, given)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
