"""`python -m stacksl_lab DIR`: writes the tables in DIR/*.md from the records in DIR/results.

A record is what `stacksl reproduce STUDY --json` prints, kept as `results/NAME.json`; its table
is in a page between `<!-- study: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stacksl_lab.pages import refreshed
from stacksl_lab.study.records import read_records


def main(folder: Path) -> None:
    """Write every page of `folder` that is not up to date."""
    records = read_records(folder / "results")
    for page in sorted(folder.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = refreshed(before, records)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
