"""How often does a run move from one file of the package to another?

Who follows a call into another file has to open that file. `stacksl run` is played on the training
rows of Banking77 with 100 labels and hashing features, in a temporary folder; with `--answer`,
`stacksl answer` with 25 answers in a run of the first 600 of these rows without their labels. A
call is a `call` event of `sys.setprofile` in a file of the package, module bodies not counted. A
move is a call whose file is not that of the nearest calling frame of the package.

    STACKSL_DATA=DIR python benchmarks/moves.py [--answer] [SOURCE]

SOURCE is the folder that holds the package, `src` of this tree unless another is named. A run takes
some ten times its usual time here.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import threading
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

LABELS, SHEET = 100, 25
OWN = Path(__file__).resolve().parents[1] / "src"


class Moves:
    """Counts the calls of functions whose code lies in a folder.

    Attributes:
        calls: how many.
        between: how many of them came from another file of the folder, by (file, function) called.
        entered: the files in which a function was called.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}{os.sep}"
        self.calls = 0
        self.between: Counter[tuple[str, str]] = Counter()
        self.entered: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        code = frame.f_code
        file = code.co_filename
        if event != "call" or code.co_name == "<module>" or not file.startswith(self._folder):
            return
        self.calls += 1
        self.entered.add(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._folder):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != file:
            self.between[file.removeprefix(self._folder), code.co_qualname] += 1


def played(moves: Moves, words: list[str]) -> None:
    """Count the moves of one command."""
    from stacksl.cli.entry import call

    threading.setprofile(moves)
    sys.setprofile(moves)
    try:
        code = call(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as documented
    if code:
        raise SystemExit(code)


def run(moves: Moves, data: Path, folder: Path) -> int:
    """Play a run; the number of its items."""
    words = ["run", str(data), "--budget", str(LABELS), "--features", "hashing", "--quiet"]
    played(moves, [*words, "--out", str(folder / "run")])
    with data.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def answer(moves: Moves, data: Path, folder: Path) -> int:
    """Return the first sheet of a run that people answer; the number of its answers."""
    from stacksl.cli.entry import call

    with data.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts, classes = folder / "texts.csv", folder / "classes.txt"
    classes.write_text("\n".join(sorted({row["category"] for row in rows})), encoding="utf-8")
    with texts.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([row["text"]] for row in rows[:600])])
    words = ["run", str(texts), "--classes", str(classes), "--features", "hashing", "--audit", "0"]
    words += [
        "--labeler",
        "file",
        "--sheets",
        "csv",
        "--open-questions",
        str(SHEET),
        "--budget",
        "100",
    ]
    call([*words, "--quiet", "--out", str(folder / "run")])
    (sheet,) = (folder / "run" / "ask").glob("0*.csv")
    known = {row["text"].strip(): row["category"] for row in rows}
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        asked = list(csv.DictReader(file))
    for row in asked:
        row["answer"] = known[row["prompt"].strip()]
    filled = folder / "filled.csv"
    with filled.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, asked[0])
        writer.writeheader()
        writer.writerows(asked)
    played(moves, ["answer", str(folder / "run"), str(filled), "--quiet"])
    return len(asked)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, nargs="?", default=OWN)
    parser.add_argument("--most", type=int, default=0, help="list the functions most moved to")
    parser.add_argument("--answer", action="store_true", help="count those of a returned sheet")
    asked = parser.parse_args()
    source = asked.source.resolve()
    sys.path.insert(0, str(source))
    moves = Moves(source / "stacksl")
    data = Path(os.environ["STACKSL_DATA"]) / "banking77" / "train.csv"
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        count = (answer if asked.answer else run)(moves, data, Path(folder))
    total = moves.between.total()
    print(f"moves           {total:,}")
    print(f"{'moves a label' if asked.answer else 'moves per item':<16}{total / count:.1f}")
    print(f"calls           {moves.calls:,}")
    print(f"files entered   {len(moves.entered)}")
    for (file, name), count in moves.between.most_common(asked.most):
        print(f"{count:>9,}  {file} {name}")


if __name__ == "__main__":
    main()
