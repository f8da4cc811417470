"""The rows of `instep_inbox` and `instep_message`: messages that wait, and messages delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, text

from instep.message_store import MessageGroup, SequenceChange
from instep.messages import Message
from instep_sql.dialect import Dialect
from instep_sql.options import SqlOptions
from instep_sql.rows import insert_rows, row_values
from instep_sql.sequences import clean

__all__ = ["FAILED", "HELD", "WAITING", "Trimmer", "change_inbox", "deliver_waiting", "seen"]

HELD: Final = 0
"""Behind a gap."""
WAITING: Final = 1
"""Released: for the handler, or for an instant for those that came with it."""
FAILED: Final = 2
"""Its handler has failed for good; it is in quarantine."""

_HIGHEST: Final = 2**63 - 1
_DIGEST_BYTES: Final = 16
_SEEN_AT_ONCE: Final = 500
_TRIM_RECORDS: Final = 1_000

_INTO_INBOX: Final = """
    instep_inbox (sequence_no, epoch, number, stage, message_id, sender, attributes, digest,
                  expires_at_us, received_at_us, kept_at_us, body)"""
_INTO_MESSAGE: Final = """
    instep_message (sequence_no, number, message_id, sender, attributes, received_at_us,
                    delivered_at_us, body)"""
_INTO_SEEN: Final = "instep_seen (sequence_no, digest, seen_at_us)"
_FORGET: Final = """
    DELETE FROM instep_inbox
    WHERE sequence_no = ? AND stage = 0 AND epoch = ? AND number BETWEEN ? AND ?
"""
_RELEASE: Final = """
    UPDATE instep_inbox SET stage = 1
    WHERE sequence_no = ? AND stage = 0 AND epoch = ? AND number <= ?
"""
_DELIVER: Final = f"""
    INSERT INTO {_INTO_MESSAGE}
    SELECT sequence_no, number, message_id, sender, attributes, received_at_us, ?, body
    FROM instep_inbox WHERE sequence_no = ? AND stage = 1 ORDER BY epoch, number, id
"""  # noqa: S608 — constants only
_DELIVERED: Final = "DELETE FROM instep_inbox WHERE sequence_no = ? AND stage = 1"
_ALL_WAITING: Final = text("""
    SELECT DISTINCT i.sequence_no FROM instep_sequence AS q
    JOIN instep_inbox AS i ON i.sequence_no = q.id AND i.stage = 1 WHERE q.stream_no = :no
""")
_NONE_WAITS: Final = text("""
    UPDATE instep_sequence SET deliver_at_us = NULL, blocked = 0, attempts = 0, error = ''
    WHERE stream_no = :no AND (deliver_at_us IS NOT NULL OR blocked = 1)
