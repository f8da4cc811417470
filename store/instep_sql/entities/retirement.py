"""Removes what is stored of a stream that is not offered any more, and the stream with it (A20)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import SinkError
from instep.model.entities import identity_digest
from instep.model.position import Phase, decode_position
from instep.model.streams import Mode, Retirement, StreamInfo
from instep_sql import fencing
from instep_sql.derived.statements import end_swept
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, commit, journal, streams, unproven
from instep_sql.options import SqlOptions
from instep_sql.projections.projection import Projection
from instep_sql.proof_sql import IS_UNPROVEN

__all__ = ["identities", "retire"]

_DOOMED: Final = -1
"""The mark of an entity that is removed: below that of any attempt."""
_STEP_RECORDS: Final = 10_000
_OTHERS: Final = """
    SELECT id, position, info FROM instep_stream
    WHERE consumer = :consumer AND kind = 'stream' AND id <> :no AND phase = '{aligned}'
      AND stream IN {members}
"""
_ELSEWHERE: Final = """
    EXISTS (SELECT 1 FROM instep_entity AS t
            WHERE t.stream_no = {no} AND NOT {unproven} AND t.class = instep_entity.class
              AND ((t.uuid <> '' AND t.uuid = instep_entity.uuid)
                   OR (t.uuid = '' AND instep_entity.uuid = '' AND t.key = instep_entity.key)))
"""
_STEP: Final = f"stream_no = :no AND attempt = {_DOOMED} AND id <= :upto"
_UPTO: Final = text(f"""
    SELECT max(id) FROM (SELECT id FROM instep_entity WHERE stream_no = :no AND attempt = {_DOOMED}
                         ORDER BY id LIMIT :size) AS step
""")
_DELETE: Final = text(f"DELETE FROM instep_entity WHERE {_STEP} RETURNING key")
_DOUBTED: Final = text("""
    SELECT DISTINCT class FROM instep_unproven WHERE stream_no = :no AND key = ''
""")
_IDENTITIES: Final = text("SELECT class, uuid, key FROM instep_entity WHERE stream_no = :no")
_COUNT: Final = text("SELECT count(*) FROM instep_entity WHERE stream_no = :no")


def retire(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    consumer: str,
    stream: str,
    proven_by: Collection[str] | None,
    now_us: int,
    projections: Sequence[Projection] = (),
) -> Retirement:
    """Remove all entities of the stream, or those that the streams `proven_by` prove to be theirs,
    or absent; and the stream if none is left. As by a sweep: the journal tells each, and what is
    derived follows. Raises `SinkError` where the stream is offered, or unknown.
    """
    fencing.lock_stream(connection, consumer, stream)
    row = streams.find(connection, consumer, stream)
    if row is None:
        raise SinkError("there is no such stream", where=stream)
    if not row.not_offered_since_us:
        raise SinkError(
            "the provider offers the stream, as far as is known",
            where=stream,
            hint="only one that is not offered any more is retired (`instep streams list`)",
        )
    options = msgspec.structs.replace(options, journal=row.journal)
    tx = streams.StreamTransaction(connection, dialect, row.no, now_us, options, row)
    condition, values = _condition(tx, consumer, proven_by)
    values["no"] = row.no
    removed = 0
    if condition:
        marking = text(
            f"UPDATE instep_entity SET attempt = {_DOOMED} WHERE stream_no = :no AND ({condition})"
        )
        removed = connection.execute(marking, values).rowcount
    if removed:
        _remove(tx, projections)
    left = int(connection.execute(_COUNT, {"no": row.no}).scalar_one())
    if left:
        unproven.recount(tx)
    else:
        streams.retire(connection, row.no, now_us)
    return Retirement(removed, left)


def identities(connection: Connection, consumer: str, stream: str) -> frozenset[int]:
    """What is stored of a stream, as `identity_digest` names it."""
    row = streams.find(connection, consumer, stream)
    if row is None:
        return frozenset()
    rows = connection.execute(_IDENTITIES, {"no": row.no})
    return frozenset(identity_digest(*one) for one in rows)


def _condition(
    tx: streams.StreamTransaction, consumer: str, proven_by: Collection[str] | None
) -> tuple[str, dict[str, Any]]:
    """Which entities are removed; none where it is empty."""
    if proven_by is None:
        return "1 = 1", {}
    connection, dialect, row = tx.connection, tx.dialect, tx.stream
    query = _OTHERS.format(aligned=Phase.ALIGNED.value, members=dialect.members("streams"))
    values = {"consumer": consumer, "no": row.no, "streams": json_array(proven_by)}
    others = connection.execute(text(query), values).all()
    conditions = [_ELSEWHERE.format(no=int(one.id), unproven=IS_UNPROVEN) for one in others]
    readable: set[str] = set()
    for one in others:
        readable |= _read_since(connection, one, row.not_offered_since_us)
    if not readable:
        return " OR ".join(conditions), {}
    conditions.append(f"class IN {dialect.members('readable')}")
    return " OR ".join(conditions), {"readable": json_array(readable)}


def _read_since(connection: Connection, row: Any, since_us: int) -> frozenset[str]:
    """The classes of which this stream's baseline has read every entity after `since_us`, with
    nothing in doubt (A17, A19).
    """
    info = StreamInfo.from_stored(streams.load_info(row.info))
    began_us = decode_position(row.position).attempt_started_at_us - info.clock_offset_us
    if info.mode is not Mode.BASELINE or began_us <= since_us:
        return frozenset()
    doubted = set(connection.execute(_DOUBTED, {"no": row.id}).scalars())
    return frozenset() if "" in doubted else info.readable & frozenset(info.classes) - doubted


def _remove(tx: streams.StreamTransaction, projections: Sequence[Projection]) -> None:
    """Remove the entities with the mark `_DOOMED`, as a sweep does."""
    connection, dialect, row = tx.connection, tx.dialect, tx.stream
    since_us, removed = row.not_offered_since_us, 0
    while True:
        step = {"no": row.no}
        upto = connection.execute(_UPTO, step | {"size": _STEP_RECORDS}).scalar_one()
        if upto is None:
            break
        step["upto"] = upto
        # First, since it tells what is about to go.
        journal.append_swept(tx, _STEP, step)
        keys = connection.execute(_DELETE, step).scalars().all()
        removed += len(keys)
        if row.change_only:
            change_only.forget_parts(connection, dialect, row.no, keys)
        kept = row.kept.statements
        end_swept(tx, kept, keys, since_us, done=False)
    commit.derive_changed(tx, projections)
    journal.trim(tx, removed)
