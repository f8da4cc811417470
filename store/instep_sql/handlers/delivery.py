"""Gives handlers what the journal has for them, in the caller's transaction."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, NestedTransaction, Row, text
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError, plain
from instep.model.entities import Change
from instep.model.storable import without_nul
from instep.ports.message_store import HandlerFailure
from instep.runtime.messages.handler import after_failure
from instep_sql.engine.dialect import Dialect, FailureKind
from instep_sql.entities.journal_epochs import JournalEpochs, read_epochs
from instep_sql.handlers.handler import ChangeHandler
from instep_sql.handlers.loop_call import CallEndedError, call_in_loop
from instep_sql.stored_changes import stored_change

__all__ = ["deliver"]

_log = logging.getLogger("instep.sql")
_PAGE_CHANGES: Final = 500
_MOST_AT_ONCE: Final = 20_000
"""Changes given in one transaction: what has piled up beyond that follows in the next ones."""
_MOST_FAILED: Final = 10_000
"""Failed changes kept of one handler and stream: with more, the next one is tried again later."""
_FULL_RETRY_US: Final = 30_000_000
_REASON_CHARS: Final = 500

_STATE: Final = text("""
    SELECT cursor, attempts, retry_at_us, error, missed FROM instep_handler
    WHERE name = :name AND stream_no = :no
""")
_SAVE: Final = text("""
    INSERT INTO instep_handler
    VALUES (:name, :no, :cursor, :attempts, :retry_at_us, :error, :missed, :now_us)
    ON CONFLICT (name, stream_no) DO UPDATE
    SET cursor = excluded.cursor, attempts = excluded.attempts, retry_at_us = excluded.retry_at_us,
        error = excluded.error, missed = excluded.missed, updated_at_us = excluded.updated_at_us
""")
_BLOCKED: Final = text("""
    SELECT 1 FROM instep_failed_change
    WHERE name = :name AND stream_no = :no AND blocks = 1 LIMIT 1
""")
_AGAIN: Final = text("""
    SELECT id, change FROM instep_failed_change
    WHERE name = :name AND stream_no = :no AND again = 1 ORDER BY id
""")
_HANDLED: Final = text("DELETE FROM instep_failed_change WHERE id = :id")
_FAILED_AGAIN: Final = text("""
    UPDATE instep_failed_change SET again = 0, reason = :reason, failed_at_us = :now_us
    WHERE id = :id
""")
_COUNT: Final = text(
    "SELECT count(*) FROM instep_failed_change WHERE name = :name AND stream_no = :no"
)
_KEEP: Final = text("""
    INSERT INTO instep_failed_change (name, stream_no, blocks, again, reason, failed_at_us, change)
    VALUES (:name, :no, :blocks, 0, :reason, :now_us, :change)
""")
_CHANGES: Final = text("""
    SELECT t.*, s.consumer, s.stream
    FROM instep_change AS t JOIN instep_stream AS s ON s.id = t.stream_no
    WHERE t.cursor > :after AND t.stream_no = :no ORDER BY t.cursor LIMIT :limit
