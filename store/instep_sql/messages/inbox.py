"""The rows of `instep_inbox` and `instep_message`: messages that wait, and messages delivered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from instep.model.messages import Attachment, Message
from instep.model.storable import storable_text
from instep.ports.message_store import MessageGroup
from instep_sql.engine.bulk_writes import StoredTable, insert_sql, row_values, typed
from instep_sql.engine.dialect import Dialect
from instep_sql.messages import dead_letter

__all__ = [
    "FAILED",
    "HELD",
    "WAITING",
    "apply_group",
    "attachments_of",
    "content_key",
    "count_messages",
    "deliver_waiting",
    "digests",
    "remember",
    "replay",
    "seen",
]

HELD: Final = 0
"""Buffered behind a gap."""
WAITING: Final = 1
"""Released: it waits for the handler or, without one, moves on within the same transaction."""
FAILED: Final = 2
"""Its handler has failed for good; it is in quarantine."""

_HIGHEST: Final = 2**63 - 1
_DIGEST_BYTES: Final = 16
_KEY_BYTES: Final = 8
_SEEN_AT_ONCE: Final = 500

_encode: Final = msgspec.json.Encoder().encode
_decode_attachments: Final = msgspec.json.Decoder(tuple[Attachment, ...]).decode

_INBOX: Final = StoredTable(
    "instep_inbox",
    {
        **typed(int, "sequence_no", "epoch", "number", "stage"),
        **typed(str, "message_id", "sender", "attributes"),
        **typed(bytes, "digest"),
        **typed(int, "expires_at_us", "received_at_us", "buffered_at_us"),
        **typed(bytes, "body"),
        **typed(str, "attachments"),
    },
    shared=("buffered_at_us", "attachments"),
)
_DEAD: Final = StoredTable(
    "instep_inbox",
    {
        **_INBOX.columns,
        **typed(str, "ending", "reason", "decided_by"),
        **typed(int, "dead_at_us", "discarded"),
    },
)
_MESSAGES: Final = StoredTable(
    "instep_message",
    {
        **typed(int, "sequence_no", "number"),
        **typed(str, "message_id", "sender", "attributes"),
        **typed(int, "received_at_us", "delivered_at_us"),
        **typed(bytes, "body", "digest"),
        **typed(str, "attachments"),
    },
    shared=("delivered_at_us", "attachments"),
)
_SEEN: Final = StoredTable(
    "instep_seen",
    {"sequence_no": int, "digest": bytes, "seen_at_us": int},
    key=("sequence_no", "digest"),
)
_TAKEN: Final = text("""
    SELECT digest FROM instep_seen
    WHERE sequence_no = :no AND digest >= :low AND digest <= :high ORDER BY seen_at_us
""")
_RELEASE: Final = """
    UPDATE instep_inbox SET stage = 1
    WHERE sequence_no = ? AND stage = 0 AND epoch = ? AND number <= ?
"""
_DELIVER: Final = f"""
    {insert_sql(_MESSAGES)}
    SELECT sequence_no, number, message_id, sender, attributes, received_at_us, ?, body, digest,
           attachments
    FROM instep_inbox WHERE sequence_no = ? AND stage = 1 ORDER BY epoch, number, id
"""
_DELIVERED: Final = "DELETE FROM instep_inbox WHERE sequence_no = ? AND stage = 1"
_ALL_WAITING: Final = text("""
    SELECT DISTINCT i.sequence_no FROM instep_sequence AS q
    JOIN instep_inbox AS i ON i.sequence_no = q.id AND i.stage = 1 WHERE q.receiver_no = :no
""")
_NONE_WAITS: Final = text("""
    UPDATE instep_sequence SET deliver_at_us = NULL, blocked = 0, attempts = 0, error = ''
    WHERE receiver_no = :no AND (deliver_at_us IS NOT NULL OR blocked = 1)
