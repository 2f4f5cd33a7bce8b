"""Groups of texts that look alike, named by the words that set them apart."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.heads.spreading import neighbor_graph
from stacksl.data.values import normal
from stacksl.errors import DataError
from stacksl.features.encoders import Vectors, unit

AVERAGED, MOST = 2, 30_000  # times that vectors are averaged with neighbors, and of how many texts
EXAMPLES, WORDS, NAMED = 6, 10, 3  # of a group, and how many of its words are its name
STEM = 5  # letters at the start from which two words are one, as plurals are


class Topic(NamedTuple):
    """A group of texts, by their places: `rows` are all, `examples` its most typical ones."""

    name: str
    words: tuple[str, ...]
    rows: list[int]
    examples: list[int]


def find_topics(texts: Sequence[str], vectors: Vectors, count: int) -> list[Topic]:
    """The texts in `count` groups, the largest first; no two have one name.

    Texts that differ in case and white space alone are one.

    Raises:
        DataError: there are fewer different texts than groups.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    number_of: dict[str, int] = {}
    numbers = np.array([number_of.setdefault(normal(text), len(number_of)) for text in texts])
    chosen = np.unique(numbers, return_index=True)[1]
    if len(chosen) < count:
        raise DataError(
            f"{count} topics need {count} different texts at least, but the {len(texts):,} rows"
            f" have {len(chosen):,}: give more rows, or a smaller --about"
        )
    smoothed = averaged(vectors[chosen])
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # that fewer vectors differ than there are groups
        groups = KMeans(count, n_init=10, random_state=0).fit_predict(smoothed)
    groups = np.unique(groups, return_inverse=True)[1]  # without a gap
    sizes = np.bincount(groups[numbers])
    group_words = characteristic([texts[row] for row in chosen], groups)
    topics: list[Topic] = []
    for group in np.argsort(-sizes, kind="stable"):
        members = np.flatnonzero(groups == group)
        closeness = smoothed[members] @ smoothed[members].mean(axis=0)
        typical = chosen[members[np.argsort(-closeness, kind="stable")[:EXAMPLES]]]
        name = ", ".join(group_words[group][:NAMED])
        if not name or any(topic.name == name for topic in topics):
            name = f"{name or 'topic'} {len(topics) + 1}"
        rows = np.flatnonzero(groups[numbers] == group)
        topics.append(Topic(name, group_words[group], rows.tolist(), typical.tolist()))
    return topics


def averaged(vectors: Vectors) -> Vectors:
    """Unit vectors, each averaged with its nearest neighbors: groups are nearer to known classes.

    More than `MOST` stay as they are, since the search for neighbors is quadratic.
    """
    if len(vectors) <= MOST:
        weights = neighbor_graph(vectors).weights
        for _ in range(AVERAGED):
            vectors = unit(weights @ vectors)
    return vectors


def characteristic(texts: Sequence[str], groups: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """The words of each group by a class-based tf-idf, the best first.

    A word counts by the share of the group's texts that have it, times the logarithms of how much
    larger that is than among all texts, and of how few groups have it: words that are everywhere
    need no list of a language. Of words with the same beginning, such as plurals, one is taken.
    """
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

    sizes = np.bincount(groups)
    # words of Hindi, Thai and others have marks between the letters, which are not in \w
    marks = "".join(c for c in map(chr, range(0x300, 0xFFFF)) if unicodedata.category(c)[0] == "M")
    counter = CountVectorizer(binary=True, token_pattern=rf"[^\W\d_](?:[^\W_]|[{marks}])+")
    try:
        table = counter.fit_transform(texts)
    except ValueError:  # there is no word in them
        return [()] * len(sizes)
    member = csr_array((np.ones(len(texts)), (groups, np.arange(len(texts)))))
    share: NDArray[Any] = (member @ table).toarray() / sizes[:, None]
    excess = np.log(np.maximum(share * len(texts) / (sizes @ share), 1.0))
    rarity = np.log(np.maximum(len(sizes) * share.max(axis=0) / share.sum(axis=0), 1.0))
    words, score = counter.get_feature_names_out(), share * excess * rarity
    by_group = []
    for row in score:
        best = [str(words[i]) for i in np.argsort(-row, kind="stable")[: 4 * WORDS] if row[i]]
        starts = [word[:STEM] for word in best]
        distinct = [word for n, word in enumerate(best) if word[:STEM] not in starts[:n]]
        by_group.append(tuple(distinct[:WORDS]))
    return by_group
