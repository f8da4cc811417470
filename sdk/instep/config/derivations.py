"""Finds what can be derived, by the entry points of `instep.derivations`: ours and others'."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, TypeAlias

from instep.config.entry_points import broken
from instep.ports.derivation import EntityDerivation, ReadyTable, StatementDerivation
from instep.ports.lake import LakeDerivation

__all__ = ["Derived", "find_derivations", "ready_tables", "table_derivations"]

Derived: TypeAlias = StatementDerivation | EntityDerivation
_GROUP: Final = "instep.derivations"


@cache
def find_derivations() -> Mapping[str, Derived | ReadyTable | LakeDerivation]:
    """All of them by name, in one order. Raises `ConfigurationError` for one that cannot be
    imported.
    """
    found: dict[str, Derived | ReadyTable | LakeDerivation] = {}
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            named: Any = point.load()
        except Exception as error:  # a plug-in may fail in any way; the reason is shown
            raise broken(point, "derivation", "", error) from error
        found |= named if isinstance(named, Mapping) else {point.name: named}
    return found


def table_derivations() -> list[Derived]:
    """Those that derive tables by a function of their own."""
    return [one for one in find_derivations().values() if isinstance(one, Derived)]


def ready_tables() -> dict[str, ReadyTable]:
    """Those that only map members to columns, by name."""
    return {name: one for name, one in find_derivations().items() if isinstance(one, ReadyTable)}
