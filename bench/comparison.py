"""Sums up the rounds of a scenario: the rates of floor and product, and their ratio."""

from __future__ import annotations

from statistics import median

import msgspec

__all__ = ["Measured", "Memory", "compared"]


class Measured(msgspec.Struct, frozen=True):
    """A scenario after all rounds. Rates are medians; the ratio is the median of the rounds'."""

    scenario: str
    text: str
    records: int
    rounds: int
    floor_records_per_s: int
    product_records_per_s: int
    ratio: float
    target: float
    met: bool


class Memory(msgspec.Struct, frozen=True):
    """Resident memory of the product over a long run. `first` is after a quarter of the records,
    when caches and queues are filled.
    """

    scenario: str
    text: str
    records: int
    records_per_s: int
    first_bytes: int
    last_bytes: int
    peak_bytes: int
    met: bool


def compared(
    scenario: str, text: str, records: int, rates: dict[str, list[float]], target: float
) -> Measured:
    """Sum up the rounds of a scenario; `rates` has the rates of floor and product, one of each a
    round.
    """
    pairs = zip(rates["product"], rates["floor"], strict=True)
    ratio = median(product / floor for product, floor in pairs)
    return Measured(
        scenario=scenario,
        text=text,
        records=records,
        rounds=len(rates["floor"]),
        floor_records_per_s=round(median(rates["floor"])),
        product_records_per_s=round(median(rates["product"])),
        ratio=round(ratio, 3),
        target=target,
        met=ratio >= target,
    )