""")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Change).decode


class _State(msgspec.Struct):
    cursor: int = 0
    attempts: int = 0
    retry_at_us: int | None = None
    error: str = ""
    missed: str = ""


def deliver(
    connection: Connection,
    dialect: Dialect,
    handler: ChangeHandler,
    no: int,
    loop: asyncio.AbstractEventLoop,
    now_us: int,
    rng: random.Random,
) -> int | None:
    """Give a handler what the journal has of a stream, in the transaction of the caller, who has
    locked the stream. Returns when to come again, in microseconds since 1970; None: with the next
    commit.

    Raises where the database fails, so that the transaction is rolled back.
    """
    delivery = _Delivery(connection, dialect, handler, no, loop, now_us, rng)
    return delivery.run()


class _Delivery:
    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        handler: ChangeHandler,
        no: int,
        loop: asyncio.AbstractEventLoop,
        now_us: int,
        rng: random.Random,
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._handler = handler
        self._no = no
        self._loop = loop
        self._now_us = now_us
        self._rng = rng
        self._of = {"name": handler.name, "no": no}
        row = connection.execute(_STATE, self._of).one_or_none()
        self._state = _State() if row is None else _State(*row)
        self._before = None if row is None else msgspec.structs.replace(self._state)

    def run(self) -> int | None:
        self._try_failed_again()
        if self._connection.execute(_BLOCKED, self._of).first() is not None:
            return None
        if (self._state.retry_at_us or 0) > self._now_us:
            return self._state.retry_at_us
        self._state.retry_at_us = None
        if not self._state.attempts:
            self._state.error = ""
        at_us = self._go_on()
        if self._state != self._before:
            values = msgspec.structs.asdict(self._state)
            self._connection.execute(_SAVE, {**self._of, **values, "now_us": self._now_us})
        return at_us

    def _go_on(self) -> int | None:
        given = 0
        epochs: JournalEpochs | None = None
        while given < _MOST_AT_ONCE:
            where = {"after": self._state.cursor, "no": self._no, "limit": _PAGE_CHANGES}
            rows = self._connection.execute(_CHANGES, where).all()
            if rows:
                if epochs is None:
                    epochs = read_epochs(self._connection, self._dialect)
                    self._note_missed(epochs)
                if not self._take([stored_change(row, epochs.of(row.cursor)) for row in rows]):
                    return self._state.retry_at_us
                given += len(rows)
            if len(rows) < _PAGE_CHANGES:
                return None
        return self._now_us

    def _note_missed(self, epochs: JournalEpochs) -> None:
        """A handler that has failed may be passed by the retention of the journal."""
        state, oldest = self._state, epochs.oldest
        if state.cursor and state.error and oldest is not None and oldest > state.cursor + 1:
            state.missed = f"changes {state.cursor + 1} to {oldest - 1} are no longer kept"
            self._forget_failure()
            _log.error("the handler %s has missed some: %s", self._handler.name, state.missed)

    def _take(self, changes: Sequence[Change]) -> bool:
        """Handle these; False: the handler gets no more now."""
        chosen = list(filter(self._handler.chooses, changes))
        state = self._state
        # All at once, where they go well; else each with a savepoint of its own.
        if len(chosen) < 2 or state.attempts or self._fault(chosen) is not None:
            for change in chosen:
                reason = self._fault([change])
                if reason is None:
                    self._forget_failure()
                elif not self._failed(change, reason):
                    return False
                state.cursor = change.cursor
        state.cursor = changes[-1].cursor
        return True

    def _forget_failure(self) -> None:
        self._state.attempts, self._state.retry_at_us, self._state.error = 0, None, ""

    def _failed(self, change: Change, reason: str) -> bool:
        """Decide about a change that was given in vain; False: nothing follows it now."""
        state, name = self._state, self._handler.name
        failure = after_failure(
            reason,
            state.attempts + 1,
            sequenced=True,
            settings=self._handler.settings,
            now_us=self._now_us,
            rng=self._rng,
        )
        if failure.retry_at_us is None and self._is_full():
            failure = HandlerFailure(
                f"as many failed changes as may be kept wait; {reason}",
                self._now_us + _FULL_RETRY_US,
                blocks=False,
            )
        shown = f"{plain(change.stream)}, {plain(change.key)}: {plain(reason)}"
        if failure.retry_at_us is not None:
            state.attempts += 1
            state.retry_at_us, state.error = failure.retry_at_us, failure.reason
            _log.warning("the handler %s has failed at change %d of %s", name, change.cursor, shown)
            return False
        kept = {"blocks": int(failure.blocks), "reason": reason, "now_us": self._now_us}
        self._connection.execute(_KEEP, {**self._of, **kept, "change": _encode(change)})
        self._forget_failure()
        state.cursor = change.cursor
        if failure.blocks:
            state.error = reason
        then = "it gets nothing more of the stream" if failure.blocks else "it goes on"
        _log.error("the handler %s: change %d of %s; %s", name, change.cursor, shown, then)
        return not failure.blocks

    def _is_full(self) -> bool:
        count: int = self._connection.execute(_COUNT, self._of).scalar_one()
        return count >= _MOST_FAILED

    def _try_failed_again(self) -> None:
        for row in self._connection.execute(_AGAIN, self._of).all():
            self._try_again(row)

    def _try_again(self, row: Row[Any]) -> None:
        reason = self._fault([_decode(bytes(row.change))])
        if reason is None:
            self._connection.execute(_HANDLED, {"id": row.id})
        else:
            values = {"id": row.id, "reason": reason, "now_us": self._now_us}
            self._connection.execute(_FAILED_AGAIN, values)

    def _fault(self, changes: Sequence[Change]) -> str | None:
        """Call the handler with these, all or none. Returns why it has failed; None: it has not."""
        savepoint = self._connection.begin_nested()
        try:
            for change in changes:
                self._call(change)
        except Exception as error:
            self._check_transaction(savepoint)
            if isinstance(error, CallEndedError) or self._is_of_database(error):
                raise
            savepoint.rollback()
            reason = f"the handler failed: {type(error).__name__}: {error}"
            return without_nul(reason)[:_REASON_CHARS]
        self._check_transaction(savepoint)
        return self._released(savepoint)

    def _released(self, savepoint: NestedTransaction) -> str | None:
        """A statement that failed has broken the savepoint, although the handler went on."""
        try:
            savepoint.commit()
        except SQLAlchemyError as error:
            if self._is_of_database(error):
                raise
            savepoint.rollback()
            return f"the handler went on after a statement had failed: {error}"[:_REASON_CHARS]
        return None

    def _check_transaction(self, savepoint: NestedTransaction) -> None:
        if not savepoint.is_active:
            raise SinkError(
                f"the handler {self._handler.name} has ended the transaction of the store",
                where=self._dialect.where,
                hint="a handler neither commits nor rolls back: it raises an error",
            )

    def _is_of_database(self, error: Exception) -> bool:
        """Whether the transaction is lost, whatever the handler does."""
        raised = getattr(error, "orig", None) or error
        if not isinstance(raised, self._dialect.errors):
            return False
        return self._dialect.failure_kind(error, self._connection) is not FailureKind.FINAL

    def _call(self, change: Change) -> None:
        handle: Callable[..., Any] = self._handler.handle
        if self._handler.is_async:
            timeout_s = self._handler.settings.handler_timeout_s
            call_in_loop(self._loop, self._connection, partial(handle, change), timeout_s)
        else:
            handle(change, self._connection)
