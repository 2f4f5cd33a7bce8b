"""The label budget: what a user may write, and how many labels and how much money that is."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise

from stacksl.errors import SettingsError
from stacksl.report.wording import MICRO, money

WIDEST = 15  # digits before or after the point of a number that can be meant
MANY = 10**WIDEST  # items, more than any file has

FORMS = "a fraction such as 0.1 or 10%, a count from 2, money such as '$40' with a price, or 'all'"


@dataclass(frozen=True, slots=True)
class Budget:
    """A hard limit: `labels`, and `money` in micro-units where a price is known (else None).

    `price` is the most that one label may cost. Of the labels so many belong to each audit in
    `audits`, where a new one is drawn once the last result was shown, and `further` are kept for
    second looks at audits.
    """

    labels: int
    money: int | None
    price: int
    audits: tuple[int, ...] = (0,)
    further: int = 0

    @property
    def train(self) -> int:
        """The labels that train: all but those of audits and of second looks."""
        return self.labels - sum(self.audits) - self.further

    @property
    def newest_audit(self) -> int:
        """The labels of the newest audit that has any; 0 without one."""
        return next((size for size in reversed(self.audits) if size), 0)

    @property
    def as_setting(self) -> tuple[int, int | None, tuple[int, ...], int]:
        """The budget as the run's settings keep it, where its price has a name of its own."""
        return self.labels, self.money, self.audits, self.further

    @property
    def cost(self) -> int | None:
        """What all labels cost, in micro-units; None without a price."""
        return self.labels * self.price if self.money is not None else None

    def cost_of(self, labels: int) -> str:
        """The words on what so many labels cost, after their number; empty without a price."""
        return f" for {money(labels * self.price)}" if self.money is not None and self.price else ""


def micro_units(amount: Decimal | float | str) -> int:
    """`amount` of money as integer micro-units.

    Raises:
        SettingsError: if it is not a number of at least 0 with at most six decimals.
    """
    value = _decimal(str(amount), f"a price must be a number such as 2.50, not '{amount}'")
    if value < 0:
        raise SettingsError(f"a price must be at least 0, not '{amount}'")
    if (value * MICRO) % 1:
        raise SettingsError(f"a price has six decimals at most, got '{amount}': round it")
    return int(value * MICRO)


def parse_budget(
    budget: str | float, items: int, price: Decimal | float | str | None, *, per_item: int = 1
) -> Budget:
    """The `budget` that was given, in labels and money, for a run over `items` usable items.

    Below 1 it is a fraction of the items (decimal arithmetic, rounded down), 100% or ``all`` every
    label, an integer from 2 a count, and ``$40`` money, which needs a `price` per label. A
    count or money may buy `per_item` labels of an item.

    Raises:
        SettingsError: for anything else, a fraction that comes to no label, or more labels than
            items; the message says what would work.

    >>> parse_budget("0.1", 2001, None).labels, parse_budget("all", 9, None).labels
    (200, 9)
    """
    label_price = 0 if price is None else micro_units(price)
    text = str(budget).strip()
    if re.fullmatch(r"\$?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    if not items and text.lower() != "all":
        raise SettingsError(
            "no item is left to buy a label of, as you own labels of all: give the budget 'all' to"
            " train on these alone, or further items"
        )
    if text.startswith("$"):
        return _money_budget(text, items * per_item, price, label_price)
    labels = _labels(text, items, per_item)
    return Budget(labels, None if price is None else labels * label_price, label_price)


def raised_budget(text: str, labels: int, money: int | None) -> str:
    """The budget in all: `text`, or with a plus so much more than `labels` or micro-units."""
    if not text.strip().startswith("+"):
        return text
    amount = text.strip()[1:]
    fault = (
        "a budget with a plus must be a number of labels to add, or money if the run has a price,"
        f" such as +100 or +'$300', not '{text}'"
    )
    value, paid = _decimal(amount.removeprefix("$"), fault), amount.startswith("$")
    if value <= 0 or (value % 1 and not paid) or (paid and money is None):
        raise SettingsError(fault)
    return f"${Decimal(money or 0) / MICRO + value:f}" if paid else str(labels + int(value))


def stop_rule(text: str | None) -> tuple[str, float, int]:
    """When a run stops: by a `gain` of so many labels, an `accuracy` or a `time` in seconds.

    Raises:
        SettingsError: `text` is no such rule.

    >>> stop_rule("gain=0.01/100"), stop_rule("accuracy=0.9"), stop_rule("time=1.5h")
    (('gain', 0.01, 100), ('accuracy', 0.9, 0), ('time', 5400.0, 0))
    """
    if text is None:
        return "", 0.0, 0
    name, _, value = text.partition("=")
    number, _, labels = value.partition("/")
    with suppress(ValueError, KeyError):
        match name.strip():
            case "gain" if 0 < float(number) < 1 and int(labels) >= 1:
                return "gain", float(number), int(labels)
            case "accuracy" | "right" if 0 < _share(value) < 1:
                return name.strip(), _share(value), 0
            case "time":
                seconds = float(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1:]]
                if 0 < seconds < math.inf:
                    return "time", seconds, 0
    if re.fullmatch(r"\s*(accuracy|right)\s*=\s*[1-9]\d(\.\d+)?\s*", text):
        raise SettingsError(f"stop_when takes a share: say '{text.strip()}%', got '{text}'")
    raise SettingsError(
        "stop_when must be gain=G/N such as gain=0.01/100 (stop when the next 100 labels gain less"
        " than one point), accuracy=A such as accuracy=0.9, right=R such as right=97% (that"
        " share of the table's rows is right), or a time such as time=90s, time=30m or time=2h,"
        f" got '{text}'"
    )


