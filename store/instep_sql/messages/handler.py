"""Delivers waiting messages to the user's handler, in the transaction that marks them delivered.

Each message has a savepoint of its own: the statements of a failed handler are rolled back, and
other messages are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, NestedTransaction, Row, text

from instep.errors import SinkError
from instep.model.messages import Message
from instep.ports.message_store import (
    Deliver,
    DeliveryResult,
    DeliveryStoppedError,
    FailedDelivery,
    HandlerFailure,
)
from instep_sql.engine.database import Transaction
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.user_statements import execution
from instep_sql.entities.quarantine import make_room_for_message
from instep_sql.messages.inbox import FAILED, attachments_of, content_key, remember
from instep_sql.messages.replies import keep as keep_replies
from instep_sql.messages.retention import Trimmer
from instep_sql.options import SqlOptions

__all__ = ["PendingDeliveries", "deliver", "pending_deliveries"]

T = TypeVar("T")

_SCOPES_AT_ONCE: Final = 32
_BLOCKED_SHOWN: Final = 100
_FULL_RETRY_US: Final = 30_000_000

_NEXT: Final = text("SELECT min(deliver_at_us) FROM instep_sequence WHERE receiver_no = :no")
_BLOCKED: Final = text("""
    SELECT scope FROM instep_sequence
    WHERE receiver_no = :no AND blocked = 1 ORDER BY id LIMIT :limit
""")
_READY: Final = text("""
    SELECT id, scope, attempts, error FROM instep_sequence
    WHERE receiver_no = :no AND deliver_at_us <= :now_us ORDER BY deliver_at_us, id LIMIT :limit
""")
_WAITING: Final = text("""
    SELECT * FROM instep_inbox WHERE sequence_no = :sequence AND stage = 1
    ORDER BY epoch, number, id LIMIT :limit
""")
_DELIVERED: Final = "DELETE FROM instep_inbox WHERE id = ?"
_FAILED: Final = text("UPDATE instep_inbox SET stage = :stage WHERE id = :id")
_AFTER: Final = text("""
    UPDATE instep_sequence
    SET deliver_at_us = :at_us, attempts = :attempts, blocked = :blocked, error = :error
    WHERE id = :id
""")
_QUARANTINE: Final = text("""
    INSERT INTO instep_quarantine (receiver_no, reason, token, received_at_us, raw, scope, inbox_no)
    VALUES (:no, :reason, :token, :now_us, :raw, :scope, :inbox)
