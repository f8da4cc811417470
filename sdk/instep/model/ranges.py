"""A set of message numbers kept as ranges: as large as its gaps, however many numbers it holds.

The ranges are two sorted lists of first and last numbers. A lookup is a bisection, O(log g) with g
gaps. Opening or closing a gap also shifts the lists, a `memmove` of 8 bytes per gap. Adding the
number after the highest takes constant time, and so does every operation on a set without gaps.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from instep.errors import InstepError

__all__ = ["RangeMap", "Ranges", "RangesError"]

Value = TypeVar("Value")

_PART = re.compile(r"\s*([0-9]{1,20})\s*(?:-\s*([0-9]{1,20})\s*)?")
"""A number or a range of them; an unsignedLong has 20 digits."""


class RangesError(InstepError, ValueError):
    """A text that is not ranges of numbers, or a range that ends before it begins.

    `data["text"]` is the part at fault.
    """

    code = "ranges"


class Ranges(msgspec.Struct, array_like=True, gc=False):
    """A mutable set of integers ≥ 0. Equal when they hold the same numbers; never hashable.

    It is its own serialised form (two lists), and `copy` costs two list copies. `lows` and `highs`
    are for reading: no two ranges touch or overlap, and they rise.
    """

    lows: list[int] = []
    highs: list[int] = []

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> Ranges:
        """The union of ranges `(low, high)`, both ends included, in any order."""
        ranges = cls()
        for low, high in pairs:
            ranges.add_range(low, high)
        return ranges

    @classmethod
    def of_numbers(cls, numbers: Iterable[int]) -> Ranges:
        """The set of these numbers, in any order."""
        ranges = cls()
        ranges.add_sorted(sorted(set(numbers)))
        return ranges

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """The inverse of `str`: "1-7,10"; empty for an empty text. Blanks and any order are
        allowed. Raises `RangesError`.
        """
        ranges = cls()
        for part in text.split(",") if text.strip() else ():
            match = _PART.fullmatch(part)
            if match is None:
                raise RangesError(
                    f"{part[:60]!r} is not a number or a range of numbers",
                    where="message ranges",
                    hint="write them as in 1-7,10",
                    text=part,
                )
            ranges.add_range(int(match[1]), int(match[2] or match[1]))
        return ranges

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.pairs())

    def __repr__(self) -> str:
        return f"<Ranges {self}>" if len(self.lows) <= 20 else f"<Ranges {len(self.lows)} ranges>"

    def __bool__(self) -> bool:
        return bool(self.lows)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.lows, number) - 1
        return at >= 0 and number <= self.highs[at]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers in ascending order. A sender controls how wide a range is: bound
        what you read.
        """
        for low, high in self.pairs():
            # A `range` object holds its ends only, whatever the width.
            yield from range(low, high + 1)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The ranges `(low, high)`, rising, both ends included."""
        return zip(self.lows, self.highs, strict=True)

    def count(self) -> int:
        """How many numbers; not `len`, which cannot count past 2^63."""
        return sum(self.highs) - sum(self.lows) + len(self.lows)

    @property
    def first(self) -> int | None:
        """The lowest number in it; None where there is none."""
        return self.lows[0] if self.lows else None

    @property
    def last(self) -> int | None:
        """The highest number in it; None where there is none."""
        return self.highs[-1] if self.highs else None

    def end_of(self, number: int) -> int:
        """The first number from `number` on that is not in the set."""
        at = bisect_right(self.lows, number) - 1
        return max(number, self.highs[at] + 1) if at >= 0 else number

    def next_member(self, number: int) -> int | None:
        """The first number from `number` on that is in the set; None when there is none."""
        at = bisect_left(self.highs, number)
        return max(number, self.lows[at]) if at < len(self.lows) else None

    def gaps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The ranges of `low`…`high` that are not in the set, rising."""
        at = bisect_left(self.highs, low)
        while low <= high:
            if at == len(self.lows) or self.lows[at] > high:
                yield low, high
                return
            if low < self.lows[at]:
                yield low, self.lows[at] - 1
            low = self.highs[at] + 1
            at += 1

    def copy(self) -> Ranges:
        """The same ranges, which change independently."""
        return Ranges(self.lows.copy(), self.highs.copy())

    def add(self, number: int) -> None:
        """Add one number. In constant time for the one after the highest."""
        highs = self.highs
        if highs and number == highs[-1] + 1:
            highs[-1] = number
        else:
            self.add_range(number, number)

    def add_sorted(self, numbers: list[int]) -> None:
        """Add rising numbers; the ones that follow each other cost one step together."""
        if not numbers:
            return
        lows, highs = self.lows, self.highs
        low = high = numbers[0]
        if numbers[-1] - low == len(numbers) - 1:
            if highs and low == highs[-1] + 1:
                highs[-1] = numbers[-1]
            else:
                self.add_range(low, numbers[-1])
            return
        _check(low, numbers[-1])
        for number in (*numbers, numbers[-1] + 2):
            if number <= high + 1:
                high = number
                continue
            at = bisect_left(highs, low - 1)
            if at == len(highs) or high + 1 < lows[at]:
                # It usually touches no other range.
                lows.insert(at, low)
                highs.insert(at, high)
            else:
                self.add_range(low, high)
            low = high = number

    def add_range(self, low: int, high: int) -> None:
        """Add `low`…`high`, both included. Raises `RangesError`, and then nothing is added."""
        _check(low, high)
        lows, highs = self.lows, self.highs
        if highs and low == highs[-1] + 1:
            highs[-1] = high
            return
        # What overlaps or touches becomes one range.
        start = bisect_left(highs, low - 1)
        stop = bisect_right(lows, high + 1)
        if start < stop:
            low = min(low, lows[start])
            high = max(high, highs[stop - 1])
        lows[start:stop] = (low,)
        highs[start:stop] = (high,)

    def remove(self, low: int, high: int) -> None:
        """Remove `low`…`high`, both included, as far as they are there. Raises `RangesError`."""
        _check(low, high)
        lows, highs = self.lows, self.highs
        start = bisect_left(highs, low)
        stop = bisect_right(lows, high)
        if start >= stop:
            return
        left = (lows[start], low - 1) if lows[start] < low else None
        right = (high + 1, highs[stop - 1]) if highs[stop - 1] > high else None
        rest = [pair for pair in (left, right) if pair]
        lows[start:stop] = [pair[0] for pair in rest]
        highs[start:stop] = [pair[1] for pair in rest]

    def update(self, other: Ranges) -> None:
        """Add every number of the other."""
        for low, high in other.pairs():
            self.add_range(low, high)

    def subtract(self, other: Ranges) -> None:
        """Remove every number of the other."""
        if not self.lows:
            return
        for low, high in other.pairs():
            self.remove(low, high)

    def __or__(self, other: Ranges) -> Ranges:
        union = self.copy()
        union.update(other)
        return union

    def __sub__(self, other: Ranges) -> Ranges:
        difference = self.copy()
        difference.subtract(other)
        return difference


