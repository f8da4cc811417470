"""What a comparison of a decision with a plain reference needs: all small inputs, and the first
that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

from instep.model.columns import HeaderArrays, RecordColumns
from instep.model.records import RecordHeader
from tests.explore.search import Violation

__all__ = ["columns", "every", "same", "sequences"]


def every(**values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Every combination of these values, by name."""
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def sequences(steps: Iterable[Any], longest: int) -> Iterator[tuple[Any, ...]]:
    """Every sequence of these steps, the shortest first."""
    known = list(steps)
    for length in range(1, longest + 1):
        yield from product(known, repeat=length)


def same(found: object, expected: object, *given: object) -> None:
    """Raises `Violation` where a decision is not that of the reference."""
    if found != expected:
        raise Violation(f"{given}: {found}, expected: {expected}")


def columns(records: Sequence[RecordHeader]) -> Sequence[RecordHeader] | None:
    """The records in columns; None where they are not in order."""
    for one, other in pairwise(records):
        behind = other.offset > one.offset and other.appended_at_us >= one.appended_at_us
        if other.partition != one.partition or not behind:
            return None
    if records[0].offset < 0:
        return None
    headers = HeaderArrays(
        "s",
        records[0].partition,
        [one.key for one in records],
        [one.offset for one in records],
        [one.appended_at_us for one in records],
        [one.kind for one in records],
        [one.token for one in records],
    )
    texts, none = [b""] * len(records), [""] * len(records)
    return RecordColumns(headers, none, texts, texts, None, none, whole=True)
