"""The part of a sink that an audit needs (TR-548 ST-2.3; A12): marks, kept and compared in the
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
        """The durable position of the main stream."""
        ...

    async def mark(self, records: Sequence[Record]) -> None:
        """Keep what the log states last of each entity, and what a GET shows (without token) of
        those of which it states nothing; renewing a mark clears its suspicion.
        """
        ...

    async def suspect(self) -> Position:
        """Mark entities that differ as suspect, except where the main stream has not reached the
        mark; returns the position of the main stream in the same transaction.
        """
        ...

    async def judge(self, *, bogus: bool) -> int:
        """Mark suspects that have not changed since as proven; returns how many were not proven.

        `bogus`: whether an entity that was never marked may be found bogus.
        """
        ...

    async def repair(self, position: Position) -> int:
        """Commit the proven findings (A3) and write them to the journal, as long as the stream is
        in the attempt of this position; returns how many entities were repaired.
        """
        ...

    async def attest(self, position: Position) -> bool:
        """Record that the audit proves each entity that the attempt of this position has met, where
        it found each of them right or has repaired it (A22); returns whether it does.
        """
        ...

    async def counts(self) -> Counts:
        """How many entities were found right, and how many wrong, by kind of finding."""
        ...

    def findings(self) -> AsyncIterator[Finding]:
        """The proven findings, read in pages: memory does not grow with their number."""
        ...
