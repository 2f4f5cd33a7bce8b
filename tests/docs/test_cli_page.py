"""The options on docs/cli.md are those of the command line."""

from __future__ import annotations

import importlib.util

from .pages_cases import PAGES, ROOT


def test_the_options_are_those_of_the_command_line() -> None:
    spec = importlib.util.spec_from_file_location("cli_page", ROOT / "scripts" / "cli_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = PAGES["docs/cli.md"]
    assert "| `--budget B` |" in page
    assert script.refreshed(page) == page, "run python scripts/cli_page.py"
