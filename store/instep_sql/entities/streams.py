"""The rows of `instep_stream`: the position of each consumer in each stream.

`instep_sql.fencing` advances the positions.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.position import Phase, Position, decode_position
from instep.model.streams import Mode, StreamInfo
from instep_sql.derived.keeper import EnabledDerivations, enabled_derivations
from instep_sql.engine.stream_scope import StreamScope
from instep_sql.fencing import dump_position
from instep_sql.options import Journal, SqlOptions

__all__ = [
    "StreamKind",
    "StreamRow",
    "StreamTransaction",
    "UuidCase",
    "dump_info",
    "find",
    "insert",
    "known",
    "load_info",
    "mark_offered",
    "retire",
    "save_info",
]

_FIND: Final = text("""
    SELECT id, position, info, journal, deviations,
           EXISTS (SELECT 1 FROM instep_part WHERE stream_no = instep_stream.id) AS parted,
           EXISTS (SELECT 1 FROM instep_unproven
                   WHERE stream_no = instep_stream.id AND key <> '') AS singled_out
    FROM instep_stream WHERE consumer = :consumer AND stream = :stream AND kind <> 'retired'
""")
_SHARED_CLASSES: Final = text("""
    SELECT DISTINCT class FROM instep_entity WHERE stream_no = :no AND key LIKE '%#' || class
""")
_KNOWN: Final = text("""
    SELECT info FROM instep_stream
    WHERE consumer = :consumer AND kind = 'stream' ORDER BY id
""")
_INSERT: Final = text("""
    INSERT INTO instep_stream (consumer, stream, position, token, appended_at_us, phase, attempt,
                               ordinal, records, info, deviations, journal, updated_at_us, kind)
    VALUES (:consumer, :stream, :position, NULL, 0, :phase, 0, 0, 0, :info, '{}', :journal, :now_us,
            :kind)
    ON CONFLICT (consumer, stream) DO UPDATE
    SET position = excluded.position, token = NULL, appended_at_us = 0, phase = excluded.phase,
        attempt = 0, ordinal = 0, records = 0, info = excluded.info, deviations = '{}',
        journal = excluded.journal, updated_at_us = excluded.updated_at_us, kind = excluded.kind
    WHERE instep_stream.kind = 'retired'
""")
_SAVE_INFO: Final = text("""
    UPDATE instep_stream SET info = :info, journal = :journal, updated_at_us = :now_us,
                             phase = :phase
    WHERE id = :no
""")
_OFFERED: Final = text("SELECT info, position FROM instep_stream WHERE id = :no")
_MARK_OFFERED: Final = text("""
    UPDATE instep_stream SET info = :info, phase = :phase WHERE id = :no
""")
_FORGET: Final = tuple(
    text(f"DELETE FROM {table} WHERE stream_no = :no")
    for table in (
        "instep_part",
        "instep_tombstone",
        "instep_unproven",
        "instep_proof",
        "instep_sample",
        "instep_freshness",
    )
)
_RETIRE: Final = text("""
    UPDATE instep_stream SET kind = 'retired', updated_at_us = :now_us WHERE id = :no
""")


class StreamKind(StrEnum):
    """What a row of `instep_stream` represents."""

    STREAM = "stream"
    """A stream of a source, and the consumer's position in it."""
    AUDIT = "audit"
    """A running audit: the parts of the entities that it has read are kept under this row's id."""
    RETIRED = "retired"
    """A stream that was retired: the journal still names it."""


class UuidCase(StrEnum):
    """How a uuid may be spelled that is not in lower case."""

    UPPER = "upper"
    MIXED = "mixed"


class StreamRow(msgspec.Struct):
    """What the store keeps in memory about a stream that it writes."""

    no: int
    position: Position
    """The position when the row was read; it advances in the database only."""
    info: str
    journal: Journal
    change_only: bool
    """Whether its entities are composed of parts (CHANGE_ONLY)."""
    baseline: bool
    """Whether it is aligned from a baseline; rows are then joined by uuid, too."""
    mixed: bool = True
    """Whether it may state several classes."""
    shared_classes: set[str] = msgspec.field(default_factory=set)
    """The classes of which entities were met under the keys of others; empty: no key is shared."""
    uuid_cases: set[UuidCase] | None = None
    """Beside lower case, those of the uuids that were met; None: nobody has looked."""
    not_offered_since_us: int = 0
    """See `StreamInfo.not_offered_since_us`."""
    contained: frozenset[str] = frozenset()
    """See `StreamInfo.contained`."""
    unprovable: frozenset[str] = frozenset()
    """See `StreamInfo.unprovable`."""
    keys_are_uuids: bool = False
    """See `StreamInfo.keys_are_uuids`."""
    event_classes: frozenset[str] = frozenset()
    """See `StreamInfo.event_classes`."""
    kept: EnabledDerivations = EnabledDerivations()
    """What the store derives."""
    singled_out: bool = False
    """Whether an entity may be unproven by a reason of its own (A22)."""
    unknown: set[str] = set()
    """The keys of `Position.unknown`, as they were stored last."""


