"""How long the rows of the tables of messages are kept: by number, by age and by bytes."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from instep.ports.message_store import MessageGroup
from instep_sql.engine.dialect import Dialect
from instep_sql.messages.inbox import count_messages
from instep_sql.options import SqlOptions

__all__ = ["Trimmer"]

_TRIM_RECORDS: Final = 1_000
ROW_BYTES: Final = 300
"""What a row of `instep_message` counts beside its body."""
_SIZE: Final = f"length(body) + coalesce(length(attachments), 0) + {ROW_BYTES}"
_COUNT_RECORDS: Final = 1_000
_COUNT_BYTES: Final = 64 << 20
"""After so many messages or bytes they are counted."""
_COUNTED: Final = "SELECT counted_to, size_bytes FROM instep_message_size {}"
_ADDED: Final = text(f"""
    SELECT max(id) AS last, coalesce(sum({_SIZE}), 0) AS size_bytes
    FROM instep_message WHERE id > :after
""")
_OLDEST: Final = text(f"""
    SELECT id, {_SIZE} FROM instep_message ORDER BY id LIMIT :limit
""")
_REMOVE: Final = text("DELETE FROM instep_message WHERE id <= :cut")
_SET_COUNTED: Final = text("UPDATE instep_message_size SET counted_to = :to, size_bytes = :size")


class Trimmer:
    """Removes rows over the retention: in each commit up to a limit above the number added."""

    def __init__(self, dialect: Dialect, options: SqlOptions) -> None:
        self._seen = _TableRetention(
            dialect,
            "instep_seen",
            "seen_at_us",
            options.dedup_max_records,
            options.dedup_retention_s,
        )
        self._replies = _TableRetention(
            dialect,
            "instep_reply",
            "replied_at_us",
            options.dedup_max_records,
            options.dedup_retention_s,
        )
        self._messages = _TableRetention(
            dialect,
            "instep_message",
            "delivered_at_us",
            options.messages_retention_records,
            options.messages_retention_s,
            _SIZE,
        )
        self._message_bytes = _ByteRetention(dialect, options.messages_retention_bytes)

    def trim_handled(
        self, connection: Connection, now_us: int, *, new_seen: int, new_replies: int
    ) -> None:
        """Remove old identifiers and old replies, after so many were added for messages that the
        handler took.
        """
        if new_seen:
            self._seen.trim(connection, new_seen, now_us)
        if new_replies:
            self._replies.trim(connection, new_replies, now_us)

    def trim(self, connection: Connection, group: MessageGroup) -> None:
        """Remove old rows after a group was written, in its transaction."""
        unsequenced = sum([len(change.unsequenced) for change in group.changes])
        if unsequenced:
            self._seen.trim(connection, unsequenced, group.now_us)
        new = count_messages(group)
        gone_bytes = self._messages.trim(connection, new, group.now_us)
        new_bytes = sum([m.size_bytes for c in group.changes for _, m in c.release])
        new_bytes += sum([m.size_bytes for c in group.changes for m in c.unsequenced])
        self._message_bytes.trim(connection, new, new_bytes, gone_bytes)


class _TableRetention:
    """The retention of one table."""

    def __init__(
        self,
        dialect: Dialect,
        table: str,
        time: str,
        keep: int | None,
        age_s: float | None,
        size: str = "",
    ) -> None:
        picked = f"SELECT id FROM {table} WHERE {{}} ORDER BY id LIMIT :limit"
        delete = f"DELETE FROM {table} WHERE id IN ({picked} {dialect.skip_locked})"
        self._sized = bool(size)
        if size:
            delete += f" RETURNING {size}"
        over = f"id <= (SELECT max(id) FROM {table}) - :keep"
        old = f"id < (SELECT min(id) FROM {table}) + :limit AND {time} < :before_us"
        self._over, self._old = text(delete.format(over)), text(delete.format(old))
        self._keep = keep
        self._age_us = None if age_s is None else int(age_s * 1_000_000)

    def trim(self, connection: Connection, new: int, now_us: int) -> int:
        """Remove old rows, after `new` rows were added. Returns their bytes where rows have any."""
        limit = 2 * new + _TRIM_RECORDS
        gone_bytes = 0
        if self._keep is not None:
            gone = connection.execute(self._over, {"limit": limit, "keep": self._keep})
            gone_bytes += sum(gone.scalars()) if self._sized else 0
        if self._age_us is not None:
            before_us = now_us - self._age_us
            gone = connection.execute(self._old, {"limit": limit, "before_us": before_us})
            gone_bytes += sum(gone.scalars()) if self._sized else 0
        return gone_bytes


class _ByteRetention:
    """Keeps the newest delivered messages up to a number of bytes."""

    def __init__(self, dialect: Dialect, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._counted = text(_COUNTED.format(dialect.for_update))
        self._new = self._new_bytes = self._gone_bytes = 0

    def trim(self, connection: Connection, new: int, new_bytes: int, gone_bytes: int) -> None:
        """Count what is new from time to time, and remove the oldest messages above the limit."""
        self._new += new
        self._new_bytes += new_bytes
        self._gone_bytes += gone_bytes
        if self._new < _COUNT_RECORDS and self._new_bytes < min(_COUNT_BYTES, self._limit_bytes):
            return
        counted = connection.execute(self._counted).one()
        added = connection.execute(_ADDED, {"after": counted.counted_to}).one()
        size_bytes = max(0, counted.size_bytes - self._gone_bytes) + int(added.size_bytes)
        self._new = self._new_bytes = self._gone_bytes = 0
        cut = None
        if size_bytes > self._limit_bytes:
            for id, row_bytes in connection.execute(_OLDEST, {"limit": 4 * _COUNT_RECORDS}):
                if size_bytes <= self._limit_bytes:
                    break
                cut, size_bytes = id, size_bytes - row_bytes
        if cut is not None:
            connection.execute(_REMOVE, {"cut": cut})
        values = {"to": added.last or counted.counted_to, "size": max(0, size_bytes)}
        connection.execute(_SET_COUNTED, values)
