"""The story of the first day: what is typed, what the colleagues do meanwhile, and why."""

from __future__ import annotations

import csv
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colleagues import Colleague, count_open
from day_desk import Desk

__all__ = ["RUN", "Scale", "tell"]

RUN = "runs/intents"
WORDS = dict(
    re.findall(
        r"^<!-- (\w+) -->\n(.*?)\n*(?=^<!--|\Z)",
        Path(__file__).with_name("day_words.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
"""The paragraphs between the commands, by name."""


@dataclass(frozen=True)
class Scale:
    """How large a day is.

    Attributes:
        questions: rows without labels; None for all that are left.
        old: rows whose labels are held already.
        later: rows that come after the model is made, from the same source.
        intents: how many of the classes, in their order; None for all.
        first, money: dollars at the start, and after they are raised.
        batch, overlap: as the settings of these names.
    """

    questions: int | None
    old: int
    later: int
    intents: int | None
    first: int
    money: int
    batch: int
    overlap: int


def tell(desk: Desk, anna: Colleague, ben: Colleague, terms: Scale) -> None:
    """Play the day in the shell of `desk`."""
    _begins(desk, terms)
    _morning(desk, anna, ben)
    _noon(desk, anna, ben)
    _afternoon(desk, anna, ben, terms)
    _judged(desk)
    _books(desk)


def _begins(desk: Desk, terms: Scale) -> None:
    intents = len((desk.folder / "intents.txt").read_text().splitlines())
    with (desk.folder / "questions.csv").open(encoding="utf-8", newline="") as file:
        questions = len(list(csv.DictReader(file)))
    sizes = {"questions": questions, "old": terms.old, "labels": int(terms.money / 2.5)}
    desk.says(WORDS["opening"].format(**sizes))
    desk.says(WORDS["files"].format(intents=intents))
    desk.types("head -3 questions.csv old.csv intents.txt")
    desk.says(WORDS["plan"].format(overlap=terms.overlap, batch=terms.batch, first=terms.first))
    asked = (
        "stacksl run questions.csv --classes intents.txt --owned old.csv --labeler file"
        f" \\\n  --annotators anna,ben --overlap {terms.overlap} --no-second-look"
        f" --open-questions {terms.batch}"
        f" --price 2.50 --budget '${terms.first}' --sheets csv --ask-dir sheets --ask-mode 0640"
    )
    desk.types(f"{asked} --dry-run")
    desk.says(WORDS["start"])
    desk.types(f"{asked} --out {RUN} --yes")


def _morning(desk: Desk, anna: Colleague, ben: Colleague) -> None:
    sheet, his = desk.folder / "sheets/0001-anna.csv", desk.folder / "sheets/0001-ben.csv"
    desk.says(WORDS["sheets"])
    desk.types("ls sheets")
    desk.types("cat sheets/0001-anna.csv", shown=4)
    anna.fills(sheet)
    anna.types(sheet, "zz9")
    half = slice(0, count_open(his) // 2)
    ben.fills(his, to=desk.folder / "mail/0001-ben.csv", rows=half)
    desk.says(WORDS["first"])
    desk.types(f"stacksl answer {RUN} sheets/0001-anna.csv mail/0001-ben.csv", code=2)
    anna.types(sheet, "")
    anna.fills(sheet)
    anna.changes_mind(sheet, 3, to=desk.folder / "mail/0001-anna-again.csv")
    desk.says(WORDS["second"])
    desk.types(f"stacksl answer {RUN} sheets/0001-anna.csv mail/0001-anna-again.csv")
    desk.types(f"stacksl status {RUN}")


def _noon(desk: Desk, anna: Colleague, ben: Colleague) -> None:
    desk.says(WORDS["ill"])
    sheets = _named(desk.types(f"stacksl change {RUN} --free ben"))
    desk.says(WORDS["half"])
    hers = [sheet for sheet in sheets if "-anna" in sheet.name]
    for sheet in hers:
        anna.fills(desk.folder / sheet, rows=slice(0, None, 2))
    desk.types(f"stacksl answer {RUN} {_typed(desk, hers)}")
    his = desk.folder / "sheets/0001-ben.csv"
    second = slice(count_open(his) // 2, None)
    ben.fills(his, to=desk.folder / "mail/0001-ben-late.csv", rows=second)
    desk.says(WORDS["late"])
    desk.types(f"stacksl answer {RUN} mail/0001-ben-late.csv")


def _afternoon(desk: Desk, anna: Colleague, ben: Colleague, terms: Scale) -> None:
    def fill(sheets: list[Path]) -> tuple[str, int]:
        filled = sum((ben if "-ben" in s.name else anna).fills(desk.folder / s) for s in sheets)
        return f"stacksl answer {RUN} {_typed(desk, sheets)}", filled

    desk.says(WORDS["money"])
    sheets = _named(desk.types(f"stacksl change {RUN} --budget '${terms.money}'"))
    desk.says(WORDS["afternoon"])
    sheets = _named(desk.types(fill(sheets)[0]))
    paid = sum(_accepted(typed.printed) for typed in desk.typed)
    came = desk.asks(f"stacksl status {RUN}")
    rows: list[str] = []
    while came["state"] == "waiting":
        command, filled = fill(sheets)
        if came["left"] == 0 and came["spent"] == paid + filled:  # nothing else is to be had
            break
        came = desk.asks(command)
        paid += sum(came["accepted"].values())
        rows.append(_line(len(rows) + 2, filled, came))
        sheets = [Path(sheet["file"]) for sheet in came["sheets"] or ()]
    desk.says(WORDS["table"] + "\n" + "\n".join(rows))
    desk.says(WORDS["end"])
    desk.types(command if came["state"] == "waiting" else f"stacksl resume {RUN}")


def _accepted(printed: str) -> int:
    """The answers that a command has said it took, of every kind."""
    lines = re.findall(r"^Accepted +(.*)$", printed, re.MULTILINE)
    return sum(int(number) for line in lines for number in re.findall(r"\d+", line))


def _line(call: int, filled: int, came: dict[str, Any]) -> str:
    return f"| {call} | {filled} | {came['left']} | ${came['money']['spent']:,.2f} |"


def _judged(desk: Desk) -> None:
    found = desk.asks(f"stacksl resume {RUN}")
    audit = found["audit"]
    desk.says(WORDS["report"].format(audit=audit["n"], labels=found["budget"]))
    desk.types(f"stacksl report {RUN}")
    desk.types(f"grep -m1 audited {RUN}/README.md")
    desk.says(WORDS["predict"])
    desk.types(f"stacksl predict {RUN} next-month.csv --out next-month-labeled.csv")
    desk.types("head -3 next-month-labeled.csv")
    truth, count = _true_accuracy(desk.folder)
    desk.says(WORDS["check"].format(later=f"{count:,}"))
    desk.types(f"stacksl evaluate {RUN} hidden.csv")
    low, high = audit["interval"]
    inside = "inside that interval"
    outside = "outside that interval, as for one audit in twenty"
    verdict = inside if low <= truth <= high else outside
    told = {"audited": audit["accuracy"], "low": low, "high": high}
    desk.says(WORDS["verdict"].format(**told, true=truth, verdict=verdict))
    desk.says(WORDS["refit"])
    desk.types(f"stacksl change {RUN} --train-on-audit")
    desk.says(WORDS["after"])
    desk.types(f"stacksl evaluate {RUN} hidden.csv")


def _true_accuracy(folder: Path) -> tuple[float, int]:
    """The share of next month's predictions that the hidden labels agree with, and how many."""
    with (folder / "hidden.csv").open(encoding="utf-8", newline="") as file:
        hidden = {row["id"]: row["intent"] for row in csv.DictReader(file)}
    with (folder / "next-month-labeled.csv").open(encoding="utf-8", newline="") as file:
        said = {row["id"]: row["label"] for row in csv.DictReader(file)}
    return sum(said.get(name) == intent for name, intent in hidden.items()) / len(hidden), len(
        hidden
    )


def _books(desk: Desk) -> None:
    desk.says(WORDS["books"])
    desk.types(f"stacksl export {RUN} --labels answers.csv --names")
    with (desk.folder / "answers.csv").open(encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file))
    verified = desk.types(f"stacksl ledger verify {RUN}")
    replayed = desk.types(f"stacksl ledger replay {RUN}")
    desk.says(WORDS["counts"].format(**_counts(answers, verified, replayed)))
    desk.says(WORDS["forget"])
    trained = next(row["item"] for row in answers if row["purpose"] == "train")
    desk.types(f"stacksl forget {RUN} --id {trained}")
    desk.says(WORDS["forgotten"])
    desk.types(f"stacksl resume {RUN}")
    desk.says(WORDS["remade"])
    desk.types(f"stacksl ledger verify {RUN}")
    desk.types(f"stacksl ledger replay {RUN}")


def _counts(answers: list[dict[str, str]], verified: str, replayed: str) -> dict[str, int]:
    """What the ledger's two commands count, and the answers that this comes to."""
    [rows] = re.findall(r"whole: ([\d,]+) rows", verified)
    played = dict(re.findall(r"^(.+?)  +([\d,]+)$", replayed, re.MULTILINE))
    found = {name: int(value.replace(",", "")) for name, value in played.items()}
    owned = sum(row["purpose"] == "owned" for row in answers)
    audit = sum(row["purpose"] == "audit" for row in answers)
    train = [row["item"] for row in answers if row["purpose"] == "train"]
    second = len(train) - len(set(train))
    return {
        "rows": int(rows.replace(",", "")),
        "played": found["Rows played again"],
        "rounds": found["Rounds"],
        "learned": found["Labels learned"],
        "refits": found["Rows played again"] - found["Rounds"] - found["Labels learned"],
        "paid": len(answers) - owned,
        "audit": audit,
        "second": second,
        "named": found["Labels learned"] - owned,
        "without": found["Rounds"] + owned - found["Labels learned"],
        "owned": owned,
    }


def _named(printed: str) -> list[Path]:
    """The sheets that a command has named as those that wait."""
    return [Path(path) for path in re.findall(r"^[\d,]+ rows? in +(\S+)$", printed, re.MULTILINE)]


def _typed(desk: Desk, sheets: list[Path]) -> str:
    """The sheets as one would type them."""
    return shlex.join(
        str(each.relative_to(desk.folder) if each.is_absolute() else each) for each in sheets
    )
