"""Reads sequences and delivered messages, and decides about messages in quarantine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from instep.model.messages import StoredMessage
from instep.ports.message_store import OperatorAction
from instep.ports.reader import MessageReader, SequenceCounts, SequenceStatus
from instep.sequencing.state import decode_state
from instep_sql.messages import operator_requests
from instep_sql.messages.inbox import attachments_of

__all__ = ["MessageReading", "give_up_messages"]

T = TypeVar("T")

_SEQUENCES: Final = """
    SELECT q.*, r.consumer,
      q.held_messages AS held,
      (SELECT count(*) FROM instep_inbox AS i WHERE i.sequence_no = q.id AND i.stage = 1) AS waiting
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE q.id > :after AND q.state <> '' AND (:stream = '' OR q.scope = :stream)
      AND (:troubled = 0 OR q.held_messages > 0 OR q.blocked = 1 OR q.error <> ''
           OR q.state LIKE '%"phase":"failed"%')
    ORDER BY q.id LIMIT :size
"""
_COUNTS: Final = text("""
    SELECT r.consumer, count(*) AS sequences, sum(q.held_messages) AS held,
           sum(q.blocked) AS blocked
    FROM instep_sequence AS q JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE q.state <> '' GROUP BY r.consumer ORDER BY r.consumer
""")
_MESSAGES: Final = """
    SELECT m.*, q.scope, r.consumer FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_receiver AS r ON r.id = q.receiver_no
    WHERE m.id > :after AND (:stream = '' OR q.scope = :stream)
      AND (:consumer = '' OR r.consumer = :consumer) ORDER BY m.id LIMIT :size
"""
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
            yield _sequence(row)

    async def count_sequences(self) -> dict[str, SequenceCounts]:
        """See `MessageReader`."""
        rows = await self._fetch(lambda connection: connection.execute(_COUNTS).all())
        return {
            row.consumer: SequenceCounts(row.sequences, int(row.held), row.blocked) for row in rows
        }

    async def messages(
        self, cursor: int = 0, *, consumer: str | None = None, stream: str | None = None
    ) -> AsyncIterator[StoredMessage]:
        """See `MessageReader`."""
        given = {"consumer": consumer or "", "stream": stream or ""}
        async for row in self._paged(_MESSAGES, "id", cursor, given):
            yield _message(row)

    async def request_action(
        self, consumer: str, stream: str, action: OperatorAction, number: int | None = None
    ) -> bool:
        """See `MessageReader`."""

        def work(connection: Connection) -> int:
            self._migrate(connection)
            return operator_requests.add(connection, consumer, stream, action, number)

        return bool(await self._write(work))

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


def _sequence(row: Row[Any]) -> SequenceStatus:
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
    connection: Connection, ids: Sequence[int] | None, stream: str | None, now_us: int
) -> None:
    """Unblock the sequences that wait for messages which are about to be dropped from
    quarantine.
    """
    for id in ids or (None,):
        values: dict[str, Any] = {}
        which = _OF
        if id is not None:
            which, values = f"{_OF} AND id = :id", {"id": id}
        elif stream is not None:
            which, values = f"{_OF} AND scope = :stream", {"stream": stream}
        connection.execute(text(_RELEASED.format(inbox=which)), {**values, "now_us": now_us})
        connection.execute(text(_GONE.format(inbox=which)), values)
