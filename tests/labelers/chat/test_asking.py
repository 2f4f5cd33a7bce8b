"""What is sent, to whom and with whose consent; how answers are read; 30 classes."""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.cli.entry import call
from stacksl.errors import SettingsError
from stacksl.labelers.chat.calls import read_calls
from stacksl.labelers.chat.prompts import DEFAULT, order_of
from stacksl.labelers.chat.replies import place_in, thought_away
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.items.corpus import Role
from stacksl.runs.session.model_labels import shots_of
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

from ...saved_arrays import edit, set_of
from . import chat_server
from .chat_server import Handler, letter_of, right, serving, wanted_of
from .reply_cases import CLASSES, LETTERS, OPTIONS, TEXTS

NAMES = ["green", "red", "blue"]
MANY = [f"{word}{n}" for word in ("card", "cash", "app", "top", "rate") for n in range(6)]


def data_of(folder: Path, names: list[str] = NAMES) -> tuple[str, str]:
    data, classes = folder / "data.jsonl", folder / "classes.txt"
    rows = [{"id": f"q{n}", "text": f"text {n} of {names[n % len(names)]}"} for n in range(24)]
    data.write_text("\n".join(map(json.dumps, rows)))
    classes.write_text("\n".join(names))
    return str(data), str(classes)


def command(folder: Path, url: str, *more: str, names: list[str] = NAMES) -> list[str]:
    data, classes = data_of(folder, names)
    words = ["--labeler", "openai:m", "--url", url, "--budget", "6", "-q"]
    return ["run", data, "--classes", classes, "--out", str(folder / "run"), *words, *more]


def prices_of(read: object, written: object) -> tuple[str, ...]:
    return "--set", f"server.input_price={read}", "--set", f"server.output_price={written}"


def test_nothing_is_sent_without_consent(tmp_path, capsys) -> None:
    with serving(right) as server:
        assert call(command(tmp_path, server.url)) == 2
        said = capsys.readouterr().err
        for part in ("prompts and options", "'m'", server.url, "6 of 24", "--allow-send"):
            assert part in said
        assert "you own" not in said
        assert not (tmp_path / "run").exists()
        owned = tmp_path / "owned.csv"
        rows = [f"owned {n} of red,red\n" for n in range(40)]
        owned.write_text("text,label\n" + "".join(rows))
        assert call(command(tmp_path, server.url, "--owned", str(owned))) == 2
        said = capsys.readouterr().err
        assert "and of up to 40 items whose labels you own, to check the model" in said
        assert call(command(tmp_path, server.url, "--owned", str(owned), *prices_of(1, 1))) == 2
        assert "and of up to 30 items whose labels you own" in capsys.readouterr().err
        assert call(command(tmp_path, server.url, "--dry-run", "--json")) == 0
        shown = json.loads(capsys.readouterr().out)["request"]
        assert shown["url"] == f"{server.url}/chat/completions"
        assert "text 0 of green" in shown["body"]["messages"][0]["content"]
        config = tmp_path / "other.toml"
        config.write_text("allow_send = true\n")
        assert call(command(tmp_path, server.url, "--config", str(config))) == 2
        assert not server.bodies
        assert call(command(tmp_path, server.url, "--allow-send")) == 0
        assert len(server.bodies) == 6
        mine = {body["messages"][0]["content"] for body in server.bodies}
        shown_text = shown["body"]["messages"][0]["content"]
        alike = [text for text in mine if "text 0 of" in text]
        assert alike in ([], [shown_text])