""")


def change_inbox(
    connection: Connection, dialect: Dialect, group: MessageGroup, numbers: dict[str, int]
) -> None:
    """Forget, keep, release, in this order, for all scopes of a group; `numbers`: scope → row."""
    changes = [(numbers[change.scope], change) for change in group.changes]

    def each(rows: Callable[[int, SequenceChange], Iterable[tuple[Any, ...]]]) -> list[Any]:
        return list(chain.from_iterable(rows(no, change) for no, change in changes))

    dialect.many(connection, _FORGET, each(lambda no, c: ((no, *told) for told in c.forget)))
    now_us, handled = group.now_us, group.handled
    # What was held and what comes with it have to be put in order, and the store does that.
    ordered = {no for no, change in changes if handled or change.release_held}
    kept = each(lambda no, c: (_kept(no, e, HELD, m, now_us) for e, m in c.keep))
    kept += each(
        lambda no, c: (
            (_kept(no, e, WAITING, m, now_us) for e, m in c.release) if no in ordered else ()
        )
    )
    if handled:
        kept += each(lambda no, c: (_kept(no, 0, WAITING, m, now_us) for m in c.passed))
    insert_rows(connection, _INTO_INBOX, kept)
    dialect.many(connection, _RELEASE, each(lambda no, c: ((no, *t) for t in c.release_held)))
    if not handled:
        _deliver(connection, dialect, sorted(ordered), now_us)
        direct = each(
            lambda no, c: (
                _delivered(no, m, now_us)
                for m in chain((m for _, m in c.release if no not in ordered), c.passed)
            )
        )
        insert_rows(connection, _INTO_MESSAGE, direct)
    passed = each(lambda no, c: ((no, _digest(m), now_us) for m in c.passed))
    insert_rows(connection, _INTO_SEEN, passed, "ON CONFLICT (sequence_no, digest) DO NOTHING")


def deliver_waiting(connection: Connection, dialect: Dialect, no: int, now_us: int) -> None:
    """Deliver to the store what waits for a handler that is not there any more."""
    waiting = connection.execute(_ALL_WAITING, {"no": no}).scalars().all()
    _deliver(connection, dialect, waiting, now_us)
    connection.execute(_NONE_WAITS, {"no": no})


def seen(
    connection: Connection, numbers: dict[str, int], messages: Sequence[Message]
) -> set[tuple[str, str]]:
    """(scope, id) of those unsequenced messages that were received before."""
    asked = {
        (numbers[m.scope], _digest(m)): (m.scope, m.id) for m in messages if m.scope in numbers
    }
    keys, found = list(asked), set()
    for first in range(0, len(keys), _SEEN_AT_ONCE):
        some = keys[first : first + _SEEN_AT_ONCE]
        query = (
            "SELECT sequence_no, digest FROM instep_seen "  # noqa: S608 — marks only
            f"WHERE (sequence_no, digest) IN (VALUES {row_values(connection, 2, len(some))})"
        )
        rows = connection.exec_driver_sql(query, tuple(chain.from_iterable(some)))
        found |= {asked[row.sequence_no, bytes(row.digest)] for row in rows}
    return found


class Trimmer:
    """Removes what is over the retention, a bounded piece a commit, yet faster than it grows."""

    def __init__(self, dialect: Dialect, options: SqlOptions) -> None:
        self._dialect = dialect
        self._options = options

    def trim(self, connection: Connection, messages: int, now_us: int) -> None:
        options = self._options
        tables = (
            (
                "instep_message",
                "delivered_at_us",
                options.messages_retention_records,
                options.messages_retention_s,
            ),
            ("instep_seen", "seen_at_us", options.dedup_max_records, options.dedup_retention_s),
        )
        for table, time, keep, age_s in tables:
            limit = 2 * messages + _TRIM_RECORDS
            if keep is not None:
                over = f"id <= (SELECT max(id) FROM {table}) - :keep"  # noqa: S608 — constants only
                self._remove(connection, table, over, limit=limit, keep=keep)
            if age_s is not None:
                over = f"id < (SELECT min(id) FROM {table}) + :limit AND {time} < :before_us"  # noqa: S608
                before_us = now_us - int(age_s * 1_000_000)
                self._remove(connection, table, over, limit=limit, before_us=before_us)

    def _remove(self, connection: Connection, table: str, over: str, **values: int) -> None:
        picked = f"SELECT id FROM {table} WHERE {over} ORDER BY id LIMIT :limit"  # noqa: S608
        statement = f"DELETE FROM {table} WHERE id IN ({picked} {self._dialect.unlocked})"  # noqa: S608
        connection.execute(text(statement), values)


def _deliver(connection: Connection, dialect: Dialect, numbers: Sequence[int], now_us: int) -> None:
    dialect.many(connection, _DELIVER, [(now_us, no) for no in numbers])
    dialect.many(connection, _DELIVERED, [(no,) for no in numbers])


def _kept(no: int, epoch: int, stage: int, message: Message, now_us: int) -> tuple[Any, ...]:
    return (
        no,
        epoch,
        message.number,
        stage,
        clean(message.id),
        clean(message.sender),
        _text(message.attributes),
        message.digest,
        max(0, min(message.expires_at_us, _HIGHEST)),
        message.received_at_us,
        now_us,
        message.body,
    )


def _delivered(no: int, message: Message, now_us: int) -> tuple[Any, ...]:
    return (
        no,
        message.number,
        clean(message.id),
        clean(message.sender),
        _text(message.attributes),
        message.received_at_us,
        now_us,
        message.body,
    )


def _text(attributes: bytes) -> str:
    return clean(attributes.decode(errors="replace"))


def _digest(message: Message) -> bytes:
    return blake2b(message.id.encode(errors="replace"), digest_size=_DIGEST_BYTES).digest()
