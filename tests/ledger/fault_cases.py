"""What the tests of faults have in common: a full disk, a killed process, the state between."""

from __future__ import annotations

import subprocess
import sys


def state(ledger):
    sums = (
        ledger.accounts.asked,
        ledger.accounts.spent,
        ledger.accounts.spent_money,
        ledger.accounts.left,
        len(ledger.accounts.learned_labels),
    )
    return sums, ledger.open_purchases(), ledger.head, ledger.has_decision("q1"), ledger.export()


def fill(ledger, full=True):
    """Make SQLite itself report a full disk, or no longer."""
    raw = ledger._store.connection
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")


def kill_after(number, program, *words):
    """Run a program that prints rising numbers, and kill it when it has printed this one."""
    command = [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert any(int(line) == number for line in process.stdout), "it ended before"
        process.kill()
