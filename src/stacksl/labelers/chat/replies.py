"""The candidate that a model's reply names.

A reply is read from what is sure to what is likely: the value of a JSON object, `\\boxed{}`, the
last sentence that states an answer, a letter or an option at its beginning, and the one option
that it mentions. What it thought before is left out: thoughts try answers that they then drop.
A reply that names two options, or none, names none. So does a reply that was cut, for it may be a
thought that a template opened, unless it begins with a JSON object that has its whole answer.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

LETTERS = string.ascii_uppercase
NEAR = 0.8  # similarity from which a text is taken for the nearest class
READ = 4000  # characters of a reply that are read, its last ones

_TAGS = "think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad|analysis"
_OPENED = re.compile(
    rf"(?:<\|?|◁|&lt;)(?:seed:)?(?:{_TAGS})\s*(?:\|?>|▷|&gt;)|\[THINK\]|<unused94>"
    r"|<\|channel\|?>(?:analysis|thought)|<\|(?:begin_of_thought|START_THINKING)\|>|\Aanalysis(?-i:[A-Z])",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    rf"(?:<\|?|◁|&lt;)/(?:seed:)?(?:{_TAGS})\s*(?:\|?>|▷|&gt;)|\[/THINK\]|<unused95>"
    r"|<\|channel\|>final<\|message\|>|<channel\|>|<\|(?:end_of_thought|END_THINKING)\|>"
    r"|assistantfinal|Here(?:'s| is) my response:",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"<\|[^|<>]*\|>|</?s>")  # tokens that a server leaves in
_KEY_AND_VALUE = (
    r"\s*[\"']?(?:(?:final|correct|best|right|chosen|selected)[_ ]?)?"
    r"(?:answer|choice|option|label|letter|class|category|output)[\"']?\s*:\s*"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^'\n]*')"
)
_VALUE = re.compile(rf"(?:^|[{{,\n]){_KEY_AND_VALUE}", re.IGNORECASE)
_OBJECT = re.compile(rf"\s*(?:```(?:json)?\s*)?\{{{_KEY_AND_VALUE}", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text(?:bf)?\s*\{)?([^{}]*)\}")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_NOUN = (
    r"(?:answer|option|choice|letter|label|class|category|classification|intent|topic|response"
    r"|antwort|réponse|respuesta|risposta|resposta|ответ)"
)
_KIND = r"(?:(?:final|correct|right|best|most (?:likely|appropriate|fitting)|chosen)\s+)*"
_STATED = re.compile(
    rf"(?:\b{_KIND}{_NOUN}\b(?:\s+(?:here|to (?:this|the) question|for this \w+"
    r"|that is (?:right|correct)|corre\w+|richtig))?"
    r"\s*(?:\b(?:is|would be|should be|must be|ist|est|es|è|é)\b(?: (?:la|le|el|die))?|:|=|→|->)"
    r"|答案(?:是|为)?|答え(?:は)?|正解は|\bthat leaves\b"
    r"|\b(?:I(?:'d| would| will|'ll)?|we(?: would)?)\s+(?:choose|pick|select|say|answer|go with)\b"
    r"|\bit(?:'s| is| must be| should be)(?=\s)"
    r"|\b(?:selected|choosing|therefore|thus|hence|so)\b\s*[:,]?"
    r"|→)\s*[:：]?\s*",
    re.IGNORECASE,
)
_IS_RIGHT = (
    r"\s*(?:is|seems|looks|fits|matches)\s+(?:clearly |definitely )?(?:the\s+)?(?:only\s+)?"
    r"(?:correct|right|best|most (?:likely|appropriate|fitting))\b"
)
_BELONGS = re.compile(
    rf"(?:^|[\s(\[\"'*])([A-Z])[)\]\"'*.]*(?:{_IS_RIGHT}|(?<=nly [A-Z]) (?:fits|matches|applies)\b)"
)
_LETTER = re.compile(
    rf"(?:the\s+)?{_KIND}(?:(?:option|choice|letter|answer)\s+)?([A-Za-z])(?![A-Za-zÀ-ÿ0-9])",
    re.IGNORECASE,
)
_REASON = re.compile(r"[\s,;:—–-]*(?:because|since|as|for|due|given)\b", re.IGNORECASE)
_CLAUSE = r"(?!\b(?:but|so|therefore|thus|hence)\b)[^.!?;\n]"  # a character of it
_DOUBTED = re.compile(  # what makes a statement another case, a view of others, or a wrong answer
    rf"(?:\b(?:if|unless|otherwise|in (?:which|that) case|(?-i:Had|Were|Should))\b(?:{_CLAUSE})*"
    r"|(?:\b(?:not|never|neither|nor|some|others|many|might|may|could)\b|n't\b)"
    rf"(?:(?!,){_CLAUSE})*"
    r"|\b(?:incorre\w+|wrong|false|falsche|mauvaise|worst|least(?: \w+)?|unlikely|opposite|rejected"
    r"|eliminated|excluded|(?:an)?other|alternative|next|second|third|错误)[ -]*(?:best )?)$",
    re.IGNORECASE,
)
_HEDGED = re.compile(  # after an option that is not all of the answer, or not the answer
    r"[\s,(]*(?:(?i:or|if|unless|only|that|is|was|can|has|would|could|might)\b"
    r"|and\s+[A-Z]\b|[A-Z](?=\W*$|[,.])|[/?→]|->)"
)
_RETRACTED = re.compile(  # what stands before it is taken back
    r"(?:^|[.!?\n])\W*(?:wait|actually|correction|edit|sorry|hmm|no|scratch that|on second thought)"
    r"\s*[,:.;!—–-]\W*",
    re.IGNORECASE,
)
_MARKS = str.maketrans("_", " ", "*`#")
_DECORATION = str.maketrans("_", " ", "*`\"'“”‘’()[]{}$")
_NOT = re.compile(r"\b(?:not|no|isn t|than|nor|never|instead of)\s(?:a |an |the |about )?$")


def thought_away(reply: str) -> str | None:
    """A reply without the thoughts before it; None where a thought does not end.

    >>> thought_away("<think>A? No.</think>B")
    'B'
    >>> thought_away("<think>A is") is None
    True
    """
    *thoughts, answer = _CLOSED.split(reply)
    if not answer.strip() and thoughts and _OBJECT.match(thoughts[0]):
        answer = thoughts[0]  # the mark closes nothing
    return None if _OPENED.search(answer) else _SPECIAL.sub("", answer).strip()


def is_cut(reply: Mapping[str, Any]) -> bool:
    """Whether a completion has a thought without an end, or reached its limit before its answer.

    A server may give the thoughts a place of their own, keep them to itself, or leave out the mark
    that its template began them with.
    """
    if thought_away(_content(reply)) is None:
        return True
    cut = reply["choices"][0].get("finish_reason") == "length"
    return cut and _OBJECT.match(text_of(reply)) is None


def text_of(reply: Mapping[str, Any]) -> str:
    """The text of a completion after its thoughts; empty where it has none."""
    return thought_away(_content(reply)) or ""


def _content(reply: Mapping[str, Any]) -> str:
    """The content of a completion, or the text of its parts, as Mistral's thinking models send."""
    content = reply["choices"][0]["message"].get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [p.get("text") for p in parts if isinstance(p, Mapping) and p.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def place_in(text: str, options: Sequence[str], *, letters: bool, cut: bool = False) -> int | None:
    """The place among `options`, as the model saw them, that a text names; None where it has none.

    The text is without thoughts, and `letters` says whether options had some. A text that was `cut`
    by a limit names an option only in a JSON object.
    """
    text = text.strip()
    names = [_plain(option) for option in options]
    if cut:
        json_object = _OBJECT.match(text)
        return _of_value(_unquoted(json_object[1]), names, letters=letters) if json_object else None
    values = [match for form in (_VALUE, _BOXED, _TAGGED) for match in form.finditer(text)]
    if values:
        return _of_value(_unquoted(values[-1][1]), names, letters=letters)
    if (exact_index := _of_value(text, names, letters=letters)) is not None:
        return exact_index
    text = _RETRACTED.split(text[-READ:].translate(_MARKS))[-1]
    if indices := [*_stated(text, names, letters=letters)]:
        return next((index for index in reversed(indices) if index is not None), None)
    if letters and (first_index := _first_letter(text, names)) is not None:
        return first_index
    if letters:
        final_letter = re.search(r"[.!?:\n]\s+\W*([A-Z])\W*$", text)
        if final_letter is not None:
            index = LETTERS.find(final_letter[1])
            doubted = _DOUBTED.search(text[: final_letter.start()])
            return index if index < len(names) and not doubted else None
        if re.match(r"\W*[A-Z][.):]", text):
            return None  # a letter, and what is not its text
    lines = (_of_value(line, names, letters=False) for line in text.split("\n"))
    line_indices = [index for index in lines if index is not None]
    return line_indices[0] if len(line_indices) == 1 else _mentioned(text, names)


def _unquoted(value: str) -> str:
    with suppress(ValueError):
        unquoted = json.loads(value)
        return unquoted if isinstance(unquoted, str) else value
    return value


def _of_value(value: str, names: Sequence[str], *, letters: bool) -> int | None:
    """The option that a value is: its letter, its letter with its text, or its text alone."""
    plain_value = _plain(value)
    indices = [index for index, name in enumerate(names) if name == plain_value]
    if len(indices) == 1:
        return indices[0]
    if not letters or not plain_value:
        return None
    match = _LETTER.match(value.translate(_DECORATION).strip())
    if match is None:
        return None
    index = LETTERS.find(match[1].upper())
    remainder = _plain(match.string[match.end() :])
    fits = 0 <= index < len(names) and remainder in ("", names[index])
    return index if fits else None


def _stated(text: str, names: Sequence[str], *, letters: bool) -> Iterator[int | None]:
    """The options that a text states to be the answer, in its order; None for a doubted one."""
    spans = [(match.end(), match.start()) for match in _STATED.finditer(text)]
    spans += [(match.start(1), match.start(1)) for match in _BELONGS.finditer(text) if letters]
    for end, start in sorted(spans):
        remainder = text[end:].split("\n", 1)[0].strip()
        if (index := _at_start(remainder, names, letters=letters)) is not None:
            yield None if _DOUBTED.search(text[:start]) else index


def _at_start(text: str, names: Sequence[str], *, letters: bool) -> int | None:
    """The option that a text begins with: a letter of its own, or the longest name."""
    text = re.sub(r"^not\s[^,.;]*?\sbut\s", "", text.translate(_DECORATION).strip())
    if letters and (match := _LETTER.match(text)) is not None:
        letter, tail = match[1], text[match.end() :]
        index = LETTERS.find(letter.upper())
        is_alone = not tail or tail[0] in ".,;:!)。，で\n" or tail.lstrip()[:1] in "—–-"
        is_letter = letter.isupper() and letter not in "AI"  # the article and the pronoun
        in_range = 0 <= index < len(names)
        has_name = in_range and f"{_plain(tail)} ".startswith(f"{names[index]} ")
        hedged = _HEDGED.match(_plain(tail).removeprefix(names[index]) if has_name else tail)
        affirmed = _REASON.match(tail) or re.match(_IS_RIGHT, tail)
        if in_range and (affirmed or ((is_alone or is_letter or has_name) and not hedged)):
            return index
    plain_text = re.sub(r"^(?:the|about|a|an)\s+(?=\S)", "", _plain(text))
    indices = [
        index
        for index, name in enumerate(names)
        for form in (plain_text, _plain(text))
        if name and f"{form} ".startswith(f"{name} ") and not _HEDGED.match(form[len(name) :])
    ]
    max_length = max((len(names[index]) for index in indices), default=0)
    longest = [*{index for index in indices if len(names[index]) == max_length}]
    return longest[0] if len(longest) == 1 else None


def _first_letter(text: str, names: Sequence[str]) -> int | None:
    """The letter at the beginning of a reply that goes on about it, and lists no others."""
    bare = text.translate(_DECORATION).strip()
    match = re.match(rf"(?:{_NOUN}\s+)?([A-Z])(?=[.:,;\n]|\s*[—–-]|\s|$)", bare, re.IGNORECASE)
    if match is None or match[1] not in LETTERS[: len(names)]:
        return None
    index, tail = LETTERS.find(match[1]), bare[match.end() :]
    letters = re.findall(r"(?:^|\s)([A-Z])(?=[.:)](?:\s|$))", re.sub(r"\bnot [A-Z]\b", "", text))
    if (set(letters) - {match[1]}) & set(LETTERS[: len(names)]):
        return None
    tail = tail.lstrip(".:,;")
    sequel = tail.strip()
    has_name = f"{_plain(sequel)} ".startswith(f"{names[index]} ")
    ended = tail[:1] in ("", "\n") or sequel[:1] in "—–-" or bool(_REASON.match(tail))
    ended = ended or sequel.startswith("not ") or f"{match[1]} (" in text[: 2 * match.end() + 9]
    sentence = bare[match.end() : match.end() + 1] in (".", ":", "\n") and sequel[:1].isupper()
    has_other_name = not has_name and any(
        name and f"{_plain(sequel)} ".startswith(f"{name} ") for name in names
    )
    return index if (has_name or ended or sentence) and not has_other_name else None


def _mentioned(text: str, names: Sequence[str]) -> int | None:
    """The one option whose name a text has, or is nearest to, since names may be misspelled."""
    plain = _plain(text)
    indices = [index for index, name in enumerate(names) if name and _affirmed(plain, name)]
    longest = [p for p in indices if not any(names[p] in names[q] for q in indices if q != p)]
    if indices:
        return longest[0] if len(longest) == 1 else None
    if len(names) < 2 or any(f" {name} " in f" {plain} " for name in names):
        return None
    ratios = (SequenceMatcher(None, plain[:300], name, autojunk=False).ratio() for name in names)
    ranked = sorted(((ratio, -index) for index, ratio in enumerate(ratios)), reverse=True)
    best, second = ranked[0], ranked[1]
    return -best[1] if best[0] >= NEAR and best[0] > second[0] else None


def _affirmed(plain: str, name: str) -> bool:
    """Whether a text has a name that it does not deny."""
    padded = f" {plain} "
    starts = [match.start() for match in re.finditer(re.escape(f" {name} "), padded)]
    return any(not _NOT.search(padded[: start + 1]) for start in starts)


def _plain(text: str) -> str:
    """Words alone: case, underscores and punctuation differ between copies of a name."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))