""")


def apply_group(
    connection: Connection, dialect: Dialect, group: MessageGroup, row_ids: dict[str, int]
) -> None:
    """Bury, keep, release, in this order, for all scopes of a group; `row_ids`: scope → row."""
    now_us, handled = group.now_us, group.handled
    dead, kept, released, delivered, unsequenced = [], [], [], [], []
    ordered: list[int] = []
    for change in group.changes:
        no = row_ids[change.scope]
        for message, end in change.dead:
            row = _kept(no, end.epoch, dead_letter.DEAD, message, now_us)
            dead.append(row + dead_letter.dead_values(end, now_us))
        kept += [_kept(no, epoch, HELD, message, now_us) for epoch, message in change.keep]
        released += [(no, *told) for told in change.release_buffered]
        if handled or change.release_buffered:
            # The database puts the buffered and the new messages in order.
            ordered.append(no)
            kept += [
                _kept(no, epoch, WAITING, message, now_us) for epoch, message in change.release
            ]
        else:
            delivered += [_delivered(no, message, now_us) for _, message in change.release]
        if change.unsequenced:
            unsequenced += [(no, _digest(message), now_us) for message in change.unsequenced]
            if handled:
                kept += [_kept(no, 0, WAITING, message, now_us) for message in change.unsequenced]
            else:
                delivered += [_delivered(no, message, now_us) for message in change.unsequenced]
    dead_letter.bury(connection, dialect, group, row_ids)
    dialect.insert_rows(connection, _DEAD, dead)
    dialect.insert_rows(connection, _INBOX, kept)
    dialect.execute_many(connection, _RELEASE, released)
    if not handled:
        _deliver(connection, dialect, ordered, now_us)
        dialect.insert_rows(connection, _MESSAGES, delivered)
    dialect.insert_rows(connection, _SEEN, unsequenced, ignore_existing=True)


def count_messages(group: MessageGroup) -> int:
    """The number of new messages in a group."""
    return sum([len(c.keep) + len(c.release) + len(c.unsequenced) for c in group.changes])


def replay(connection: Connection, dialect: Dialect, no: int, group: MessageGroup) -> None:
    """Deliver messages of the dead letter, to the handler or to the store."""
    sequences = [
        dead_letter.replay(connection, dialect, no, id, group.now_us) for id in group.replay
    ]
    if not group.handled:
        _deliver(connection, dialect, list(dict.fromkeys(sequences)), group.now_us)


def deliver_waiting(connection: Connection, dialect: Dialect, no: int, now_us: int) -> None:
    """Deliver messages to the store that wait for a handler which no longer exists."""
    waiting = connection.execute(_ALL_WAITING, {"no": no}).scalars().all()
    _deliver(connection, dialect, waiting, now_us)
    connection.execute(_NONE_WAITS, {"no": no})


def seen(
    connection: Connection, row_ids: dict[str, int], messages: Sequence[Message]
) -> set[tuple[str, str]]:
    """(scope, id) of those unsequenced messages that were received before."""
    asked = {
        (row_ids[m.scope], _digest(m)): (m.scope, m.id) for m in messages if m.scope in row_ids
    }
    keys, found = list(asked), set()
    for first in range(0, len(keys), _SEEN_AT_ONCE):
        some = keys[first : first + _SEEN_AT_ONCE]
        query = (
            "SELECT sequence_no, digest FROM instep_seen "
            f"WHERE (sequence_no, digest) IN (VALUES {row_values(connection, 2, len(some))})"
        )
        rows = connection.exec_driver_sql(query, tuple(chain.from_iterable(some)))
        found |= {asked[row.sequence_no, bytes(row.digest)] for row in rows}
    return found


def digests(
    connection: Connection, row_ids: dict[str, int], numbers: Mapping[str, Collection[int]]
) -> dict[tuple[str, int], bytes]:
    """Scope and number → digest of the messages that are kept; row_ids: scope → row."""
    asked = {
        (row_ids[s], number): (s, number) for s in numbers if s in row_ids for number in numbers[s]
    }
    keys, found = list(asked), dict[tuple[str, int], bytes]()
    for first in range(0, len(keys), _SEEN_AT_ONCE):
        some = keys[first : first + _SEEN_AT_ONCE]
        marks = row_values(connection, 2, len(some))
        # The newest row of a number belongs to the current epoch.
        for table, more in (("instep_message", ""), ("instep_inbox", "AND stage > 0")):
            query = (
                f"SELECT sequence_no, number, digest FROM {table} "
                f"WHERE (sequence_no, number) IN (VALUES {marks}) {more} ORDER BY id"
            )
            for row in connection.exec_driver_sql(query, tuple(chain.from_iterable(some))):
                if row.digest:
                    found[asked[row.sequence_no, row.number]] = bytes(row.digest)
    for sequence_no, number in keys:
        of_number = {"no": sequence_no, "low": content_key(number, b"")}
        of_number["high"] = content_key(number, b"\xff" * _KEY_BYTES)
        for key in connection.execute(_TAKEN, of_number).scalars():
            found[asked[sequence_no, number]] = bytes(key)[_KEY_BYTES:]
    return found


def content_key(number: int, digest: bytes) -> bytes:
    """The key in `instep_seen` of a numbered message that a handler took: number, then digest. The
    keys of one number are a range, in which a copy finds the content that counted (S7).
    """
    return number.to_bytes(_KEY_BYTES) + digest[:_KEY_BYTES]


def remember(
    connection: Connection, dialect: Dialect, sequence_no: int, keys: Sequence[bytes], now_us: int
) -> None:
    """Keep the keys of numbered messages that the handler took."""
    rows = [(sequence_no, key, now_us) for key in keys]
    dialect.insert_rows(connection, _SEEN, rows, ignore_existing=True)


def _deliver(connection: Connection, dialect: Dialect, row_ids: Sequence[int], now_us: int) -> None:
    dialect.execute_many(connection, _DELIVER, [(now_us, no) for no in row_ids])
    dialect.execute_many(connection, _DELIVERED, [(no,) for no in row_ids])


def _kept(no: int, epoch: int, stage: int, message: Message, now_us: int) -> tuple[Any, ...]:
    return (
        no,
        epoch,
        message.number,
        stage,
        storable_text(message.id),
        storable_text(message.sender),
        _text(message.attributes),
        message.digest,
        max(0, min(message.expires_at_us, _HIGHEST)),
        message.received_at_us,
        now_us,
        message.body,
        _stored(message.attachments),
    )


def _delivered(no: int, message: Message, now_us: int) -> tuple[Any, ...]:
    return (
        no,
        message.number,
        storable_text(message.id),
        storable_text(message.sender),
        _text(message.attributes),
        message.received_at_us,
        now_us,
        message.body,
        message.digest or None,
        _stored(message.attachments),
    )


def attachments_of(row: Row[Any]) -> tuple[Attachment, ...]:
    """The attachments of a message that a row keeps."""
    return () if row.attachments is None else _decode_attachments(row.attachments)


def _stored(attachments: tuple[Attachment, ...]) -> str | None:
    """Attachments as JSON, with their contents in base64; None: there is none, as mostly."""
    return storable_text(_encode(attachments).decode()) if attachments else None


def _text(attributes: bytes) -> str:
    return storable_text(attributes.decode(errors="replace"))


def _digest(message: Message) -> bytes:
    return blake2b(message.id.encode(errors="replace"), digest_size=_DIGEST_BYTES).digest()