def _share(text: str) -> float:
    number = text.strip()
    return float(number[:-1]) / 100 if number.endswith("%") else float(number)


def right_share(text: str) -> float:
    """The share of right labels that `text` means, such as 95% or 0.95.

    Raises:
        SettingsError: it is no share.
    """
    with suppress(ValueError):
        if 0 < (share := _share(text)) <= 0.99:
            return share
    raise SettingsError(f"expected a share of at most 99% such as --right 95%, got '{text}'")


def refit_shares(text: str) -> tuple[float, ...]:
    """The shares of the budget that `text` lists, rising.

    Raises:
        SettingsError: it is no such list.

    >>> refit_shares("0.25, 1")
    (0.25, 1.0)
    """
    with suppress(ValueError):
        shares = tuple(float(share) for share in text.split(","))
        if shares[0] > 0 and shares[-1] <= 1 and all(a < b for a, b in pairwise(shares)):
            return shares
    raise SettingsError(
        "lm.refit_at should be shares of the budget above 0 and up to 1, rising, with commas"
        f" between, such as 0.25,1, not '{text}'"
    )


def due_at(refit_at: str, budget: int) -> tuple[int, ...]:
    """The numbers of labels learned at which a refit is due.

    >>> due_at("0.05,0.1,0.25,0.5,1", 40)
    (2, 4, 10, 20, 40)
    """
    counts = {max(1, math.ceil(round(share * budget, 9))) for share in refit_shares(refit_at)}
    return tuple(sorted(counts))


def _labels(text: str, items: int, per_item: int) -> int:
    if text.lower() == "all":
        return items
    fault = f"the budget must be {FORMS}, not '{text}'"
    percent = text.endswith("%")
    value = _decimal(text.removesuffix("%"), fault)
    if percent:
        value /= 100
    if value <= 0:
        raise SettingsError(f"the budget must be above 0, got '{text}': give {FORMS}")
    if value < 1:
        if labels := math.floor(Fraction(value) * items):
            return labels
        smallest = math.ceil(Decimal(1_000_000) / items) / 1_000_000
        raise SettingsError(
            f"the budget '{text}' of {items} items comes to 0 labels:"
            f" the smallest fraction that works is {smallest:g}"
        )
    if percent and value == 1:
        return items
    if value == 1:
        raise SettingsError(
            f"the budget {text} may mean one label or all of them: give 'all', or a count from 2"
        )
    if percent or value != value.to_integral_value():
        raise SettingsError(fault)
    if value > items * per_item:
        limit = f"the {items} usable items"
        if per_item != 1:
            limit = f"{per_item} for each of {items} items"
        raise SettingsError(
            f"the budget of {text} labels is above {limit}: give at most {items * per_item},"
            " or 'all'"
        )
    return int(value)


def _money_budget(text: str, items: int, price: object, label_price: int) -> Budget:
    if price is None:
        raise SettingsError(f"the budget '{text}' is money and needs --price, the cost of a label")
    if label_price == 0:
        raise SettingsError(f"the budget '{text}' is money, so --price must be above 0")
    value = _decimal(text[1:], f"the budget must be {FORMS}, not '{text}'")
    micro = int(value * MICRO)
    labels = min(micro // label_price, items)
    if labels <= 0:
        raise SettingsError(
            f"the budget '{text}' buys no label at {money(label_price)} each: give at least"
            f" {money(label_price)}"
        )
    return Budget(labels, micro, label_price)


def _decimal(text: str, fault: str) -> Decimal:
    try:
        value = Decimal(text.strip().replace("_", ""))
    except InvalidOperation:
        raise SettingsError(fault) from None
    if "+" in text or not value.is_finite() or abs(value.adjusted()) > WIDEST:
        raise SettingsError(fault)
    return value
