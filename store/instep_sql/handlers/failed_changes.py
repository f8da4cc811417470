"""What is kept of handlers: how far they have come, and the changes that they have failed at."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.entities import Change

__all__ = ["FailedChange", "HandlerStatus", "drop", "failed_changes", "retry", "statuses"]

_STATUSES: Final = text("""
    SELECT h.name, s.consumer, s.stream, h.cursor, h.attempts, h.error, h.missed, h.updated_at_us,
           (SELECT count(*) FROM instep_failed_change AS f
            WHERE f.name = h.name AND f.stream_no = h.stream_no) AS failed,
           (SELECT count(*) FROM instep_failed_change AS f
            WHERE f.name = h.name AND f.stream_no = h.stream_no AND f.blocks = 1) AS blocking
    FROM instep_handler AS h JOIN instep_stream AS s ON s.id = h.stream_no
    ORDER BY h.name, s.consumer, s.stream
""")
_FAILED: Final = text("""
    SELECT id, name, blocks, reason, failed_at_us, change FROM instep_failed_change
    WHERE id > :after ORDER BY id LIMIT :limit
""")
_WAKE: Final = text("""
    UPDATE instep_handler SET retry_at_us = 0, error = ''
    WHERE (name, stream_no) IN (SELECT name, stream_no FROM instep_failed_change WHERE id = :id)
""")
_RETRY: Final = text("UPDATE instep_failed_change SET again = 1 WHERE id = :id")
_DROP: Final = text("DELETE FROM instep_failed_change WHERE id = :id")

_decode: Final = msgspec.json.Decoder(Change).decode


class HandlerStatus(msgspec.Struct, frozen=True):
    """How far a handler has come with one stream."""

    name: str
    consumer: str
    stream: str
    cursor: int
    """Up to this change all was handled, or has failed."""
    attempts: int
    """How often it has failed at the next change."""
    error: str
    """Why; empty: it has not."""
    missed: str
    """Which changes the journal has trimmed before it could be given them; empty: none."""
    updated_at_us: int
    failed: int = 0
    """Changes that it was given in vain, and that are kept …"""
    blocked: bool = False
    """… and whether it gets nothing more of the stream because of one of them."""


class FailedChange(msgspec.Struct, frozen=True):
    """A change that a handler could not handle."""

    id: int
    handler: str
    blocks: bool
    """Whether the handler gets nothing more of the stream until it is tried again, or dropped."""
    reason: str
    failed_at_us: int
    change: Change


def statuses(connection: Connection) -> list[HandlerStatus]:
    """How far all handlers have come."""
    found = connection.execute(_STATUSES).all()
    return [
        HandlerStatus(
            name=row.name,
            consumer=row.consumer,
            stream=row.stream,
            cursor=row.cursor,
            attempts=row.attempts,
            error=row.error,
            missed=row.missed,
            updated_at_us=row.updated_at_us,
            failed=row.failed,
            blocked=bool(row.blocking),
        )
        for row in found
    ]


def failed_changes(connection: Connection, after: int, limit: int) -> list[FailedChange]:
    """The failed changes after this id, the oldest first."""
    rows = connection.execute(_FAILED, {"after": after, "limit": limit})
    return [
        FailedChange(id, name, bool(blocks), reason, at_us, _decode(bytes(change)))
        for id, name, blocks, reason, at_us, change in rows
    ]


def retry(connection: Connection, id: int) -> bool:
    """Let the handler try a failed change again; False: there is no such one."""
    return bool(connection.execute(_RETRY, {"id": id}).rowcount)


def drop(connection: Connection, id: int) -> bool:
    """Forget a failed change; False: there is no such one."""
    connection.execute(_WAKE, {"id": id})
    return bool(connection.execute(_DROP, {"id": id}).rowcount)
