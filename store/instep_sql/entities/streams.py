"""The rows of `instep_stream`: where each consumer stands in each stream, and the fence."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import FencedError
from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.streams import Mode, StreamInfo
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.value_check import without_nul
from instep_sql.options import Journal

__all__ = [
    "StreamRow",
    "advance",
    "count_deviations",
    "dump_info",
    "find",
    "insert",
    "is_at",
    "known",
    "lock",
    "save_info",
    "set_baseline_pending",
]

_FIND: Final = text("""
    SELECT id, position, info, journal,
           EXISTS (SELECT 1 FROM instep_part WHERE stream_no = instep_stream.id) AS parted
    FROM instep_stream WHERE consumer = :consumer AND stream = :stream
""")
_KNOWN: Final = text("""
    SELECT info FROM instep_stream
    WHERE consumer = :consumer AND phase <> 'receiving' ORDER BY id
""")
_INSERT: Final = text("""
    INSERT INTO instep_stream (consumer, stream, position, token, appended_at_us, phase, attempt,
                               ordinal, records, info, deviations, journal, updated_at_us)
    VALUES (:consumer, :stream, :position, NULL, 0, :phase, 0, 0, 0, :info, '{}', :journal, :now_us)
    ON CONFLICT (consumer, stream) DO NOTHING
""")
_HOLD: Final = text("""
    UPDATE instep_stream SET ordinal = ordinal WHERE consumer = :consumer AND stream = :stream
""")
_STANDS: Final = text("""
    SELECT count(*) FROM instep_stream
    WHERE id = :no AND position IN (:position, :owing) AND updated_at_us = :now_us
""")
_OWE: Final = text("UPDATE instep_stream SET position = :owing WHERE id = :no")
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
    change_only: bool
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
        change_only=bool(row.parted) or info.get("record_strategy") == "CHANGE_ONLY",
        baseline=info.get("mode") == Mode.BASELINE,
    )


def known(connection: Connection, consumer: str) -> list[StreamInfo]:
    """The streams of this consumer, as last discovered."""
    infos = connection.execute(_KNOWN, {"consumer": consumer}).scalars()
    # Not by msgspec: FOREVER is infinite here, for which JSON proper has no word.
    return [msgspec.convert(json.loads(info), StreamInfo) for info in infos if info != "{}"]


def insert(
    connection: Connection, consumer: str, stream: str, info: str, journal: Journal, now_us: int
) -> StreamRow:
    """A stream never seen: its position is the beginning. Another process may be first."""
    first = Position()
    values: dict[str, Any] = {
        "consumer": consumer,
        "stream": stream,
        "position": _dump(first),
        "phase": first.phase.value,
        "info": info,
        "journal": journal.value,
        "now_us": now_us,
    }
    connection.execute(_INSERT, values)
    row = find(connection, consumer, stream)
    assert row is not None
    return row


def save_info(connection: Connection, no: int, info: str, journal: Journal, now_us: int) -> None:
    """Keep what was last discovered of the stream, for those who read the store."""
    connection.execute(_TELL, {"no": no, "info": info, "journal": journal.value, "now_us": now_us})


def dump_info(info: StreamInfo) -> str:
    """As JSON text in which FOREVER stays infinite (JSON proper has no word for it)."""
    return json.dumps(msgspec.to_builtins(info), sort_keys=True)


def lock(connection: Connection, consumer: str, stream: str) -> None:
    """Keep others from committing on the stream until the transaction ends.

    Waits for a commit under way, also for one whose connection was lost on the client's side only.
    """
    connection.execute(_HOLD, {"consumer": consumer, "stream": stream})


def is_at(connection: Connection, no: int, position: Position, now_us: int) -> bool:
    """Whether the last commit on the stream was the one that led here at that time."""
    values = {
        "no": no,
        "position": _dump(position),
        "now_us": now_us,
        "owing": _with_baseline_pending(position),
    }
    return bool(connection.execute(_STANDS, values).scalar_one())


def set_baseline_pending(connection: Connection, no: int, position: Position) -> None:
    """Let the position that was just taken say that a baseline is due."""
    connection.execute(_OWE, {"no": no, "owing": _with_baseline_pending(position)})


def _with_baseline_pending(position: Position) -> str:
    return _dump(msgspec.structs.replace(position, baseline_pending=True))


def _dump(position: Position) -> str:
    return msgspec.json.encode(position).decode()


def advance(connection: Connection, dialect: Dialect, no: int, batch: Batch, now_us: int) -> None:
    """Take the position that the batch leads to, if nobody has moved it meanwhile. Raises
    `FencedError`.
    """
    position = batch.position
    if position.ordinal <= batch.expects_ordinal:
        raise ValueError(
            f"a commit leads beyond ordinal {batch.expects_ordinal}, not to {position.ordinal}"
        )
    row = (
        _dump(position),
        None if position.token is None else without_nul(position.token),
        position.appended_at_us,
        position.phase.value,
        position.attempt,
        position.ordinal,
        position.records,
        now_us,
        no,
        batch.expects_ordinal,
    )
    if dialect.execute_many(connection, _MOVE, [row]) != 1:
        raise FencedError(
            f"another process has committed on stream {batch.stream!r}",
            where=dialect.where,
            hint="only one process may consume a stream under one name; end one of them",
            stream=batch.stream,
            expected=batch.expects_ordinal,
        )


def count_deviations(connection: Connection, no: int, deviations: dict[str, int]) -> None:
    """Add to the counts of departures from the specification (A10)."""
    read = text("SELECT deviations FROM instep_stream WHERE id = :no")
    counts: dict[str, int] = json.loads(connection.execute(read, {"no": no}).scalar_one())
    for kind, count in deviations.items():
        counts[kind] = counts.get(kind, 0) + count
    connection.execute(
        text("UPDATE instep_stream SET deviations = :counts WHERE id = :no"),
        {"no": no, "counts": json.dumps(counts)},
    )
