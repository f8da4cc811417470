"""Reads sequences and delivered messages, and decides about messages in quarantine."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from instep.model.messages import StoredMessage
from instep.model.ranges import Ranges
from instep.model.storable import storable_text
from instep.ports.reader import DeadMessage, MessageReader, SequenceCounts, SequenceStatus
from instep.sequencing.ends import (
    DecidedBy,
    EndedNumbers,
    NumberEnd,
    RecordedEnd,
    resolve_ends,
)
from instep.sequencing.operator_actions import OperatorAction
from instep.sequencing.state import decode_state
from instep_sql.engine.dialect import Dialect
from instep_sql.messages import number_ends, operator_requests
from instep_sql.messages.dead_letter import DEAD, SIZE
from instep_sql.messages.inbox import attachments_of
from instep_sql.messages.number_ends import end_of, totals

__all__ = ["MessageReading", "give_up_messages"]

T = TypeVar("T")

_SEQUENCES: Final = """
    SELECT q.*, r.consumer,
      q.held_messages AS held,
      (SELECT count(*) FROM instep_inbox AS i WHERE i.sequence_no = q.id AND i.stage = 1) AS waiting
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE q.id > :after AND q.state <> '' AND (:stream = '' OR q.scope = :stream)
      AND (:troubled = 0 OR q.held_messages > 0 OR q.blocked = 1 OR q.error <> ''
           OR q.state LIKE '%"phase":"failed"%'
           OR EXISTS (SELECT 1 FROM instep_number_end AS e
                      WHERE e.receiver_no = q.receiver_no AND e.scope = q.scope
                        AND e.forgotten_at_us IS NULL
                        AND e.ending IN ('lost', 'failed', 'expired')))
    ORDER BY q.id LIMIT :size
"""
_COUNTS: Final = text("""
    SELECT r.id, r.consumer, r.deviations, count(*) AS sequences, sum(q.held_messages) AS held,
           sum(q.blocked) AS blocked
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE q.state <> '' GROUP BY r.id, r.consumer, r.deviations ORDER BY r.consumer
""")
_MESSAGES: Final = """
    SELECT m.*, q.scope, r.consumer FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE m.id > :after AND (:stream = '' OR q.scope = :stream)
      AND (:consumer = '' OR r.consumer = :consumer) ORDER BY m.id LIMIT :size
"""
_DEAD_COUNTS: Final = text(f"""
    SELECT count(*) AS dead, coalesce(sum({SIZE}), 0) AS size_bytes,
           coalesce(min(i.dead_at_us), 0) AS since_us
    FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = {DEAD} AND q.receiver_no = :no
""")
_DEAD_MESSAGES: Final = f"""
    SELECT i.*, q.scope, q.state, q.updated_at_us, r.consumer, coalesce(
        (SELECT e.told FROM instep_number_end AS e
         WHERE e.receiver_no = q.receiver_no AND e.scope = q.scope AND e.epoch = i.epoch
           AND i.number BETWEEN e.low AND e.high AND e.ending = i.ending
         ORDER BY e.id DESC LIMIT 1), '') AS told
    FROM instep_inbox AS i
    JOIN instep_sequence AS q ON q.id = i.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE i.id > :after AND (:stream = '' OR q.scope = :stream)
      AND (:consumer = '' OR r.consumer = :consumer) AND (:only = 0 OR i.id = :only)
      AND (i.stage = {DEAD} OR i.stage = 0 AND q.held_messages > 0
           AND q.state LIKE '%"reason":"%') ORDER BY i.id LIMIT :size
"""
_DROP_DEAD: Final = text(f"""
    DELETE FROM instep_inbox WHERE id = :id AND stage = {DEAD} RETURNING sequence_no
""")
_RECOUNT: Final = text("""
    INSERT INTO instep_sequence_request (sequence_no, action) VALUES (:no, 'recount')
""")
_KNOWN: Final = text("""
    SELECT q.id, q.scope, q.state, r.id AS receiver_no FROM instep_receiver AS r
    LEFT JOIN instep_sequence AS q ON q.receiver_no = r.id AND q.scope = :scope AND q.state <> ''
    WHERE r.consumer = :consumer
""")
_HELD: Final = text("SELECT number FROM instep_inbox WHERE sequence_no = :id AND stage = 0")
_ENDS: Final = text("""
    SELECT * FROM instep_number_end
    WHERE receiver_no = :no AND scope = :scope AND forgotten_at_us IS NULL ORDER BY id
""")
_FORGOTTEN_ENDS: Final = text("""
    SELECT * FROM instep_number_end
    WHERE receiver_no = :no AND scope = :scope AND forgotten_at_us = (
        SELECT max(forgotten_at_us) FROM instep_number_end
        WHERE receiver_no = :no AND scope = :scope) ORDER BY id
""")
_FORGOTTEN: Final = text("""
    SELECT DISTINCT r.consumer, e.scope FROM instep_number_end AS e
    JOIN instep_receiver AS r ON r.id = e.receiver_no
    WHERE e.forgotten_at_us IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM instep_sequence AS q
        WHERE q.receiver_no = e.receiver_no AND q.scope = e.scope AND q.state <> '')
    ORDER BY r.consumer, e.scope
