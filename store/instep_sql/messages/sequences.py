"""The rows of `instep_sequence`, one a scope, and the row of the consumer that they belong to.

The consumer's row in `instep_stream` is the fence: it names the process that receives, and each of
its transactions begins by finding itself there.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import FencedError
from instep.ports.message_store import DueSequences, MessageGroup, SequenceChange, StoredSequence
from instep.sequencing.state import BufferedMessage, SequencerState
from instep_sql.engine.bulk_insert import insert_rows
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.engine.value_check import storable_text

__all__ = ["RECEIVING", "due", "fence", "is_at", "load", "row_ids_of", "take_over", "write"]


RECEIVING: Final = "receiving"
"""The `phase` of the consumer's row: it is no log that is aligned."""


_STREAM: Final = "messages"


_ENTER: Final = text("""
    INSERT INTO instep_stream (consumer, stream, position, token, appended_at_us, phase, attempt,
                               ordinal, records, info, deviations, journal, updated_at_us)
    VALUES (:consumer, :stream, '{}', :owner, 0, :phase, 0, 0, 0, :info, '{}', 'off', :now_us)
    ON CONFLICT (consumer, stream) DO UPDATE
    SET token = excluded.token, info = excluded.info, updated_at_us = excluded.updated_at_us
""")


_NO: Final = text("SELECT id FROM instep_stream WHERE consumer = :consumer AND stream = :stream")


_FENCE: Final = text("""
    UPDATE instep_stream SET ordinal = :mark, records = records + :messages, updated_at_us = :now_us
    WHERE id = :no AND token = :owner
""")


_STANDS: Final = text("""
    SELECT count(*) FROM instep_stream WHERE id = :no AND token = :owner AND ordinal = :mark
""")


_INTO: Final = """
    instep_sequence (stream_no, scope, state, due_us, deliver_at_us, attempts, blocked, error,
                     updated_at_us)"""


# What the deliveries decided is theirs: a commit only says that there is something to deliver.
_OR_UPDATE: Final = """
    ON CONFLICT (stream_no, scope) DO UPDATE SET
      state = excluded.state, due_us = excluded.due_us, updated_at_us = excluded.updated_at_us,
      deliver_at_us = CASE WHEN instep_sequence.blocked = 1 THEN NULL
                           ELSE coalesce(instep_sequence.deliver_at_us, excluded.deliver_at_us) END
"""


_DUE: Final = text("""
    SELECT scope, due_us FROM instep_sequence
    WHERE stream_no = :no AND due_us IS NOT NULL ORDER BY due_us LIMIT :limit
""")


def take_over(connection: Connection, consumer: str, owner: str, kind: str, now_us: int) -> int:
    """Put this process in the consumer's row: whoever stood there is fenced. Its number."""
    values: dict[str, Any] = {
        "consumer": consumer,
        "stream": _STREAM,
        "owner": owner,
        "phase": RECEIVING,
        "info": json.dumps({"id": _STREAM, "kind": kind}),
        "now_us": now_us,
    }
    connection.execute(_ENTER, values)
    no: int = connection.execute(_NO, {"consumer": consumer, "stream": _STREAM}).scalar_one()
    return no


def fence(
    connection: Connection,
    dialect: Dialect,
    place: tuple[int, str],
    *,
    mark: int,
    messages: int,
    now_us: int,
) -> None:
    """Begin a transaction; `mark` is its own, by which it is known again. Raises `FencedError`."""
    no, owner = place
    values = {"no": no, "owner": owner, "mark": mark, "messages": messages, "now_us": now_us}
    if connection.execute(_FENCE, values).rowcount != 1:
        raise FencedError(
            "another process receives for this consumer",
            where=dialect.where,
            hint="only one process may receive under one name; end one of them",
        )


def is_at(connection: Connection, place: tuple[int, str], mark: int) -> bool:
    """Whether the last transaction was the one of this mark."""
    no, owner = place
    values = {"no": no, "owner": owner, "mark": mark}
    return bool(connection.execute(_STANDS, values).scalar_one())


def write(connection: Connection, no: int, group: MessageGroup) -> None:
    """The states of the scopes that a group has touched."""
    now_us = group.now_us
    rows = [
        (
            no,
            storable_text(change.scope),
            _dump(change.state),
            change.due_us,
            now_us if group.handled and _releases(change) else None,
            0,
            0,
            "",
            now_us,
        )
        for change in group.changes
    ]
    insert_rows(connection, _INTO, rows, _OR_UPDATE)


def row_ids_of(
    connection: Connection, dialect: Dialect, no: int, scopes: Collection[str]
) -> dict[str, int]:
    """Scope → its row, for scopes that are stored."""
    query = text(
        "SELECT id, scope FROM instep_sequence "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND scope IN {dialect.members('scopes')}"
    )
    rows = connection.execute(
        query, {"no": no, "scopes": json_array({storable_text(s) for s in scopes})}
    )
    found = {row.scope: row.id for row in rows}
    return {scope: found[storable_text(scope)] for scope in scopes if storable_text(scope) in found}


def load(
    connection: Connection, dialect: Dialect, no: int, scopes: Collection[str]
) -> dict[str, StoredSequence]:
    """The scopes as committed, with what they hold."""
    ours = (
        "FROM instep_sequence AS q "
        f"WHERE q.stream_no = :no AND q.scope IN {dialect.members('scopes')}"
    )
    values = {"no": no, "scopes": json_array({storable_text(scope) for scope in scopes})}
    waiting = "SELECT count(*) FROM instep_inbox AS i WHERE i.sequence_no = q.id AND i.stage = 1"
    rows = connection.execute(
        text(f"SELECT q.id, q.scope, q.state, ({waiting}) AS waiting {ours}"),
        values,
    ).all()
    buffered: dict[int, list[BufferedMessage]] = {}
    for row in connection.execute(
        text(
            "SELECT sequence_no, number, digest, length(body) AS size_bytes, expires_at_us, "  # noqa: S608
            "kept_at_us FROM instep_inbox WHERE stage = 0 "
            f"AND sequence_no IN (SELECT q.id {ours}) ORDER BY id"
        ),
        values,
    ):
        buffered.setdefault(row.sequence_no, []).append(BufferedMessage(*row[1:]))
    found = {}
    for row in rows:
        state = msgspec.json.decode(row.state, type=SequencerState)
        if row.id in buffered:
            state = msgspec.structs.replace(state, buffered=buffered[row.id])
        found[row.scope] = StoredSequence(state, row.waiting)
    return {scope: found[storable_text(scope)] for scope in scopes if storable_text(scope) in found}


def due(connection: Connection, no: int, now_us: int, limit: int) -> DueSequences:
    """Which scopes are due, and when the next ones are."""
    rows = connection.execute(_DUE, {"no": no, "limit": limit + 1}).all()
    scopes = [row.scope for row in rows[:limit] if row.due_us <= now_us]
    left = rows[len(scopes) :]
    return DueSequences(scopes, left[0].due_us if left else None)


def _dump(state: SequencerState) -> str:
    # What is held is in the inbox, so that the state stays small.
    if state.buffered:
        state = msgspec.structs.replace(state, buffered=[])
    return msgspec.json.encode(state).decode()


def _releases(change: SequenceChange) -> bool:
    return bool(change.release or change.release_buffered or change.unsequenced)
