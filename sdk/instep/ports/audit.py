"""What an audit asks of a sink (TR-548 ST-2.3; A12): marks that are kept and compared in the
store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from instep.alignment.audit import Counts, Finding
from instep.model.position import Position
from instep.model.records import Record

__all__ = ["AuditMarks"]


class AuditMarks(Protocol):
    """The marks of one audit in the store, made by `Sink.audit`.

    The marks are the audit's own: nothing of the stream changes but by `repair`. Every method is
    one transaction, raises `SinkError`, and when cancelled is done whole or not at all.
    """

    async def position(self) -> Position:
        """Where the main stream stands, as durable now."""
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
        """Commit what is proven, by rule A3, and write it to the journal, as long as the stream is
        in the attempt of this position; returns how many entities were repaired.
        """
        ...

    async def counts(self) -> Counts:
        """How many entities were found right, and how many wrong in which way."""
        ...

    def findings(self) -> AsyncIterator[Finding]:
        """What is proven, in pages: memory does not grow with it."""
        ...