""")
_INBOX: Final = text("SELECT inbox_no FROM instep_quarantine WHERE id = :id")
_AGAIN: Final = text("UPDATE instep_inbox SET stage = 1 WHERE id = :inbox AND stage = 2")
# The consumer finds the sequences that may be delivered; it need not be running now.
_GO_ON: Final = text("""
    UPDATE instep_sequence SET blocked = 0, attempts = 0, deliver_at_us = :now_us
    WHERE id = (SELECT sequence_no FROM instep_inbox WHERE id = :inbox)
""")
_REPLAYED: Final = text("UPDATE instep_quarantine SET replayed_at_us = :now_us WHERE id = :id")
_OF: Final = "SELECT inbox_no FROM instep_quarantine WHERE inbox_no IS NOT NULL"
_RELEASED: Final = """
    UPDATE instep_sequence SET blocked = 0, attempts = 0, deliver_at_us = :now_us
    WHERE id IN (SELECT sequence_no FROM instep_inbox WHERE stage = 2 AND id IN ({inbox}))
"""
_DROPPED: Final = """
    SELECT i.number, i.epoch, q.scope, q.receiver_no FROM instep_inbox AS i
    JOIN instep_sequence AS q ON q.id = i.sequence_no
    WHERE i.stage = 2 AND i.number >= 0 AND i.id IN ({inbox})
