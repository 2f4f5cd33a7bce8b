"""The stop rule `accuracy=A`: looks at the audit of a run that goes on.

Buying pauses at each quarter of the labels to train on, until every answer is in. The model is then
refitted as it is at the end, and judged on the whole audit, where people answer after a second look
(`second_look`). If the lower bound of its accuracy reaches A, the run ends with that model; else it
continues to buy. Models learn only the labels to train on, so each model is as new to the audit as
the first, and the levels of all looks add up to .05 (`z_of_look`).
"""

from __future__ import annotations

from stacksl.ledger.accounts import Accounts
from stacksl.runs.settings.budget import accuracy_mark
from stacksl.runs.spec import RunSpec

LOOKS = 4  # in a budget: one for each quarter of its labels to train on
NEAR = 0.1  # how far below the mark an agreement may be that gets a second look


def look_due(spec: RunSpec, accounts: Accounts) -> bool:
    """Whether nothing is bought: a look is due, or the last one showed the accuracy wanted.

    One is due where a quarter more was asked for, or the model is another without a further label.
    """
    if accuracy_mark(spec.settings.stop_when) is None:
        return False
    asked, before, train = accounts.asked, accounts.looked_at, max(1, spec.terms.train)
    again = accounts.looks > 0 and accounts.reached is None and asked <= before
    return bool(accounts.reached) or again or LOOKS * asked // train > LOOKS * before // train
