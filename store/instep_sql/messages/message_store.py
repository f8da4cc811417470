"""The durable inbox of a consumer in a SQL database. Implements `instep.ports.message_store`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Final

from sqlalchemy import Connection

from instep.errors import SinkError
from instep.model.messages import Message
from instep.ports.message_store import (
    Deliver,
    DeliveryResult,
    DueSequences,
    MessageGroup,
    Obligation,
    OperatorRequest,
    SenderUsage,
    StoredReply,
    StoredSequence,
)
from instep.sequencing.outbox import OutboxState
from instep_sql import fencing
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect
from instep_sql.fencing import ReceiverRow
from instep_sql.messages import (
    dead_letter,
    inbox,
    number_ends,
    obligations,
    operator_requests,
    outbox,
    replies,
    sequences,
)
from instep_sql.messages.handler import deliver, pending_deliveries
from instep_sql.messages.retention import Trimmer
from instep_sql.options import SqlOptions

__all__ = ["SqlMessageStore"]

_CACHED_BYTES: Final = 16 << 20
"""About the most that scopes with their row numbers take: a peer chooses how long a scope is."""
_ENTRY_BYTES: Final = 100


class SqlMessageStore:
    """Implements `instep.ports.message_store.MessageStore` in the database of a store.

    Promised: a group is committed whole or not at all (S3). Of two processes that receive for one
    consumer, the earlier one gets `FencedError` with its next transaction.
    """

    def __init__(
        self,
        database: Database,
        dialect: Dialect,
        options: SqlOptions,
        consumer: Callable[[], str],
        clock_us: Callable[[], int],
    ) -> None:
        self._database = database
        self._dialect = dialect
        self._options = options
        self._ends = number_ends.EndTrimmer(dialect, options)
        self._consumer = consumer
        self._clock_us = clock_us
        self._trimmer = Trimmer(dialect, options)
        self._owner = uuid.uuid4().hex
        self._opened: ReceiverRow | None = None
        self._commits = count(1)
        """Numbers our transactions; a number is used once, also when its transaction fails."""
        self._row_ids: dict[str, int] = {}
        self._cached_bytes = 0
        """Of the scopes that were added since the cache was empty."""

    def __repr__(self) -> str:
        return f"<SqlMessageStore {self._dialect.where}>"

    async def open(self, kind: str, *, handled: bool) -> None:
        """See `MessageStore`."""

        def work(connection: Connection) -> ReceiverRow:
            now_us = self._clock_us()
            receiver = fencing.take_over(connection, self._consumer(), self._owner, kind, now_us)
            if not handled:
                inbox.deliver_waiting(connection, self._dialect, receiver.no, now_us)
            return receiver

        self._opened = await self._database.run(work)

    async def load(self, scopes: Collection[str]) -> dict[str, StoredSequence]:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(
            lambda connection: sequences.load(connection, self._dialect, no, scopes)
        )

    async def scopes(self, prefix: str, limit: int) -> list[str]:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(
            lambda connection: sequences.scopes(connection, self._dialect, no, prefix, limit)
        )

    async def find_seen(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        """See `MessageStore`."""

        def work(connection: Connection) -> set[tuple[str, str]]:
            numbers = self._known_row_ids(connection, {message.scope for message in messages})
            return inbox.seen(connection, numbers, messages)

        return await self._database.run(work)

    async def commit(self, group: MessageGroup) -> None:
        """See `MessageStore`."""
        receiver, commits = self._receiver, next(self._commits)
        scopes = [change.scope for change in group.changes]

        def work(connection: Connection) -> dict[str, int]:
            fencing.check_receiver(
                connection,
                self._dialect,
                receiver,
                commits=commits,
                messages=inbox.count_messages(group),
                now_us=group.now_us,
            )
            sequences.write(connection, self._dialect, receiver.no, group)
            numbers = self._known_row_ids(connection, scopes)
            obligations.write(connection, self._dialect, receiver.no, group)
            operator_requests.finish(connection, self._dialect, group)
            if group.replay:
                # Before what follows it.
                inbox.replay(connection, self._dialect, receiver.no, group)
            inbox.apply_group(connection, self._dialect, group, numbers)
            number_ends.write(connection, self._dialect, receiver.no, group)
            self._ends.trim(connection, receiver.no, group)
            if group.discards_kept is not None:
                dead_letter.trim_discarded(connection, receiver.no, group.discards_kept)
            if group.deviations:
                fencing.count_deviations(
                    connection, self._dialect, "instep_receiver", receiver.no, group.deviations
                )
            self._trimmer.trim(connection, group)
            return numbers

        numbers = await self._database.run(
            work, committed=lambda connection: fencing.receiver_is_at(connection, receiver, commits)
        )
        # Only after the commit: a row that was rolled back has no number.
        new = [scope for scope in numbers if scope not in self._row_ids]
        self._cached_bytes += _ENTRY_BYTES * len(new) + sum(map(len, new))
        if self._cached_bytes > _CACHED_BYTES:
            self._row_ids.clear()
            self._cached_bytes = 0
        self._row_ids.update(numbers)

    async def find_due(self, now_us: int, limit: int) -> DueSequences:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(
            lambda connection: sequences.due(connection, no, now_us, limit)
        )

    async def reclaim(self, scopes: Collection[str], now_us: int) -> set[str]:
        """See `MessageStore`."""
        receiver, commits = self._receiver, next(self._commits)
        for scope in scopes:
            # Also where no answer comes: a row that is gone must not be written to.
            self._row_ids.pop(scope, None)

        def work(connection: Connection) -> set[str]:
            fencing.check_receiver(
                connection, self._dialect, receiver, commits=commits, messages=0, now_us=now_us
            )
            return sequences.reclaim(
                connection, self._dialect, receiver.no, scopes, now_us, self._options
            )

        return await self._database.run(
            work, committed=lambda connection: fencing.receiver_is_at(connection, receiver, commits)
        )

    async def usage(self) -> dict[str, SenderUsage]:
        """See `MessageStore`."""
        no = self._receiver.no

        def work(connection: Connection) -> dict[str, SenderUsage]:
            used = sequences.usage(connection, no)
            for peer, dead in dead_letter.usage(connection, no).items():
                one = used.setdefault(peer, SenderUsage())
                one.dead_messages, one.dead_bytes, one.dead_since_us = dead
            return used

        return await self._database.run(work)

    async def obligations(self) -> list[Obligation]:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(lambda connection: obligations.load(connection, no))

    async def operator_requests(self) -> list[OperatorRequest]:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(lambda connection: operator_requests.load(connection, no))

    async def digests(self, numbers: Mapping[str, Collection[int]]) -> dict[tuple[str, int], bytes]:
        """See `MessageStore`."""

        def work(connection: Connection) -> dict[tuple[str, int], bytes]:
            row_ids = self._known_row_ids(connection, numbers)
            return inbox.digests(connection, row_ids, numbers)

        return await self._database.run(work)

    async def deliver(self, handler: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        """See `MessageStore`."""
        receiver, commits = self._receiver, next(self._commits)
        look = await self._database.run(
            lambda connection: pending_deliveries(connection, receiver.no)
        )
        if look.next_us is None or look.next_us > now_us:
            # Nothing is written while there is nothing to deliver.
            return DeliveryResult(next_us=look.next_us, blocked=look.blocked)
        async with self._database.transaction() as transaction:
            await transaction.run(
                lambda connection: fencing.check_receiver(
                    connection, self._dialect, receiver, commits=commits, messages=0, now_us=now_us
                )
            )
            return await deliver(
                transaction,
                self._dialect,
                self._options,
                receiver.no,
                handler,
                trimmer=self._trimmer,
                now_us=now_us,
                limit_messages=limit_messages,
            )

    async def reply(self, scope: str, number: int) -> StoredReply:
        """See `MessageStore`."""
        no = self._receiver.no
        return await self._database.run(
            lambda connection: replies.find(connection, no, scope, number)
        )

    # -- our own messages ------------------------------------------------------------------------

    async def outboxes(self) -> Sequence[str]:
        """See `OutboxStore`."""
        no = self._receiver.no
        return await self._database.run(lambda connection: outbox.scopes(connection, no))

    async def load_outbox(self, scope: str) -> OutboxState | None:
        """See `OutboxStore`."""
        no = self._receiver.no
        return await self._database.run(lambda connection: outbox.load(connection, no, scope))

    async def save_outbox(
        self,
        scope: str,
        state: OutboxState,
        before: OutboxState,
        bodies: Mapping[int, bytes] | None = None,
    ) -> None:
        """See `OutboxStore`."""
        receiver, commits = self._receiver, next(self._commits)

        def work(connection: Connection) -> None:
            now_us = self._clock_us()
            fencing.check_receiver(
                connection, self._dialect, receiver, commits=commits, messages=0, now_us=now_us
            )
            outbox.save(connection, self._dialect, receiver.no, scope, state, before, bodies or {})

        await self._database.run(
            work, committed=lambda connection: fencing.receiver_is_at(connection, receiver, commits)
        )

    async def outbox_bodies(self, scope: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """See `OutboxStore`."""
        no = self._receiver.no
        return await self._database.run(
            lambda connection: outbox.bodies(connection, no, scope, numbers)
        )

    # -- inner parts -----------------------------------------------------------------------------

    def _known_row_ids(self, connection: Connection, scopes: Collection[str]) -> dict[str, int]:
        """Scope → row, asking for those that are not known; nothing is remembered here."""
        known = {scope: self._row_ids[scope] for scope in scopes if scope in self._row_ids}
        if len(known) < len(scopes):
            rest = [scope for scope in scopes if scope not in known]
            known |= sequences.row_ids_of(connection, self._dialect, self._receiver.no, rest)
        return known

    @property
    def _receiver(self) -> ReceiverRow:
        if self._opened is None:
            raise SinkError(
                "the inbox is not open", where=self._dialect.where, hint="call open(kind) first"
            )
        return self._opened
