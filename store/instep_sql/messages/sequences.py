"""The rows of `instep_sequence`: the state of each scope of a receiver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, bindparam, text

from instep.model.messages import UNSEQUENCED
from instep.model.ranges import Ranges
from instep.model.storable import storable_text
from instep.ports.message_store import (
    DueSequences,
    MessageGroup,
    SenderUsage,
    SequenceChange,
    StoredSequence,
)
from instep.sequencing.ends import EndedNumbers, NumberEnd
from instep.sequencing.state import BufferedMessage, SequencerState, decode_state
from instep_sql.engine.bulk_writes import StoredTable, excluded, typed
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.messages import dead_letter, number_ends
from instep_sql.options import SqlOptions

__all__ = ["due", "load", "reclaim", "row_ids_of", "scopes", "usage", "write"]

_SEQUENCES: Final = StoredTable(
    "instep_sequence",
    {
        **typed(int, "receiver_no"),
        **typed(str, "scope", "state"),
        **typed(int, "due_us", "deliver_at_us", "attempts", "blocked"),
        **typed(str, "error"),
        **typed(int, "updated_at_us"),
        **typed(str, "peer"),
        **typed(int, "held_messages", "held_bytes"),
    },
    key=("receiver_no", "scope"),
    shared=("receiver_no", "deliver_at_us", "attempts", "blocked", "error", "updated_at_us"),
    # Deliveries own their columns: a commit only records that there is something to deliver.
    updated={
        **excluded("state", "due_us", "updated_at_us", "peer", "held_messages", "held_bytes"),
        "deliver_at_us": """
            CASE WHEN instep_sequence.blocked = 1 THEN NULL
                 ELSE coalesce(instep_sequence.deliver_at_us, excluded.deliver_at_us) END
        """,
    },
)
_DUE: Final = text("""
    SELECT scope, due_us FROM instep_sequence
    WHERE receiver_no = :no AND due_us IS NOT NULL ORDER BY due_us LIMIT :limit
""")
_NAMES: Final = """
    SELECT scope FROM instep_sequence
    WHERE receiver_no = :no AND state <> '' AND {begins} ORDER BY scope LIMIT :limit
"""
_USAGE: Final = text("""
    SELECT peer, count(*), sum(held_messages), sum(held_bytes) FROM instep_sequence
    WHERE receiver_no = :no AND state <> '' GROUP BY peer
""")
_IN_STAGE: Final = "SELECT 1 FROM instep_inbox AS i WHERE i.sequence_no = q.id AND i.stage"
# The table has no index by sequence alone: each message would cost a page of it.
_FORGETTABLE: Final = text(f"""
    SELECT q.id, q.scope, q.state, q.last_message, EXISTS ({_IN_STAGE} IN (1, 2)) AS waits,
      EXISTS ({_IN_STAGE} IN (0, {dead_letter.DEAD})) AS dead,
      EXISTS (SELECT 1 FROM instep_message AS m
              WHERE m.number = {UNSEQUENCED} AND m.sequence_no = q.id) AS unsequenced
    FROM instep_sequence AS q WHERE q.id IN :ids
""").bindparams(bindparam("ids", expanding=True))
_HELD: Final = text("SELECT number FROM instep_inbox WHERE sequence_no = :id AND stage = 0")
_KEPT_MESSAGES: Final = text("""
    SELECT (SELECT min(id) FROM instep_message) AS first,
           (SELECT max(id) FROM instep_message) AS last
""")
_POSTPONE: Final = "UPDATE instep_sequence SET due_us = ? WHERE id = ?"
_EMPTY: Final = """
    UPDATE instep_sequence
    SET state = '', due_us = ?, deliver_at_us = NULL, attempts = 0, blocked = 0, error = '',
        held_messages = 0, held_bytes = 0, last_message = ?
    WHERE id = ?