""")


class PendingDeliveries(msgspec.Struct, frozen=True):
    """When there is something to deliver, and which sequences are blocked."""

    next_us: int | None
    blocked: list[str]


def pending_deliveries(connection: Connection, no: int) -> PendingDeliveries:
    """Read what is to be delivered, without a write."""
    blocked = connection.execute(_BLOCKED, {"no": no, "limit": _BLOCKED_SHOWN}).scalars()
    return PendingDeliveries(connection.execute(_NEXT, {"no": no}).scalar(), list(blocked))


async def deliver(
    transaction: Transaction,
    dialect: Dialect,
    options: SqlOptions,
    no: int,
    handler: Deliver,
    *,
    trimmer: Trimmer,
    now_us: int,
    limit_messages: int,
) -> DeliveryResult:
    """Deliver messages that are ready, up to the limit; the longest waiting sequence goes first.

    A sequence stops at its first message that fails, unless that goes to quarantine and the next
    one may follow.
    """
    steps = _Steps(transaction)
    delivery = _Delivery(steps, dialect, options, no, now_us)
    for sequence, rows, whole in await steps.run(
        lambda connection: _ready(connection, no, now_us, limit_messages)
    ):
        await delivery.deliver(handler, sequence, rows, whole=whole)
        if delivery.stopped:
            break
    if delivery.remembered or delivery.replied:
        steps.later(
            lambda connection: trimmer.trim_handled(
                connection, now_us, new_seen=delivery.remembered, new_replies=delivery.replied
            )
        )
    last = await steps.run(lambda connection: pending_deliveries(connection, no))
    delivery.done.next_us, delivery.done.blocked = last.next_us, last.blocked
    return delivery.done


def _ready(
    connection: Connection, no: int, now_us: int, limit: int
) -> list[tuple[Row[Any], Sequence[Row[Any]], bool]]:
    """Sequences that are ready, with their messages, and whether these are all of the sequence."""
    found = []
    values = {"no": no, "now_us": now_us, "limit": _SCOPES_AT_ONCE}
    for sequence in connection.execute(_READY, values).all():
        if limit <= 0:
            break
        wanted = {"sequence": sequence.id, "limit": limit}
        rows = connection.execute(_WAITING, wanted).all()
        found.append((sequence, rows, len(rows) < limit))
        limit -= len(rows)
    return found


class _Steps:
    """Runs the steps of a transaction in its thread. A step can be deferred to the next one,
    because each run costs a change of thread.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._later: list[Callable[[Connection], object]] = []
        self.broken: SinkError | None = None
        """The error that ends the whole transaction, even where a handler catches it."""

    def later(self, work: Callable[[Connection], object]) -> None:
        """Defer a step: it runs before the next one."""
        self._later.append(work)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run a step now, after the deferred ones. Raises `SinkError`."""
        if self.broken is not None:
            raise self.broken
        before, self._later = self._later, []
        settled = False

        def all_of_it(connection: Connection) -> T:
            nonlocal settled
            for one in before:
                one(connection)
            settled = True
            return work(connection)

        def look(done: asyncio.Future[T]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, SinkError) and (error.retriable or not settled):
                self.broken = error

        done = self._transaction.run(all_of_it)
        # The callback runs even when the handler no longer waits for the step.
        done.add_done_callback(look)
        # A step runs even when its handler no longer waits, or `before` would be lost.
        return await asyncio.shield(done)


class _Delivery:
    """One transaction of deliveries."""

    def __init__(
        self,
        steps: _Steps,
        dialect: Dialect,
        options: SqlOptions,
        no: int,
        now_us: int,
    ) -> None:
        self.done = DeliveryResult()
        self.remembered = 0
        """How many messages a copy can be compared with from now on."""
        self.replied = 0
        """How many replies were kept."""
        self.stopped = False
        """Whether the handler takes no more messages."""
        self._steps = steps
        self._dialect = dialect
        self._options = options
        self._no = no
        self._now_us = now_us

    async def deliver(
        self, handler: Deliver, sequence: Row[Any], rows: Sequence[Row[Any]], *, whole: bool
    ) -> None:
        """Deliver messages of one sequence, in order."""
        scope: str = sequence.scope
        attempts: int = sequence.attempts
        after = {"at_us": None if whole else self._now_us, "attempts": 0, "blocked": 0, "error": ""}
        done: list[tuple[Row[Any], bytes | None]] = []
        left = 0
        for row in rows:
            outcome = await self._call(handler, scope, row, attempts)
            if self.stopped:
                after |= {"at_us": self._now_us, "attempts": attempts}
                if attempts:
                    after["error"] = sequence.error
                break
            if not isinstance(outcome, HandlerFailure):
                done.append((row, outcome))
                attempts = 0
                continue
            failure = outcome
            if failure.retry_at_us is None:
                failure = await self._quarantined(scope, row, failure)
            self.done.failed.append(FailedDelivery(scope, row.number, row.message_id, failure))
            if failure.retry_at_us is not None:
                after |= {"at_us": failure.retry_at_us, "attempts": attempts + 1}
                after["error"] = failure.reason
                break
            left += 1
            attempts = 0
            if failure.blocks:
                after |= {"at_us": None, "blocked": 1, "error": failure.reason}
                break
        self._record(sequence.id, done, after)
        if done or left:
            self.done.delivered[scope] = len(done) + left

    async def _call(
        self, handler: Deliver, scope: str, row: Row[Any], attempts: int
    ) -> HandlerFailure | bytes | None:
        """Call the handler with one message; its statements count only where it succeeds."""
        connection = _HandlerConnection(self._steps)
        outcome: HandlerFailure | bytes | None = None
        try:
            outcome = await handler(_message(scope, row), attempts, connection)
        except DeliveryStoppedError:
            self.stopped = True
        connection.end(keep=not self.stopped and not isinstance(outcome, HandlerFailure))
        return outcome

    def _record(
        self,
        sequence_no: int,
        done: Sequence[tuple[Row[Any], bytes | None]],
        after: Mapping[str, object],
    ) -> None:
        """Record what was delivered of one sequence, with the replies, and when it continues."""
        gone = [(row.id,) for row, _ in done]
        numbered = [(row, reply) for row, reply in done if row.number >= 0]
        keys = [content_key(row.number, row.digest) for row, _ in numbered if row.digest]
        replies = [
            (sequence_no, row.number, self._now_us, reply)
            for row, reply in numbered
            if reply is not None
        ]
        later = self._steps.later
        later(lambda connection: self._dialect.execute_many(connection, _DELIVERED, gone))
        if keys:
            later(
                lambda connection: remember(
                    connection, self._dialect, sequence_no, keys, self._now_us
                )
            )
            self.remembered += len(keys)
        later(lambda connection: connection.execute(_AFTER, {"id": sequence_no, **after}))
        if replies:
            later(lambda connection: keep_replies(connection, self._dialect, replies))
            self.replied += len(replies)

    async def _quarantined(
        self, scope: str, row: Row[Any], failure: HandlerFailure
    ) -> HandlerFailure:
        """Put a message into quarantine; where there is no room, it is tried again later."""
        values = {
            "no": self._no,
            "reason": failure.reason,
            "token": f"{row.number} {row.message_id}" if row.number >= 0 else row.message_id,
            "now_us": row.received_at_us,
            "raw": row.body,
            "scope": scope,
            "inbox": row.id,
        }

        def work(connection: Connection) -> bool:
            more_bytes = len(row.body) + len(row.attachments or "")
            if not make_room_for_message(
                connection, self._no, self._options, more_bytes=more_bytes
            ):
                return False
            connection.execute(_QUARANTINE, values)
            connection.execute(_FAILED, {"stage": FAILED, "id": row.id})
            return True

        if await self._steps.run(work):
            return failure
        later_us = self._now_us + _FULL_RETRY_US
        return HandlerFailure(f"the quarantine is full; {failure.reason}", later_us, blocks=False)


class _HandlerConnection:
    """Implements `instep.ports.message_store.HandlerConnection`: a savepoint in a transaction of
    the store.
    """

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._savepoint: NestedTransaction | None = None
        self._used = self._over = False

    async def execute(
        self,
        statement: Any,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """See `HandlerConnection`. Raises SQLAlchemy's errors, and `SinkError` where the database
        is unavailable, or where the text would end the transaction of the store.
        """
        return await self.run_sync(execution(statement, parameters))

    async def run_sync(self, work: Callable[[Any], T]) -> T:
        """See `HandlerConnection`."""
        if self._over:
            raise SinkError(
                "the transaction of this message is over",
                hint="use the connection only until the handler returns",
            )
        self._used = True

        def inside(connection: Connection) -> T:
            if self._savepoint is None:
                self._savepoint = connection.begin_nested()
            return work(connection)

        try:
            return await self._steps.run(inside)
        except SinkError as error:
            if self._steps.broken is None and error.__cause__ is not None:
                raise error.__cause__ from None
            raise

    def end(self, *, keep: bool) -> None:
        """Release the savepoint, or roll the handler's statements back. Raises `SinkError` where
        the database is unavailable.
        """
        self._over = True
        if self._steps.broken is not None:
            raise self._steps.broken
        if self._used:
            self._steps.later(lambda _: self._settle(keep=keep))

    def _settle(self, *, keep: bool) -> None:
        # A step that was cancelled before it began has made no savepoint.
        if self._savepoint is None:
            return
        if keep:
            self._savepoint.commit()
        else:
            self._savepoint.rollback()


def _message(scope: str, row: Row[Any]) -> Message:
    return Message(
        scope=scope,
        number=row.number,
        id=row.message_id,
        body=bytes(row.body),
        received_at_us=row.received_at_us,
        expires_at_us=row.expires_at_us,
        digest=bytes(row.digest),
        sender=row.sender,
        attributes=row.attributes.encode(),
        attachments=attachments_of(row),
    )