class StreamTransaction(StreamScope, frozen=True):
    """A transaction that writes entities of one stream: by it they are read and written."""

    options: SqlOptions
    """Its `journal` is that of the transaction."""
    stream: StreamRow

    @property
    def journal(self) -> Journal:
        """What is kept of each change."""
        return self.options.journal


def find(connection: Connection, consumer: str, stream: str) -> StreamRow | None:
    """The row of this consumer's stream; None if there is none."""
    row = connection.execute(_FIND, {"consumer": consumer, "stream": stream}).one_or_none()
    if row is None:
        return None
    info = json.loads(row.info)
    position = decode_position(row.position)
    return StreamRow(
        no=row.id,
        position=position,
        info=row.info,
        journal=Journal(row.journal),
        change_only=bool(row.parted) or info.get("partial_updates", False),
        baseline=info.get("mode") == Mode.BASELINE,
        mixed=not info.get("one_class", False),
        shared_classes=_shared_classes(connection, row)
        if "key-shared" in row.deviations
        else set(),
        not_offered_since_us=info.get("not_offered_since_us", 0),
        contained=frozenset(info.get("contained", ())),
        unprovable=frozenset(info.get("unprovable", ())),
        keys_are_uuids=info.get("keys_are_uuids", False),
        event_classes=frozenset(info.get("event_classes", ())),
        kept=enabled_derivations(connection, consumer),
        singled_out=bool(row.singled_out),
        unknown=set(position.unknown),
    )


def _shared_classes(connection: Connection, row: Any) -> set[str]:
    return set(connection.execute(_SHARED_CLASSES, {"no": row.id}).scalars())


def known(connection: Connection, consumer: str) -> list[StreamInfo]:
    """The streams of this consumer, as last discovered."""
    infos = connection.execute(_KNOWN, {"consumer": consumer}).scalars()
    # Not decoded by msgspec: FOREVER is infinite here, and strict JSON has no infinity.
    return [StreamInfo.from_stored(json.loads(info)) for info in infos if info != "{}"]


def insert(
    connection: Connection,
    consumer: str,
    stream: str,
    info: str,
    journal: Journal,
    now_us: int,
    *,
    kind: StreamKind = StreamKind.STREAM,
) -> StreamRow:
    """Insert a new stream, at the initial position. Another process may insert it first: then its
    row is returned.
    """
    first = Position()
    values: dict[str, Any] = {
        "consumer": consumer,
        "stream": stream,
        "position": dump_position(first),
        "phase": first.phase.value,
        "info": info,
        "journal": journal.value,
        "now_us": now_us,
        "kind": kind.value,
    }
    connection.execute(_INSERT, values)
    row = find(connection, consumer, stream)
    assert row is not None
    return row


def save_info(
    connection: Connection, row: StreamRow, info: str, journal: Journal, now_us: int
) -> None:
    """Store the description that discovery found last, for readers of the store."""
    values = {
        "no": row.no,
        "info": info,
        "journal": journal.value,
        "now_us": now_us,
        "phase": row.position.phase.value,
    }
    connection.execute(_SAVE_INFO, values)


def mark_offered(connection: Connection, no: int, not_offered_since_us: int) -> None:
    """Note since when the stream is not offered any more; 0: it is."""
    row = connection.execute(_OFFERED, {"no": no}).one()
    info = load_info(row.info) | {"not_offered_since_us": not_offered_since_us}
    phase = Phase.NOT_OFFERED if not_offered_since_us else decode_position(row.position).phase
    values = {"no": no, "info": json.dumps(info, sort_keys=True), "phase": phase.value}
    connection.execute(_MARK_OFFERED, values)


def retire(connection: Connection, no: int, now_us: int) -> None:
    """Retire a stream of which no entity is left. Its row stays: the journal names it."""
    for statement in _FORGET:
        connection.execute(statement, {"no": no})
    connection.execute(_RETIRE, {"no": no, "now_us": now_us})


def load_info(info: str) -> dict[str, Any]:
    """A stored description as plain data."""
    found: dict[str, Any] = json.loads(info)
    return found


def dump_info(info: StreamInfo) -> str:
    """The description as JSON text, in which FOREVER stays infinite (strict JSON has no
    infinity).
    """
    return json.dumps(msgspec.to_builtins(info), sort_keys=True)
