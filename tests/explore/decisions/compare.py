"""What a comparison of a decision with a plain reference needs: all small inputs, and the first
that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from tests.explore.search import Violation

__all__ = ["every", "same", "sequences"]


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
