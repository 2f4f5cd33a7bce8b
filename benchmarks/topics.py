"""Do topics found without labels agree with known classes, next to BERTopic with the same vectors?

The texts of four sets whose classes are hidden are grouped into as many topics as there are classes
and into 20: by `stacksl topics`, by its parts alone (k-means; HDBSCAN on the averaged vectors), and
by BERTopic (UMAP, HDBSCAN) as it comes and merged to the same number, with its outliers given to
the nearest topic; the first two in three orders of the rows. Measured are the adjusted mutual
information with the classes, rows without a topic as one topic, and how many classes have a topic
of their own: more than half of the class is in the topic, and more than half of the topic is of the
class. Encoding is not timed.

With --proposals classes are withheld, a pool buys labels with none of these for their rows, and the
three groups that the run then proposes are compared with the withheld classes.

    python benchmarks/topics.py --data $STACKSL_DATA --json benchmarks/results/topics.json
    python benchmarks/topics.py --data $STACKSL_DATA --proposals
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from plan_scenarios import MINILM
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_mutual_info_score

import stacksl
from stacksl.data import read
from stacksl.features import make_features
from stacksl.models.topics import averaged, characteristic, find_topics
from stacksl.runs.session import noticing

SETS = ("banking77", "snips", "stackoverflow_titles", "medical_abstracts")
WITHHELD = (("banking77", 5, 300), ("banking77", 10, 300), ("snips", 2, 100),
            ("stackoverflow_titles", 3, 150))  # fmt: skip
TOPICS, LARGE = 20, 20_000
ORDERS = 3  # of the rows, which draw other centers


def load(
    root: Path, name: str, features: str
) -> tuple[list[str], NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Texts, vectors, classes of the rows, and names of the classes."""
    data = read(root / name / "train.csv")
    texts = [item.prompt for item in data.items]
    encoder = make_features(features, classes=("a", "b")).encoder  # type: ignore[attr-defined]
    encoder.fit(texts)
    vectors = encoder.encode(texts)
    gold = np.array([data.answers[item.id] for item in data.items])
    return texts, vectors, gold, data.classes or ()


def own_topics(gold: NDArray[Any], topics: NDArray[Any]) -> int:
    """How many classes have a topic of their own."""
    count = 0
    for index in np.unique(gold):
        numbers, sizes = np.unique(topics[(gold == index) & (topics >= 0)], return_counts=True)
        if len(numbers):
            most, best = sizes.max(), numbers[sizes.argmax()]
            of_class, of_topic = (gold == index).sum(), (topics == best).sum()
            count += int(most > of_class / 2 and most > of_topic / 2)
    return count


def ours(texts: list[str], vectors: NDArray[Any], count: int) -> NDArray[Any]:
    numbers = np.zeros(len(texts), np.int64)
    for number, topic in enumerate(find_topics(texts, vectors, count)):
        numbers[topic.rows] = number
    return numbers


def kmeans(texts: list[str], vectors: NDArray[Any], count: int) -> NDArray[Any]:
    return KMeans(count, n_init=10, random_state=0).fit_predict(vectors)


def hdbscan(texts: list[str], vectors: NDArray[Any], count: int) -> NDArray[Any]:
    few = PCA(15, random_state=0).fit_transform(averaged(vectors))
    return HDBSCAN(min_cluster_size=40, min_samples=5, copy=True).fit_predict(few)


def bertopic(texts: list[str], vectors: NDArray[Any], count: int | None) -> NDArray[Any]:
    from bertopic import BERTopic
    from umap import UMAP

    reduced = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=0)
    model = BERTopic(nr_topics=count, umap_model=reduced)
    numbers, _ = model.fit_transform(texts, vectors)
    if count is None:
        return np.array(numbers)
    return np.array(
        model.reduce_outliers(texts, numbers, strategy="embeddings", embeddings=vectors)
    )