class RangeMap(msgspec.Struct, Generic[Value], array_like=True, gc=False):
    """A mutable map from integers ≥ 0 to values, kept as ranges of one value each.

    Its own serialised form: three lists. `lows`, `highs` and `values` are for reading: the ranges
    rise and do not overlap, and none touches one of the same value.
    """

    lows: list[int] = []
    highs: list[int] = []
    values: list[Value] = []

    def __str__(self) -> str:
        """As in "2-3 (expired),5 (failed)"."""
        return ",".join(
            f"{low} ({value!s})" if low == high else f"{low}-{high} ({value!s})"
            for low, high, value in self.items()
        )

    def __bool__(self) -> bool:
        return bool(self.lows)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def get(self, number: int) -> Value | None:
        """The value of a number; None where it has none."""
        at = bisect_right(self.lows, number) - 1
        return self.values[at] if at >= 0 and number <= self.highs[at] else None

    def items(self) -> Iterator[tuple[int, int, Value]]:
        """The ranges `(low, high, value)`, rising, both ends included."""
        return zip(self.lows, self.highs, self.values, strict=True)

    def ranges(self) -> Ranges:
        """The numbers that have a value."""
        ranges = Ranges()
        for low, high in zip(self.lows, self.highs, strict=True):
            ranges.add_range(low, high)
        return ranges

    def copy(self) -> RangeMap[Value]:
        """The same map, which changes independently."""
        return RangeMap(self.lows.copy(), self.highs.copy(), self.values.copy())

    def set_range(self, low: int, high: int, value: Value) -> None:
        """Give `low`…`high` a value, whatever they had. Raises `RangesError`."""
        self.remove(low, high)
        lows, highs, values = self.lows, self.highs, self.values
        start = stop = bisect_left(lows, low)
        if start and highs[start - 1] == low - 1 and values[start - 1] == value:
            start -= 1
            low = lows[start]
        if stop < len(lows) and lows[stop] == high + 1 and values[stop] == value:
            high = highs[stop]
            stop += 1
        lows[start:stop] = (low,)
        highs[start:stop] = (high,)
        values[start:stop] = (value,)

    def remove(self, low: int, high: int) -> None:
        """Take the value of `low`…`high` away, as far as they have one. Raises `RangesError`."""
        _check(low, high)
        lows, highs, values = self.lows, self.highs, self.values
        start = bisect_left(highs, low)
        stop = bisect_right(lows, high)
        if start >= stop:
            return
        rest = []
        if lows[start] < low:
            rest.append((lows[start], low - 1, values[start]))
        if highs[stop - 1] > high:
            rest.append((high + 1, highs[stop - 1], values[stop - 1]))
        lows[start:stop] = [one[0] for one in rest]
        highs[start:stop] = [one[1] for one in rest]
        values[start:stop] = [one[2] for one in rest]

    def subtract(self, numbers: Ranges) -> None:
        """Take the value of these numbers away."""
        for low, high in numbers.pairs() if self.lows else ():
            self.remove(low, high)


def _check(low: int, high: int) -> None:
    if not 0 <= low <= high:
        raise RangesError(
            f"{low}-{high} is not a range of message numbers",
            where="message ranges",
            hint="a range has its lower end first, and no number is negative",
            text=f"{low}-{high}",
        )
