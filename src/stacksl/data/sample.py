"""The built-in sample: sentences of Python's own reference, to be matched to their topic.

It is real text that every machine with Python has (`pydoc_data.topics`), so a first run needs no
download. The text differs between versions of Python, and the sample's name says which it is of.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib import import_module

from stacksl.data.dataset import Dataset
from stacksl.errors import DataError
from stacksl.types import Item

FEWEST = 15  # sentences a topic needs to be a class
_TEST_SHARE = 0.25
_SHORTEST, _LONGEST = 16, 600  # characters of a sentence
_FEWEST_WORDS = 3

_RULE = re.compile(r"^\s*([=*~^\"#+|-])\1{2,}", re.MULTILINE)
_CODE = re.compile(r"^\s*(>>>|\.\.\. )|::=|^\s*\$ ", re.MULTILINE)
_TABLE = re.compile(r"\s*\+-[-+]+\s*\n")
_TERM = re.compile(r"(\*\*|\")[^\n]+\n\s+[A-Z]")
_BULLET = re.compile(r"^\s*([*+-]|\d+\.|[a-z]\))\s+")
_FOOTNOTE = re.compile(r"\s*\[\d+\]")
_EMPHASIS = re.compile(r"(?<![\w*\"])\*{1,2}(\w[\w .:-]*?)\*{1,2}(?![\w*\"])")
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\betc)(?<!\bvs)[.!?]\)?\s+(?=[\"'(]?[\w*])")
_FIRST = re.compile(r"[\"'(]?[A-Z]")
_NAMED = re.compile(r"[\"'(]?[a-z_]\w*\S* [a-z]+ ")  # an entry that begins with an identifier
_WORD = re.compile(r"[A-Za-z]{2,}")


def sample() -> tuple[Dataset, Dataset]:
    """The built-in sample as two datasets: some three quarters to label, the rest to test on.

    An item is a sentence, its classes are the topics. Sentences that are under several topics and
    topics with fewer than 15 sentences are left out. Ids and the split depend on a hash of the
    sentence alone, so both are stable.

    Raises:
        DataError: this Python has no `pydoc_data`.
    """
    by_topic = _sentences_by_topic(_topics())
    classes = tuple(sorted(by_topic))
    rows = [(name, text) for name in classes for text in by_topic[name]]
    digests = (blake2b(text.encode(), digest_size=8).digest() for _, text in rows)
    in_test = [int.from_bytes(digest) / 2.0**64 < _TEST_SHARE for digest in digests]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"python-topics-{version}"
    train = _dataset(name, classes, [r for r, test in zip(rows, in_test, strict=True) if not test])
    test = _dataset(
        f"{name}-test", classes, [r for r, test in zip(rows, in_test, strict=True) if test]
    )
    return train, test


def _topics() -> Mapping[str, str]:
    try:
        topics: Mapping[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        raise DataError(
            "this Python has no pydoc_data, which the built-in sample is made of: give a file"
        ) from None
    return topics


def _sentences_by_topic(topics: Mapping[str, str]) -> dict[str, list[str]]:
    """Topic to its sentences, without those of several topics, without small topics."""
    names: dict[str, str] = {}
    for name in sorted(topics, key=lambda n: (len(n), n)):
        names.setdefault(topics[name], name)  # of two names for one text, the shorter one
    by_topic = {name: list(dict.fromkeys(sentences(text))) for text, name in names.items()}
    count = Counter(text for texts in by_topic.values() for text in texts)
    unique = {name: [t for t in texts if count[t] == 1] for name, texts in by_topic.items()}
    return {name: texts for name, texts in unique.items() if len(texts) >= FEWEST}


def sentences(text: str) -> Iterator[str]:
    """The sentences of one topic: prose only, in one line each, without markup."""
    code_deeper_than: int | None = None
    for paragraph in re.split(r"\n[ \t]*\n", text):
        depth = len(paragraph) - len(paragraph.lstrip())
        under = code_deeper_than is not None and depth > code_deeper_than
        table = bool(_TABLE.match(paragraph))
        if not table:
            if _CODE.search(paragraph) or _RULE.search(paragraph):
                continue
            if under and not _prose(paragraph):
                continue
            code_deeper_than = depth if paragraph.rstrip().endswith(":") else None
        for entry in _cells(paragraph) if table else _entries(paragraph):
            yield from filter(_reads_well, _split(entry))


def _entries(paragraph: str) -> Iterator[str]:
    """The entries of a list, each in one line; a paragraph that is no list is one entry."""
    for entry in re.split(r"\n(?=\s*(?:[*+-]|\d+\.|[a-z]\))\s)", paragraph):
        first_line, _, body = entry.partition("\n")
        is_deeper = len(body) - len(body.lstrip()) > len(first_line) - len(first_line.lstrip())
        is_term = bool(body) and is_deeper and not _BULLET.match(first_line)
        yield _joined(body if is_term else _BULLET.sub("", entry))


def _cells(table: str) -> Iterator[str]:
    for row in re.split(r"^\s*\+[-=+]+\s*$|^\s*\|[=|]+\s*$", table, flags=re.MULTILINE):
        lines = [line.strip().strip("|").split(" | ") for line in row.splitlines() if line.strip()]
        for column in zip(*lines, strict=False):
            yield _joined("\n".join(column))


def _joined(lines: str) -> str:
    """Lines as one, with a compound that was broken at its hyphen mended."""
    return " ".join(re.sub(r"(?<=\w-)\s*\n\s*(?=\w)", "", lines).split())


def _split(line: str) -> Iterator[str]:
    line = _EMPHASIS.sub(r"\1", _FOOTNOTE.sub("", line))
    start = 0
    for end in _END.finditer(line):
        yield line[start : end.end()].strip()
        start = end.end()
    yield line[start:].strip()


def _prose(paragraph: str) -> bool:
    text = paragraph.strip()
    is_entry = bool(_BULLET.match(text) or _FIRST.match(text) or _TERM.match(text))
    return is_entry and text.endswith((".", ":"))


def _reads_well(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    return (
        _SHORTEST <= len(sentence) <= _LONGEST
        and len(words) >= _FEWEST_WORDS
        and bool(_FIRST.match(sentence) or _NAMED.match(sentence))
        and sentence.endswith((".", "!", "?", ".)", ":"))
        and sum(map(len, words)) >= 0.5 * len(sentence)
        and sentence.count('"') % 2 == 0
    )


def _dataset(name: str, classes: tuple[str, ...], rows: list[tuple[str, str]]) -> Dataset:
    ids = [f"{topic}-{blake2b(text.encode(), digest_size=5).hexdigest()}" for topic, text in rows]
    return Dataset(
        name=name,
        format="sample:classes",
        items=tuple(Item(id, text, classes) for id, (_, text) in zip(ids, rows, strict=True)),
        answers={id: classes.index(topic) for id, (topic, _) in zip(ids, rows, strict=True)},
        classes=classes,
    )
