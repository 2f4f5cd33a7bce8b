"""`stacksl ledger`: what was asked, who answered, what it cost, and whether it can be trusted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from stacksl.cli import options
from stacksl.cli.printing import as_json, facts
from stacksl.report.wording import count, plural

if TYPE_CHECKING:
    from stacksl.ledger.purchases import Head


def path(run: options.RunFolder, json: options.Json = False, debug: options.Debug = False) -> None:
    """Print the path of a run's database, which holds the ledger.

    Where the database of a run is:
        stacksl ledger path runs/first
    For a script:
        stacksl ledger path runs/first --json
    """
    where = options.open_run(run).folder.database
    print(as_json({"run": run, "ledger": where}) if json else where)


KeptHead = Annotated[
    str | None,
    options.option(
        "A head that you stored elsewhere, which the chain must still have.", "ROWS:HASH"
    ),
]


def verify(
    run: options.RunFolder,
    head: KeptHead = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Check that no row of the ledger was edited and none is missing at its end.

    Every row has the hash of the row before. The learner's arrays, facts, report and card have the
    ledger's length and last hash. The command prints both as the head: keep it elsewhere, since
    only the head shows that somebody rewrote the whole folder. A feature map, model, report or
    card that was replaced or edited is named.

    Was any row edited or cut?
        stacksl ledger verify runs/first
    For a script (exit code 2 where it was):
        stacksl ledger verify runs/first --json
    Against a head that was kept elsewhere:
        stacksl ledger verify runs/first --head 566:9f2c...
    """
    from stacksl.cli.heads import check_head
    from stacksl.errors import LedgerCorrupt
    from stacksl.runs.loop.language_trainer import expect_adapters
    from stacksl.runs.storage.folder import anchors, expect_all_derived

    opened = options.open_run(run)
    heads = anchors(opened.folder)
    records = list(heads)
    if head is not None:
        heads["--head"] = _head(head)
    with opened.ledger as ledger:
        ledger.verify(heads, arrays=True)
        expect_adapters(opened.folder, ledger)
        rows, tip = ledger.head
        arrays = ledger.arrays()
    if (lost := check_head(opened.folder)) is not None:
        raise LedgerCorrupt(lost)
    expect_all_derived(opened.folder)
    saved = arrays and arrays.head.count
    result = {"run": run, "rows": rows, "tip": tip, "arrays": saved, "records": records}
    named = [] if saved is None else [f"the learner's arrays after row {count(saved)}"]
    named += records
    named += ["--head"] if head is not None else []
    text = f"the ledger is whole: {plural(rows, 'row')}"
    text += f", in agreement with {', '.join(named)}" if named else ""
    print(as_json(result) if json else f"{text}\nhead {rows}:{tip}")


def _head(text: str) -> Head:
    from stacksl.errors import SettingsError
    from stacksl.ledger.purchases import Head

    rows, _, tip = text.strip().partition(":")
    if not re.fullmatch(r"\d{1,18}:[0-9a-f]{64}", f"{rows}:{tip}", re.ASCII):
        raise SettingsError(
            "--head must be ROWS:HASH as `stacksl ledger verify` prints it, such as 120: and 64"
            f" hexadecimal digits, got {text[:80]!r}"
        )
    return Head(int(rows), tip)


def requests(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Print the requests to a model that answers, and its answers: one JSON object per line.

    A request has one line from before it was sent, and a second one when it ended, with its cost.

    What a model was asked, and what it said:
        stacksl ledger requests runs/first
    For a script:
        stacksl ledger requests runs/first --json
    """
    from stacksl.labelers.chat.calls import read_calls

    for row in read_calls(options.open_run(run).folder.database):
        print(as_json(row))


def replay(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Play the record of a run again, and compare each decision, each refit and the learner.

    The rows that are played again are decisions, learned labels and refits; `verify` counts all.
    A run with an erased item is played from the arrays that were saved when it was erased.

    Rebuild the learner and compare:
        stacksl ledger replay runs/first
    For a script:
        stacksl ledger replay runs/first --json
    """
    result = options.open_run(run).replay()
    names = {"rows": "Rows played again", "rounds": "Rounds", "labels": "Labels learned"}
    counts = [(shown, count(result[name])) for name, shown in names.items()]
    after = result["after"]
    why = f"row {count(after + 1)} (an item was erased)" if after else None
    print(as_json(result) if json else facts([*counts, ("Played from", why)]))


VERBS = (path, verify, requests, replay)
