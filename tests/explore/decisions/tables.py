"""The decisions that are compared with a plain reference in every small case, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.explore.decisions import (
    absence,
    continuity,
    opening,
    sequences,
    sweeping,
    watching,
)

__all__ = ["DECISIONS"]

DECISIONS: Final[dict[str, Callable[[], int]]] = {
    f"{room.__name__.rpartition('.')[2]}: {name.replace('_', ' ')}": getattr(room, name)
    for room in (opening, continuity, absence, sweeping, watching, sequences)
    for name in room.__all__
}
"""Each compares all its cases, and returns how many. Raises `Violation` where one differs."""