def test_consent_is_for_one_server_model_and_template(tmp_path: Path) -> None:
    with serving(chat_server.broken) as server:
        assert call(command(tmp_path, server.url, "--allow-send")) == 0
    folder = RunFolder(tmp_path / "run")
    assert folder.resolved()["label_template_text"] == DEFAULT
    set_of(folder.path, "server.url", "http://127.0.0.1:1/v1")
    with pytest.raises(SettingsError, match="what was allowed"):
        stacksl.Run.open(folder.path).resume()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--audit", "3"], "answered by people"),
        (["--price", "1"], "paid by the token"),
        (["--budget", "$5"], "paid by the token"),
        (["--set", "server.input_price=1"], "go together"),
        ([*prices_of("x", 1)], "price must be a number"),
        (["--url", "ftp://host"], "the url should be"),
        (["--url", "http://me:zyxpass@host/v1"], "the url should be"),
        (["--labeler", "openai"], "needs a model"),
        (["--labeler", "oracle"], "a model on a server"),
        (["--set", "server.label_template=missing.txt"], "label_template"),
        (["--price", "0.000001", *prices_of(1, 1)], "--price of"),
    ],
)
def test_settings_at_odds_are_a_sentence(more: list[str], said: str, tmp_path, capsys) -> None:
    assert call([*command(tmp_path, "http://127.0.0.1:9/v1", "--allow-send"), *more]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "zyxpass" not in shown
    assert "Traceback" not in shown


def test_a_template_of_the_users_own(tmp_path: Path) -> None:
    """It is filled once: what a text says in braces stays as it is."""
    file = tmp_path / "label.txt"
    file.write_text("Ä {prompt}{prompt}\n{unknown}\nOptions:\n{options}\n\n")
    names, more = ["green", "{options}"], ("--set", f"server.label_template={file}")
    with serving(right) as server:
        assert call(command(tmp_path, server.url, "--allow-send", *more, names=names)) == 0
        texts = [body["messages"][0]["content"] for body in server.bodies]
    assert all(text.startswith("Ä text ") and "{unknown}" in text for text in texts)
    assert any("of {options}text" in text for text in texts)


def test_the_order_is_drawn_and_recorded(tmp_path: Path) -> None:
    with serving(right) as server:
        assert call(command(tmp_path, server.url, "--allow-send")) == 0
        firsts = Counter(chat_server.options_of(body)[0] for body in server.bodies)
    rows = read_calls(tmp_path / "run" / "run.db")
    sent = [row for row in rows if "request" in row]
    for row in sent:
        assert [NAMES[n] for n in row["order"]] == chat_server.options_of(row["request"])
    assert len(firsts) > 1
    orders = Counter(order_of(0, f"prompt {n}", "abcd") for n in range(2400))
    assert len(orders) == 24
    assert min(orders.values()) > 50  # of 100 expected


def plain(handler: Handler, body: dict[str, Any], number: int) -> None:
    """A server without log-probabilities and constrained output."""
    if "response_format" in body:
        handler.send(400, b'{"error": "unknown field"}')
        return
    wanted = wanted_of(body)
    long = len(chat_server.options_of(body)) > 26
    said = f"It is {wanted.title()}." if long else letter_of(body, wanted)
    handler.send(200, chat_server.completion(said))


@pytest.mark.parametrize(
    ("server_is", "names"), [(right, MANY), (plain, NAMES), (plain, MANY)], ids=["a", "b", "c"]
)
def test_classes_by_what_the_server_can_do(
    server_is: chat_server.Behavior, names: list[str], tmp_path: Path
) -> None:
    with serving(server_is) as server:
        assert call(command(tmp_path, server.url, "--allow-send", names=names)) == 0
        asked = len(server.bodies)
        schema = [body for body in server.bodies if "response_format" in body]
    found = stacksl.Run.open(tmp_path / "run").labels().rows
    assert len(found) == 6
    assert all(row["label"] == names[int(row["item"][1:])] for row in found if names is MANY)
    assert asked == 6 if server_is is right else 6 < asked <= 6 + 4  # as many as at once
    if names is MANY and server_is is right:
        kind = schema[0]["response_format"]["json_schema"]["schema"]["properties"]["answer"]
        assert sorted(kind["enum"]) == sorted(MANY)


def test_the_requests_are_printed_and_a_damaged_one_is_one_sentence(tmp_path, capsys) -> None:
    with serving(right) as server:
        assert call(command(tmp_path, server.url, "--allow-send")) == 0
        bodies = server.bodies
    capsys.readouterr()
    assert call(["ledger", "requests", str(tmp_path / "run")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == read_calls(tmp_path / "run" / "run.db")
    assert len(rows) == 2 * len(bodies)
    assert all(row["request"] in bodies for row in rows if "request" in row)
    assert all("choices" in row["answer"] for row in rows if "request" not in row)
    edit(tmp_path / "run", "UPDATE requests SET content = '{\"call\": 1' WHERE place = 2")
    assert call(["ledger", "requests", str(tmp_path / "run")]) == 2
    assert "row 2 of the requests in" in capsys.readouterr().err


def read(said: str, shown: list[str], *, letters: bool) -> int | None:
    after = thought_away(said)
    return None if after is None else place_in(after, shown, letters=letters)


def test_no_reply_is_read_wrongly_and_few_are_lost() -> None:
    found = [(said, place, read(said, OPTIONS, letters=True)) for said, place in LETTERS]
    known = {name: place for place, name in enumerate(CLASSES)}
    found += [
        (said, None if name is None else known[name], read(said, CLASSES, letters=False))
        for said, name in TEXTS
    ]
    assert len(found) >= 120
    assert [each for each in found if each[2] is not None and each[1] != each[2]] == []
    lost = [each for each in found if each[1] is not None and each[2] is None]
    assert len(lost) <= 0.03 * sum(each[1] is not None for each in found), lost


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("<seed:think>", "</seed:think>"),  # Seed-OSS
        ("◁think▷", "◁/think▷"),  # Kimi
        ("<|begin_of_thought|>", "<|end_of_thought|>"),  # OpenThoughts
        ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),  # Command A
        ("<|channel>thought\n", "<channel|>"),  # Gemma 4
        ("analysisWe see. ", "assistantfinal"),  # gpt-oss, whose special tokens were left out
        ("<scratchpad>", "</scratchpad>"),
        ("<think >", "</think >"),
        ("<|thinking|>", "<|/thinking|>"),
        ("&lt;think&gt;", "&lt;/think&gt;"),
        ("<unused94>thought\n", "<unused95>"),  # MedGemma
        (None, "Here is my response:"),  # Granite 3
        (None, "</think>"),  # DeepSeek-R1, whose template opens the thought
    ],
)
def test_thoughts_in_the_marks_of_other_models_are_not_read(
    opened: str | None, closed: str
) -> None:
    thought = f"{opened or ''}The answer is A. Or is it?"
    assert read(f"{thought}{closed}B", OPTIONS, letters=True) == 1
    assert opened is None or thought_away(thought) is None