"""
_GONE: Final = "DELETE FROM instep_inbox WHERE stage = 2 AND id IN ({inbox})"


class MessageReading(MessageReader):
    """The part of `SqlReader` that reads numbered messages."""

    _clock_us: Callable[[], int]

    async def sequences(
        self, *, stream: str | None = None, troubled: bool = False
    ) -> AsyncIterator[SequenceStatus]:
        """See `MessageReader`."""
        given = {"stream": stream or "", "troubled": int(troubled)}
        async for row in self._paged(_SEQUENCES, "id", 0, given):
            held, ends = await self._fetch(partial(_record_of, row))
            yield _sequence(row, held, ends)

    async def count_sequences(self) -> dict[str, SequenceCounts]:
        """See `MessageReader`."""
        return await self._fetch(_counts)

    async def consumers_of_messages(self) -> list[str]:
        """See `MessageReader`."""
        query = text("SELECT consumer FROM instep_receiver ORDER BY consumer")
        return await self._fetch(lambda connection: list(connection.execute(query).scalars()))

    async def messages(
        self, cursor: int = 0, *, consumer: str | None = None, stream: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """See `MessageReader`."""
        given = {"consumer": consumer or "", "stream": stream or ""}
        async for row in self._paged(_MESSAGES, "id", cursor, given):
            yield _message(row)

    async def request_action(
        self, consumer: str, stream: str, action: OperatorAction, number: int | None = None
    ) -> int:
        """See `MessageReader`."""

        def work(connection: Connection) -> int:
            self._migrate(connection)
            return operator_requests.add(connection, consumer, stream, action, number) or 0

        return await self._write(work)

    async def action_outcome(self, id: int) -> str:
        """See `MessageReader`."""
        return await self._fetch(lambda connection: operator_requests.outcome(connection, id)) or ""

    async def numbers(self, consumer: str, stream: str) -> list[RecordedEnd]:
        """See `MessageReader`."""

        def find(connection: Connection) -> list[RecordedEnd]:
            given = {"consumer": consumer, "scope": storable_text(stream)}
            known = connection.execute(_KNOWN, given).one_or_none()
            if known is None:
                return []
            of = {"no": known.receiver_no, "scope": given["scope"]}
            if known.id is None:
                forgotten = connection.execute(_FORGOTTEN_ENDS, of)
                return resolve_ends(None, Ranges(), map(end_of, forgotten))
            held, ends = _record_of(known, connection)
            return resolve_ends(decode_state(known.state), held, ends)

        return await self._fetch(find)

    async def forgotten_sequences(self) -> list[tuple[str, str]]:
        """See `MessageReader`."""
        return await self._fetch(
            lambda connection: [tuple(row) for row in connection.execute(_FORGOTTEN)]
        )

    async def dead_messages(
        self, *, consumer: str | None = None, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[DeadMessage]:
        """See `MessageReader`."""
        given = {"consumer": consumer or "", "stream": stream or "", "only": id or 0}
        async for row in self._paged(_DEAD_MESSAGES, "id", 0, given):
            yield _dead_message(row)

    async def drop_dead(self, ids: Sequence[int]) -> int:
        """See `MessageReader`."""

        def work(connection: Connection) -> int:
            self._migrate(connection)
            rows = [connection.execute(_DROP_DEAD, {"id": id}).one_or_none() for id in ids]
            gone = [row.sequence_no for row in rows if row is not None]
            for no in set(gone):
                # Whichever process receives has room again.
                connection.execute(_RECOUNT, {"no": no})
            return len(gone)

        return await self._write(work)

    async def deliver_again(self, id: int) -> bool:
        """See `MessageReader`."""
        now_us = self._clock_us()
        return bool(await self._write(lambda connection: _deliver_again(connection, id, now_us)))

    @abstractmethod
    def _migrate(self, connection: Connection) -> None: ...

    @abstractmethod
    def _paged(
        self, query: str, order: str, after: int, given: dict[str, Any]
    ) -> AsyncIterator[Row[Any]]: ...

    @abstractmethod
    async def _fetch(self, query: Callable[[Connection], T]) -> T: ...

    @abstractmethod
    async def _write(self, work: Callable[[Connection], int]) -> int: ...


def _message(row: Row[Any]) -> StoredMessage:
    """A row of `_MESSAGES`."""
    return StoredMessage(
        cursor=row.id,
        stream=row.scope,
        number=row.number,
        id=row.message_id,
        sender=row.sender,
        received_at_us=row.received_at_us,
        delivered_at_us=row.delivered_at_us,
        body=bytes(row.body),
        attributes=row.attributes.encode(),
        attachments=attachments_of(row),
        consumer=row.consumer,
    )


def _counts(connection: Connection) -> dict[str, SequenceCounts]:
    found = {}
    for row in connection.execute(_COUNTS).all():
        dead = connection.execute(_DEAD_COUNTS, {"no": row.id}).one()
        found[row.consumer] = SequenceCounts(
            row.sequences,
            int(row.held),
            row.blocked,
            dead.dead,
            int(dead.size_bytes),
            dead.since_us,
            totals(connection, row.id),
            json.loads(row.deviations),
        )
    return found


def _record_of(row: Row[Any], connection: Connection) -> tuple[Ranges, tuple[RecordedEnd, ...]]:
    """The numbers that a sequence has buffered, and the record of the others."""
    held = Ranges.of_numbers(connection.execute(_HELD, {"id": row.id}).scalars())
    ends = connection.execute(_ENDS, {"no": row.receiver_no, "scope": row.scope})
    return held, tuple(map(end_of, ends))


def _dead_message(row: Row[Any]) -> DeadMessage:
    """A row of `_DEAD_MESSAGES`."""
    frozen = row.stage == 0
    return DeadMessage(
        id=row.id,
        consumer=row.consumer,
        stream=row.scope,
        number=row.number,
        message_id=row.message_id,
        sender=row.sender,
        received_at_us=row.received_at_us,
        end="failed" if frozen else row.ending,
        reason=decode_state(row.state).reason if frozen else row.reason,
        by="receiver" if frozen else row.decided_by,
        dead_at_us=row.updated_at_us if frozen else row.dead_at_us,
        told="" if frozen else row.told,
        frozen=frozen,
        discarded=bool(row.discarded),
        body=bytes(row.body),
        attributes=row.attributes.encode(),
        attachments=attachments_of(row),
    )


def _sequence(row: Row[Any], held: Ranges, ends: tuple[RecordedEnd, ...]) -> SequenceStatus:
    """A row of `_SEQUENCES`."""
    return SequenceStatus(
        consumer=row.consumer,
        stream=row.scope,
        state=decode_state(row.state),
        held=row.held,
        waiting=row.waiting,
        blocked=bool(row.blocked),
        error=row.error,
        updated_at_us=row.updated_at_us,
        due_us=row.due_us,
        held_numbers=held,
        record=ends,
    )


def _deliver_again(connection: Connection, id: int, now_us: int) -> bool:
    """Let the handler try a message in quarantine again; False where there is no such message."""
    inbox = connection.execute(_INBOX, {"id": id}).scalar()
    if inbox is None:
        return False
    connection.execute(_AGAIN, {"inbox": inbox})
    connection.execute(_GO_ON, {"inbox": inbox, "now_us": now_us})
    connection.execute(_REPLAYED, {"id": id, "now_us": now_us})
    return True


def give_up_messages(
    connection: Connection,
    dialect: Dialect,
    ids: Sequence[int] | None,
    stream: str | None,
    now_us: int,
) -> None:
    """Unblock the sequences that wait for messages which are about to be dropped from quarantine,
    and record how these have ended (S13).
    """
    for id in ids or (None,):
        values: dict[str, Any] = {}
        which = _OF
        if id is not None:
            which, values = f"{_OF} AND id = :id", {"id": id}
        elif stream is not None:
            which, values = f"{_OF} AND scope = :stream", {"stream": stream}
        for row in connection.execute(text(_DROPPED.format(inbox=which)), values).all():
            why = "the handler failed, and it was dropped from quarantine"
            end = EndedNumbers(
                row.number, row.number, NumberEnd.FAILED, why, DecidedBy.OPERATOR, row.epoch
            )
            number_ends.add(connection, dialect, row.receiver_no, {row.scope: [(end, 0)]}, now_us)
        connection.execute(text(_RELEASED.format(inbox=which)), {**values, "now_us": now_us})
        connection.execute(text(_GONE.format(inbox=which)), values)
