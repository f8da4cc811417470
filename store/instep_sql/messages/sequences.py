"""The rows of `instep_sequence`: the state of each scope of a receiver."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.ports.message_store import DueSequences, MessageGroup, SequenceChange, StoredSequence
from instep.sequencing.state import BufferedMessage, SequencerState
from instep_sql.engine.bulk_insert import insert_rows
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.engine.value_check import storable_text

__all__ = ["due", "load", "row_ids_of", "write"]
_INTO: Final = """
    instep_sequence (receiver_no, scope, state, due_us, deliver_at_us, attempts, blocked, error,
                     updated_at_us)"""
# What the deliveries decided is theirs: a commit only says that there is something to deliver.
_OR_UPDATE: Final = """
    ON CONFLICT (receiver_no, scope) DO UPDATE SET
      state = excluded.state, due_us = excluded.due_us, updated_at_us = excluded.updated_at_us,
      deliver_at_us = CASE WHEN instep_sequence.blocked = 1 THEN NULL
                           ELSE coalesce(instep_sequence.deliver_at_us, excluded.deliver_at_us) END
"""
_DUE: Final = text("""
    SELECT scope, due_us FROM instep_sequence
    WHERE receiver_no = :no AND due_us IS NOT NULL ORDER BY due_us LIMIT :limit
""")


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
        f"WHERE receiver_no = :no AND scope IN {dialect.members('scopes')}"
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
        f"WHERE q.receiver_no = :no AND q.scope IN {dialect.members('scopes')}"
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