def test_a_server_that_ignores_the_schema_is_asked_for_a_text(tmp_path: Path) -> None:
    def chatty(handler: Handler, body: dict[str, Any], number: int) -> None:
        wanted = wanted_of(body)
        ignored = "response_format" in body
        handler.send(200, chat_server.completion("Sure." if ignored else f"{wanted}, I think."))

    with serving(chatty) as server:
        words = command(tmp_path, server.url, "--allow-send", names=MANY)
        assert call([*words, "--set", "server.concurrency=1"]) == 0
        first, *others = server.bodies
    assert len(others) == 6  # the first label is asked for again, as a text
    assert "response_format" in first
    for body in others:
        listed = chat_server.options_of(body)
        assert "response_format" not in body
        assert sorted(listed) == sorted(MANY)
    for row in stacksl.Run.open(tmp_path / "run").labels().rows:
        assert row["label"] == MANY[int(row["item"][1:])]


def test_a_dear_answer_that_ignores_the_schema_does_not_stop_every_session(tmp_path: Path) -> None:
    def dear(handler: Handler, body: dict[str, Any], number: int) -> None:
        if number == 1:
            handler.send(200, chat_server.completion("Sure.", usage=(10_000_000, 5)))
        else:
            handler.send(200, chat_server.completion(wanted_of(body)))

    with serving(dear) as server:
        words = command(tmp_path, server.url, "--allow-send", names=MANY)
        prices = (*prices_of(100, 200), "--yes")
        assert call([*words, "--set", "server.concurrency=1", *prices]) == 0
        run = stacksl.Run.open(tmp_path / "run")
        assert run.status()["state"] == "waiting"
        assert len(server.bodies) == 1
        run.resume()
    assert run.status()["state"] == "finished"
    assert [row["kind"] for row in run.labels().rows] == ["broken", *["label"] * 5]


def test_an_added_text_too_long_for_the_price_of_a_label_is_not_sent(
    tmp_path: Path,
) -> None:
    more = tmp_path / "more.jsonl"
    with serving(right) as server:
        prices = (*prices_of(100, 200), "--yes")
        assert call([*command(tmp_path, server.url, "--allow-send"), *prices]) == 0
        run = stacksl.Run.open(tmp_path / "run")
        more.write_text(json.dumps({"id": "long", "text": "word " * 2000 + "of red"}))
        run.change(items=more, budget="25")  # of all items
        assert not any("word word" in json.dumps(body) for body in server.bodies)
    assert run.status()["state"] == "finished"
    said = {row["item"]: row["kind"] for row in run.labels().rows}
    assert said == {**{f"q{n}": "label" for n in range(24)}, "long": "broken"}