def topics_of(root: Path, features: str) -> Iterator[dict[str, Any]]:
    """A row for each set, way, number of topics and order of the rows."""
    for name in SETS:
        texts, vectors, gold, classes = load(root, name, features)
        counts = sorted({TOPICS, len(classes)})
        ways = [(ours, n) for n in counts] + [(kmeans, n) for n in counts] + [(hdbscan, None)]
        try:
            import bertopic as peer

            ways += [(bertopic, n) for n in (*counts, None)]
            version = peer.__version__
        except ImportError:
            print("bertopic is not installed: left out")
            version = None
        orders = {ours: ORDERS, kmeans: ORDERS}
        turns = ((*each, seed) for each in ways for seed in range(orders.get(each[0], 1)))
        for way, count, seed in turns:
            order = np.random.default_rng(seed).permutation(len(texts))
            start = time.process_time()
            found = np.empty(len(texts), np.int64)
            found[order] = way([texts[row] for row in order], vectors[order], count)
            yield {
                "set": name, "rows": len(texts), "classes": len(classes), "way": way.__name__,
                "order": seed, "asked": count, "topics": int(found.max()) + 1, "bertopic": version,
                "without": float((found < 0).mean()),
                "ami": float(adjusted_mutual_info_score(gold, found)),
                "own": own_topics(gold, found), "cpu": time.process_time() - start,
            }  # fmt: skip


def large(root: Path, features: str) -> dict[str, Any]:
    """Seconds of CPU for 20,000 rows."""
    parts = [load(root, name, features)[:2] for name in SETS]
    texts = [text for some, _ in parts for text in some][:LARGE]
    vectors = np.concatenate([some for _, some in parts])[:LARGE]
    start = time.process_time()
    topics = find_topics(texts, vectors, TOPICS)
    return {"rows": len(texts), "topics": len(topics), "cpu": time.process_time() - start}


def proposals(root: Path, seeds: int) -> Iterator[dict[str, Any]]:
    """A row for each run: what it proposed, and which withheld class that is."""
    shown: list[Any] = []

    def noted(texts: Any, groups: NDArray[np.int64]) -> Any:
        shown.append((texts, groups))
        return characteristic(texts, groups)

    noticing.characteristic = noted  # type: ignore[attr-defined]  # its own import
    for name, withheld, budget in WITHHELD:
        texts, _, gold, classes = load(root, name, MINILM)
        for seed in range(seeds):
            draw = np.random.default_rng(seed)
            away = {classes[n] for n in draw.choice(len(classes), withheld, replace=False)}
            rows = draw.choice(len(texts), min(len(texts), 3000), replace=False)
            label = {texts[row]: classes[gold[row]] for row in rows}
            known = [each for each in classes if each not in away]
            shown.clear()
            with tempfile.TemporaryDirectory() as folder:
                run = stacksl.run(
                    list(label),
                    labeler=lambda q, label=label, away=away: (
                        None if label[q.prompt] in away else label[q.prompt]
                    ),
                    classes=known, budget=budget, seed=seed, out=f"{folder}/run",
                )  # fmt: skip
                proposed = run.status()["proposed"]
                with run.ledger as ledger:
                    none = ledger.counts_by_kind(("train",))["none"]
            majority, share = [], []
            for number in range(len(proposed)):
                prompts, groups = shown[-1]
                own = [label[prompts[at]] for at in np.flatnonzero(groups == number)]
                best = max(set(own), key=own.count)
                majority.append(best if best in away and 2 * own.count(best) > len(own) else None)
                share.append(sum(each in away for each in own) / len(own))
            yield {
                "set": name, "withheld": withheld, "labels": budget, "seed": seed, "none": none,
                "proposed": proposed, "classes": majority, "share": share,
            }  # fmt: skip


def main() -> None:
    """Measure and print, and write with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--proposals", action="store_true", help="measure proposed classes instead")
    parser.add_argument("--features", default=MINILM, help="the features of topics")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of --proposals")
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    of_sets = topics_of(options.data, options.features)
    for row in proposals(options.data, options.seeds) if options.proposals else of_sets:
        rows.append(row)
        print(json.dumps(row), flush=True)
    before = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    result: dict[str, Any] = {"proposals": rows}
    if not options.proposals:
        result = {"topics": rows, "large": large(options.data, options.features)}
        print(result["large"])
    if options.json:
        options.json.write_text(json.dumps({**before, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
