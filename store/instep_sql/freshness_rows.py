"""What the processes that follow streams say of them, kept for who reads the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, text

from instep.model.freshness import StreamReport
from instep.model.storable import without_nul
from instep_sql.engine.dialect import Dialect

__all__ = ["FreshnessReporter"]

_encode: Final = msgspec.json.Encoder().encode
_LONGEST_TROUBLE_CHARS: Final = 500
_HEARD: Final = """
    INSERT INTO instep_follower (name, consumer, heard_at_us, stale_after_s)
    VALUES (:name, :consumer, {now_us}, :stale_after_s)
    ON CONFLICT (name) DO UPDATE SET heard_at_us = {now_us}, stale_after_s = :stale_after_s
    RETURNING id
"""
_SAY: Final = text("""
    INSERT INTO instep_freshness (stream_no, follower_no, connected, caught_up, opened_at_us,
                                  read_at_us, refused, readable, trouble, known_at_us, monitor)
    SELECT id, :no, :connected, :caught_up, :opened_at_us, :read_at_us, :refused, :readable,
           :trouble, :known_at_us, :monitor
    FROM instep_stream WHERE consumer = :consumer AND stream = :stream AND kind = 'stream'
    ON CONFLICT (stream_no) DO UPDATE
    SET follower_no = excluded.follower_no, connected = excluded.connected,
        caught_up = excluded.caught_up, opened_at_us = excluded.opened_at_us,
        read_at_us = excluded.read_at_us, refused = excluded.refused,
        readable = excluded.readable, trouble = excluded.trouble,
        known_at_us = excluded.known_at_us, monitor = excluded.monitor
""")
_FORGET: Final = text("""
    DELETE FROM instep_follower WHERE consumer = :consumer AND id <> :no
    AND NOT EXISTS (SELECT 1 FROM instep_freshness WHERE follower_no = instep_follower.id)
""")


class FreshnessReporter:
    """This process, as one that follows streams. A quiet stream costs little: one row says that
    the process lives, and those of streams are written where something has changed: of a quiet
    one, every half minute, up to when it is known.
    """

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._written: dict[str, StreamReport] = {}

    def forget(self) -> None:
        """What was written may not be durable: write all of it again."""
        self._written.clear()

    def write(
        self,
        connection: Connection,
        dialect: Dialect,
        consumer: str,
        reports: Sequence[StreamReport],
        stale_after_s: float,
    ) -> None:
        """Write the reports, in the caller's transaction; then call `note_written`."""
        ((no,),) = dialect.execute(
            connection,
            _HEARD.format(now_us=dialect.now_us),
            {"name": self._name, "consumer": consumer, "stale_after_s": stale_after_s},
        )
        rows = [
            {
                "no": no,
                "consumer": consumer,
                "stream": one.stream,
                "connected": one.connected,
                "caught_up": one.caught_up,
                "opened_at_us": one.opened_at_us,
                "read_at_us": one.read_at_us,
                "refused": one.refused,
                "readable": one.readable,
                "trouble": without_nul(one.trouble[:_LONGEST_TROUBLE_CHARS]),
                "known_at_us": one.known_at_us,
                "monitor": "" if one.monitor is None else _encode(one.monitor).decode(),
            }
            for one in reports
            if self._written.get(one.stream) != one
        ]
        if rows:
            connection.execute(_SAY, rows)
        if not self._written:
            connection.execute(_FORGET, {"consumer": consumer, "no": no})

    def note_written(self, reports: Sequence[StreamReport]) -> None:
        """The reports are durable."""
        self._written = {one.stream: one for one in reports}
