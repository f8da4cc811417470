"""What an audit asks of a sink (TR-548 ST-2.3; A12): marks that are kept and compared in the
store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from instep.alignment.audit import (
    Counts,
    Finding,
)
from instep.model.position import Position
from instep.model.records import Record
from instep.model.streams import StreamInfo

__all__ = ["AuditMarks", "SupportsAudit"]


class AuditMarks(Protocol):
    """The marks of one audit in the store. Raises `SinkError`."""

    async def position(self) -> Position:
        """Where the main stream stands."""
        ...

    async def mark(self, records: Sequence[Record]) -> None:
        """Keep what the log states last of each entity, and what a GET shows (without token) of
        those of which it states nothing; renewing a mark clears its suspicion.
        """
        ...

    async def suspect(self) -> Position:
        """Suspect what differs, except where the main stream has not come to the mark; returns
        where that stood, as of the same transaction.
        """
        ...

    async def judge(self, *, bogus: bool) -> int:
        """Call those suspects proven that are as they were; returns how many are not.

        `bogus`: whether an entity that was never marked may be called so.
        """
        ...

    async def repair(self, position: Position) -> int:
        """Commit what is proven by rule A3 and told to the journal, as long as the stream is in the
        attempt of this position; returns how many entities were repaired.
        """
        ...

    async def counts(self) -> Counts: ...

    def findings(self) -> AsyncIterator[Finding]:
        """What is proven, in pages: memory does not grow with it."""
        ...


@runtime_checkable
class SupportsAudit(Protocol):
    """A sink that can be audited."""

    def audit(self, stream: StreamInfo) -> AbstractAsyncContextManager[AuditMarks]:
        """Begin an audit; its marks are removed at the end. Raises `SinkError`."""
        ...