def examples_of(body: dict[str, Any]) -> list[list[str]]:
    """Prompt and answer of the examples in a request by the default template."""
    parts = body["messages"][0]["content"].split("\n\n")[1:]
    return [part.split("\nAnswer: ") for part in parts if "\nAnswer: " in part]


def test_examples_are_labels_that_train(tmp_path: Path) -> None:
    owned = tmp_path / "owned.csv"
    owned.write_text("text,label\nan owned text of red,red\nanother owned one of blue,blue\n")
    more = ("--set", "server.shots=3", "--owned", str(owned), "--mode", "stream")
    with serving(right) as server:
        words = command(tmp_path, server.url, *more)
        assert call([*words, "--allow-send", "--budget", "8"]) == 0
        bodies = server.bodies
    rows = stacksl.Run.open(tmp_path / "run").labels().rows
    rows = [row for row in rows if row["item"].startswith("q")]
    bought = [f"text {row['item'][1:]} of {row['label']}" for row in rows]
    assert len(bodies) == len(bought) == 8
    known = {"an owned text of red", "another owned one of blue"}
    for body, text in zip(bodies, bought, strict=True):
        shown = examples_of(body)
        assert len(shown) == min(3, len(known))
        for prompt, answer in shown:
            assert prompt in known  # owned, or bought before
            said = prompt.split(" of ")[1]
            assert answer == f"{letter_of(body, said)}. {said}"
        known.add(text)


def test_examples_are_never_of_the_audit(tmp_path: Path) -> None:
    texts = [f"text {n // 2} of {NAMES[n // 2 % 3]}" for n in range(60)]  # each one twice
    given: Any = {"classes": NAMES, "budget": 40, "audit": 16, "mode": "pool"}
    answers = [NAMES[n // 2 % 3] for n in range(60)]
    run = stacksl.run(texts, answers, out=tmp_path / "run", **given)
    with Session.open(RunSpec.open(RunFolder(run.path))) as session:
        corpus = session.examples.corpus
        audit = {corpus.ids[row] for row in np.flatnonzero(corpus.roles == Role.AUDIT)}
        shots = {name: shots_of(session.examples, 40, name) for name in corpus.ids}
        shown = {shot.item for name in corpus.ids for shot in shots[name]}
        trained = {corpus.ids[row] for row, _, _ in session.examples.bought}
        h = np.asarray(session.examples.block.h)
        for row, name in enumerate(corpus.ids):
            alike = [float(h[corpus.row[shot.item]] @ h[row]) for shot in shots[name]]
            assert alike == sorted(alike)  # the nearest is next to the question
            assert name not in {shot.item for shot in shots[name]}
    assert len(audit) == 16
    assert len(shown) == 24
    assert shown == trained
    assert not shown & audit


def test_a_forgotten_example_leaves_all_requests(tmp_path: Path) -> None:
    more = ("--allow-send", "--set", "server.shots=9", "--mode", "stream")
    with serving(right) as server:
        assert call(command(tmp_path, server.url, *more)) == 0
    run = tmp_path / "run"
    assert stat.S_IMODE((run / "run.db").stat().st_mode) == 0o600
    before = read_calls(run / "run.db")
    item = before[0]["item"]
    text = f"text {item[1:]} of "
    assert text in json.dumps(before)
    assert [item in row["shots"] for row in before if "request" in row] == [False, *[True] * 5]
    forget(run, item)
    after = read_calls(run / "run.db")
    assert not [path for path in run.glob("run.db*") if text.encode() in path.read_bytes()]
    assert f'"{item}"' not in json.dumps(after)
    for name in ("most", "cost"):
        assert [row.get(name) for row in after] == [row.get(name) for row in before[2:]]
    assert call(["ledger", "verify", str(run)]) == 0


def test_examples_are_shown_and_consented_to(tmp_path, capsys, monkeypatch) -> None:
    words = command(tmp_path, "http://127.0.0.1:9/v1", "--set", "server.shots=2")
    assert call([*words, "--dry-run", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)["request"]["body"]
    texts = ["text 1 of red", "text 2 of blue"]
    assert examples_of(body) == [[text, "(its label)"] for text in texts]
    assert call(words) == 2
    assert "prompts, options and labeled examples to" in capsys.readouterr().err
    file = tmp_path / "label.txt"
    file.write_text("{prompt}{options}")
    assert call([*words, "--set", f"server.label_template={file}"]) == 2
    assert "{examples}" in capsys.readouterr().err