"""
_AGAIN_US: Final = 3_600_000_000
"""Time in microseconds until a sequence that still has messages for the handler is due again."""
_NAME_KEPT_US: Final = 86_400_000_000
"""Time in microseconds between two checks whether delivered messages of a forgotten sequence are
still kept.
"""


def write(connection: Connection, dialect: Dialect, no: int, group: MessageGroup) -> None:
    """Write the states of the scopes that a group has changed."""
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
            storable_text(change.peer),
            change.held_messages,
            change.held_bytes,
        )
        for change in group.changes
    ]
    dialect.upsert_rows(connection, _SEQUENCES, rows)


def row_ids_of(
    connection: Connection, dialect: Dialect, no: int, scopes: Collection[str]
) -> dict[str, int]:
    """Scope → its row, for scopes that are stored."""
    query = text(
        "SELECT id, scope FROM instep_sequence "
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
    """The scopes as committed, with their buffered messages."""
    ours = (
        "FROM instep_sequence AS q "
        f"WHERE q.receiver_no = :no AND q.scope IN {dialect.members('scopes')} AND q.state <> ''"
    )
    values = {"no": no, "scopes": json_array({storable_text(scope) for scope in scopes})}
    of = "FROM instep_inbox AS i WHERE i.sequence_no = q.id AND i.stage ="
    dead = f"{of} {dead_letter.DEAD} AND i.discarded = 0"
    rows = connection.execute(
        text(
            f"SELECT q.id, q.scope, q.state, q.peer, (SELECT count(*) {of} 1) AS waiting, "
            f"(SELECT count(*) {dead}) AS dead_messages, "
            f"(SELECT coalesce(sum({dead_letter.SIZE}), 0) {dead}) AS dead_bytes {ours}"
        ),
        values,
    ).all()
    buffered: dict[int, list[BufferedMessage]] = {}
    for row in connection.execute(
        text(
            "SELECT sequence_no, number, digest, "
            "length(body) + coalesce(length(attachments), 0) AS size_bytes, expires_at_us, "
            "buffered_at_us FROM instep_inbox WHERE stage = 0 "
            f"AND sequence_no IN (SELECT q.id {ours}) ORDER BY id"
        ),
        values,
    ):
        buffered.setdefault(row.sequence_no, []).append(BufferedMessage(*row[1:]))
    found = {}
    for row in rows:
        state = decode_state(row.state)
        if row.id in buffered:
            state = msgspec.structs.replace(state, buffered=buffered[row.id])
        found[row.scope] = StoredSequence(
            state, row.waiting, row.peer, row.dead_messages, int(row.dead_bytes)
        )
    return {scope: found[storable_text(scope)] for scope in scopes if storable_text(scope) in found}


def scopes(connection: Connection, dialect: Dialect, no: int, prefix: str, limit: int) -> list[str]:
    """The scopes whose names begin with this text."""
    query = text(_NAMES.format(begins=dialect.begins_with("scope", "prefix")))
    values = {"no": no, "prefix": storable_text(prefix), "limit": limit}
    return list(connection.execute(query, values).scalars())


def due(connection: Connection, no: int, now_us: int, limit: int) -> DueSequences:
    """Which scopes are due, and when the next ones are."""
    rows = connection.execute(_DUE, {"no": no, "limit": limit + 1}).all()
    scopes = [row.scope for row in rows[:limit] if row.due_us <= now_us]
    left = rows[len(scopes) :]
    return DueSequences(scopes, left[0].due_us if left else None)


def usage(connection: Connection, no: int) -> dict[str, SenderUsage]:
    """Peer → its sequences, buffered messages and their bytes."""
    rows = connection.execute(_USAGE, {"no": no})
    return {row[0]: SenderUsage(*(int(number) for number in row[1:])) for row in rows}


def reclaim(
    connection: Connection,
    dialect: Dialect,
    no: int,
    scopes: Collection[str],
    now_us: int,
    options: SqlOptions,
) -> set[str]:
    """Forget sequences; returns those that are unknown from now on (S10). What they have buffered
    goes to the dead letter, and what became of their numbers is recorded (S13).

    Where delivered or dead messages of one are still kept, its row stays without a state, for its
    name.
    """
    ids = row_ids_of(connection, dialect, no, scopes)
    kept = connection.execute(_KEPT_MESSAGES).one()
    waiting, gone, named, removed, ended = [], [], [], [], []
    for row in connection.execute(_FORGETTABLE, {"ids": list(ids.values())}).all():
        if row.waits:
            waiting.append((now_us + _AGAIN_US, row.id))
            continue
        gone.append((row.id,))
        if row.state:
            ended.append(row)
        last = kept.last if _may_have_delivered(row) else row.last_message
        if kept.first is not None and last is not None and kept.first <= last:
            named.append((now_us + _NAME_KEPT_US, last, row.id))
        elif row.dead:
            named.append((now_us + _NAME_KEPT_US, None, row.id))
        else:
            removed.append((row.id,))
    if ended:
        _record(connection, dialect, no, ended, now_us, options)
    for table in ("instep_seen", "instep_sequence_request", "instep_reply"):
        statement = f"DELETE FROM {table} WHERE sequence_no = ?"
        dialect.execute_many(connection, statement, gone)
    dialect.execute_many(connection, _POSTPONE, waiting)
    dialect.execute_many(connection, _EMPTY, named)
    dialect.execute_many(connection, "DELETE FROM instep_sequence WHERE id = ?", removed)
    stay = {id for _, id in waiting}
    return {scope for scope in scopes if ids.get(scope) not in stay}


def _record(
    connection: Connection,
    dialect: Dialect,
    no: int,
    rows: Sequence[Row[Any]],
    now_us: int,
    options: SqlOptions,
) -> None:
    """Record what the states of sequences tell that are forgotten now, and bury what they kept."""
    ended: dict[str, list[tuple[EndedNumbers, int]]] = {}
    reasons = []
    for row in rows:
        state = decode_state(row.state)
        held = Ranges.of_numbers(connection.execute(_HELD, {"id": row.id}).scalars())
        why = f"the sequence was forgotten: {state.reason or state.phase}"
        reasons.append((why, row.id))
        last = max(state.received.last or 0, state.highest_seen, state.announced or 0)
        settled = state.received | state.cancelled | state.faulted.ranges()
        parts = [
            (state.received - held, NumberEnd.DELIVERED, ""),
            (held, NumberEnd.FAILED, why),
            (Ranges.of(*settled.gaps(state.next_number, last)), NumberEnd.LOST, why),
        ]
        ended[row.scope] = [
            (EndedNumbers(low, high, end, reason, epoch=state.epoch), 0)
            for numbers, end, reason in parts
            for low, high in numbers.pairs()
        ]
    number_ends.add(connection, dialect, no, ended, now_us)
    dead_letter.bury_forgotten(connection, dialect, reasons, now_us)
    number_ends.forget(
        connection,
        dialect,
        no,
        list(ended),
        now_us=now_us,
        retention_s=options.numbers_retention_s,
        keep=options.numbers_retention_records,
    )


def _may_have_delivered(row: Row[Any]) -> bool:
    """Whether the sequence of a row of `_FORGETTABLE` may have delivered messages since it was
    opened.
    """
    if not row.state:
        return False
    state = decode_state(row.state)
    return bool(row.unsequenced or state.received or state.epoch)


def _dump(state: SequencerState) -> str:
    # Buffered messages are in the inbox, so that the state stays small.
    if state.buffered:
        state = msgspec.structs.replace(state, buffered=[])
    return msgspec.json.encode(state).decode()


def _releases(change: SequenceChange) -> bool:
    return bool(change.release or change.release_buffered or change.unsequenced)
