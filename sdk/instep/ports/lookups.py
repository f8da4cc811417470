"""The part of a sink that requests for single entities need (A12, A17): which entities are stored,
and how.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from instep.model.entities import StoredEntity

__all__ = ["EntityRows", "RowKey"]


class RowKey(NamedTuple):
    """One stored entity: where it stands in the order of the rows, and its key."""

    row: int
    key: str


class EntityRows(Protocol):
    """The stored entities of one stream, in an order that does not change. Reads only; each method
    is one transaction and raises `SinkError`.
    """

    async def page(
        self, classes: Collection[str], after: int, limit: int, *, unproven: bool = False
    ) -> Sequence[RowKey]:
        """Up to `limit` entities of these classes behind the row `after` (0: from the first);
        with `unproven`, of those that something unreadable may be about (A17).
        """
        ...

    async def count(self, classes: Collection[str] | None) -> int:
        """How many entities of these classes are stored; None: of all."""
        ...

    async def entity(self, key: str) -> StoredEntity | None:
        """The entity of this key, as it is stored now."""
        ...
