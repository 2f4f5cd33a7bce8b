"""Take the pictures of `docs/images`: the report, and the page of annotators and of the owner.

    python scripts/pictures.py --data $STACKSL_DATA/banking77 --out docs/images

It needs Chromium (the command `chromium`, or the path in `CHROMIUM`), playwright, and the extra
`label`. The report is that of the built-in sample. On the page three clients answer questions of
Banking77 by their labels, with a mistake in about one of ten, and give 48 answers.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GUIDELINES = """Choose what the customer wants, not what went wrong.

1. There is one class for each question. If two fit, take the more specific one.
2. "declined card payment" is for payments in shops and online. A machine
that gives no cash is "declined cash withdrawal".
3. A question about the time that a transfer takes is "transfer timing".

Ask Olga if a class is missing."""
PEOPLE = ("anna", "ben", "carla")
STACKSL = (sys.executable, "-m", "stacksl")
PROMPT = "article:not([hidden]) .prompt"
ARGUMENTS = ("--no-sandbox", "--disable-gpu")


def reports(chromium: Any, out: Path) -> None:
    """The report of the sample, on a wide screen in light colors and on a phone in dark ones."""
    with tempfile.TemporaryDirectory() as folder:
        words = "run --budget 500 --price 0.50 --audit 200 --seed 0 --out topics --yes --quiet"
        subprocess.run([*STACKSL, *words.split()], cwd=folder, check=True, capture_output=True)
        for name, size, scheme in (
            ("report", (1400, 1680), "light"),
            ("report-phone", (390, 1700), "dark"),
        ):
            page = _page(chromium, *size, scheme)
            page.goto((Path(folder) / "topics/report.html").as_uri())
            page.screenshot(path=out / f"{name}.png")


def pages(chromium: Any, data: Path, out: Path) -> None:
    """A question as an annotator sees it, and the page of the owner, after 48 answers."""
    with tempfile.TemporaryDirectory() as folder:
        known = _questions(data, Path(folder))
        (Path(folder) / "guidelines.txt").write_text(GUIDELINES, encoding="utf-8")
        run = (
            "run questions.csv --classes classes.txt --labeler file --budget 240 --price 0.25"
            f" --annotators {','.join(PEOPLE)} --overlap 60 --open-questions 24 --seed 0"
            " --features hashing --out bank-questions --yes --quiet"
        )
        subprocess.run([*STACKSL, *run.split()], cwd=folder, check=True, capture_output=True)
        served = subprocess.Popen(
            [*STACKSL, "label", "bank-questions", "--port", "0", "--guidelines", "guidelines.txt"],
            cwd=folder, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            links = _links(served)
            opened = {name: _page(chromium, 1280, 960, "light") for name in PEOPLE}
            for name, page in opened.items():
                page.goto(links[name])
            draw = random.Random(0)
            for turn in range(48):
                page = opened[PEOPLE[turn % len(PEOPLE)]]
                page.wait_for_selector(PROMPT)
                prompt = page.inner_text(PROMPT)
                said = known[" ".join(prompt.split())]
                if draw.random() < 0.1:
                    said = draw.choice(sorted(set(known.values())))
                page.locator("#filter").fill(said)
                page.keyboard.press("Enter")
                page.wait_for_timeout(2000)  # a person takes longer
            opened["anna"].wait_for_timeout(6000)  # for news of the last answers
            opened["anna"].locator("#filter").fill("transf")
            opened["anna"].screenshot(path=out / "label.png")
            owner = _page(chromium, 1280, 1040, "light")
            owner.goto(links["(owner)"])
            owner.wait_for_timeout(6000)
            owner.screenshot(path=out / "label-owner.png")
        finally:
            served.terminate()
            served.wait()


def _questions(data: Path, folder: Path) -> dict[str, str]:
    """Write 2,000 questions without labels and their classes; the class by question."""
    with (data / "train.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"].replace("_", " ")) for row in csv.DictReader(file)]
    random.Random(0).shuffle(rows)
    with (folder / "questions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text, _ in rows[:2000])])
    names = sorted({name for _, name in rows})
    (folder / "classes.txt").write_text("\n".join(names), encoding="utf-8")
    return {" ".join(text.split()): name for text, name in rows}


def _links(served: subprocess.Popen[str]) -> dict[str, str]:
    """The links that the command prints, by whose they are."""
    found: dict[str, str] = {}
    assert served.stderr is not None
    for line in served.stderr:
        if match := re.match(r"(.*?)\s+(http://\S+)$", line.strip()):
            found[match[1].strip().lower()] = match[2]
        if "Ctrl-C" in line:
            return found
    raise SystemExit("the page did not start")


def _page(chromium: Any, width: int, height: int, scheme: str) -> Any:
    size = {"width": width, "height": height}
    return chromium.new_context(viewport=size, color_scheme=scheme).new_page()


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of Banking77")
    parser.add_argument("--out", type=Path, required=True, help="where to write the pictures")
    given = parser.parse_args()
    with sync_playwright() as started:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        chromium = started.chromium.launch(executable_path=path, args=ARGUMENTS)
        reports(chromium, given.out)
        pages(chromium, given.data.resolve(), given.out)
        chromium.close()


if __name__ == "__main__":
    main()
