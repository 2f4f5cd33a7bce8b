"""The words written by hand in the documentation, per page and in all.

    python scripts/words.py

Pages are README.md, CONTRIBUTING.md and docs/**/*.md. A word is what stands between blanks and
has a letter or a digit. Not counted are docs/cli.md, comments, tables that a program writes
between `<!-- KIND: NAME -->` and `<!-- end -->`, and the output of commands in
docs/first-day.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GENERATED = re.compile(r"<!-- (?:study|table|benchmark): .+? -->\n.*?<!-- end -->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
OUTPUT = re.compile(r"^```text\n.*?^```$", re.DOTALL | re.MULTILINE)
LIMIT_OF_README = 900
LIMIT = 36_000


def words(text: str) -> int:
    """The words of a page that somebody wrote."""
    own = COMMENT.sub("", GENERATED.sub("", text))
    return sum(any(map(str.isalnum, word)) for word in own.split())


def pages(root: Path = ROOT) -> dict[str, int]:
    """The words of each page, by its path."""
    counts = {}
    for page in (root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))):
        name = page.relative_to(root).as_posix()
        text = page.read_text(encoding="utf-8")
        if name == "docs/first-day.md":
            text = OUTPUT.sub("", text)
        if name != "docs/cli.md":
            counts[name] = words(text)
    return counts


def main() -> None:
    """Print a line for each page, the longest first, and the sum."""
    counts = pages()
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:7,}  {name}")
    print(
        f"{sum(counts.values()):7,}  in all (at most {LIMIT:,}; README at most {LIMIT_OF_README})"
    )


if __name__ == "__main__":
    sys.exit(main())
