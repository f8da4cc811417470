"""The rows of `instep_stream`: where each consumer stands in each stream, and the fence."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import FencedError
from instep.ports import Mode, StreamInfo
from instep.position import Position
from instep.records import Batch
from instep_sql.options import Journal

__all__ = ["StreamRow", "count_deviations", "dump_info", "find", "insert", "move", "tell"]

_FIND: Final = text("""
    SELECT id, position, info, journal,
           EXISTS (SELECT 1 FROM instep_part WHERE stream_no = instep_stream.id) AS parted
    FROM instep_stream WHERE consumer = :consumer AND stream = :stream
""")
_INSERT: Final = text("""
    INSERT INTO instep_stream (consumer, stream, position, token, appended_at_us, phase, attempt,
                               ordinal, records, info, deviations, journal, updated_at_us)
    VALUES (:consumer, :stream, :position, NULL, 0, :phase, 0, 0, 0, :info, '{}', :journal, :now_us)
""")
_TELL: Final = text("""
    UPDATE instep_stream SET info = :info, journal = :journal, updated_at_us = :now_us
    WHERE id = :no
""")
_MOVE: Final = """
    UPDATE instep_stream SET position = ?, token = ?, appended_at_us = ?, phase = ?, attempt = ?,
                             ordinal = ?, records = ?, updated_at_us = ?
    WHERE id = ? AND ordinal = ?
"""


class StreamRow(msgspec.Struct):
    """What the store keeps in hand of a stream it writes."""

    no: int
    position: Position
    """As read; moves on in the database only."""
    info: str
    journal: Journal
    by_change: bool
    """Its entities are composed of parts (CHANGE_ONLY)."""
    baseline: bool
    """It is aligned from a baseline: rows are joined by uuid too."""


def find(connection: Connection, consumer: str, stream: str) -> StreamRow | None:
    """The stream of this consumer; None for one never seen."""
    row = connection.execute(_FIND, {"consumer": consumer, "stream": stream}).one_or_none()
    if row is None:
        return None
    info = json.loads(row.info)
    return StreamRow(
        no=row.id,
        position=msgspec.json.decode(row.position, type=Position),
        info=row.info,
        journal=Journal(row.journal),
        by_change=bool(row.parted) or info.get("record_strategy") == "CHANGE_ONLY",
        baseline=info.get("mode") == Mode.BASELINE,
    )


def insert(
    connection: Connection, consumer: str, stream: str, info: str, journal: Journal, now_us: int
) -> StreamRow:
    """A stream never seen: its position is the beginning."""
    first = Position()
    values: dict[str, Any] = {
        "consumer": consumer,
        "stream": stream,
        "position": msgspec.json.encode(first).decode(),
        "phase": first.phase.value,
        "info": info,
        "journal": journal.value,
        "now_us": now_us,
    }
    connection.execute(_INSERT, values)
    row = find(connection, consumer, stream)
    assert row is not None
    return row


def tell(connection: Connection, no: int, info: str, journal: Journal, now_us: int) -> None:
    """Keep what was last discovered of the stream, for those who read the store."""
    connection.execute(_TELL, {"no": no, "info": info, "journal": journal.value, "now_us": now_us})


def dump_info(info: StreamInfo) -> str:
    """As JSON text in which FOREVER stays infinite (JSON proper has no word for it)."""
    return json.dumps(msgspec.to_builtins(info), sort_keys=True)


def move(connection: Connection, no: int, batch: Batch, now_us: int, where: str) -> None:
    """Take the position that the batch leads to, if nobody has moved it meanwhile. Raises
    `FencedError`.
    """
    position = batch.position
    if position.ordinal <= batch.expects_ordinal:
        raise ValueError(
            f"a commit leads beyond ordinal {batch.expects_ordinal}, not to {position.ordinal}"
        )
    moved = connection.exec_driver_sql(
        _MOVE,
        (
            msgspec.json.encode(position).decode(),
            position.token,
            position.appended_at_us,
            position.phase.value,
            position.attempt,
            position.ordinal,
            position.records,
            now_us,
            no,
            batch.expects_ordinal,
        ),
    ).rowcount
    if moved != 1:
        raise FencedError(
            f"another process has committed on stream {batch.stream!r}",
            where=where,
            hint="only one process may consume a stream under one name; end one of them",
            stream=batch.stream,
            expected=batch.expects_ordinal,
        )


def count_deviations(connection: Connection, no: int, deviations: dict[str, int]) -> None:
    """Add to the counts of departures from the specification (rule 10)."""
    read = text("SELECT deviations FROM instep_stream WHERE id = :no")
    counts: dict[str, int] = json.loads(connection.execute(read, {"no": no}).scalar_one())
    for kind, count in deviations.items():
        counts[kind] = counts.get(kind, 0) + count
    connection.execute(
        text("UPDATE instep_stream SET deviations = :counts WHERE id = :no"),
        {"no": no, "counts": json.dumps(counts)},
    )
